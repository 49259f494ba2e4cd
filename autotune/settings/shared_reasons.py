"""Reasons that several settings have in common for leaving a script alone."""

from __future__ import annotations

from autotune.settings.setting import ScriptCase


def why_no_loader(case: ScriptCase) -> str:
    """Why the loader's settings are the script's affair; empty when trials can change them."""
    if case.facts.loader is None:
        return "no torch DataLoader was seen to train"
    if "several_loaders" in case.facts.notes:
        return "several loaders train side by side, and which one to tune is not ours to guess"
    if "replays_batches" in case.facts.notes:
        return (
            "itertools.cycle keeps the first epoch's batches and never asks the loader for more, so that trials, which "
            "see that epoch, would overrate what loading costs (`while True: yield from loader` reads it anew)"
        )
    return ""


def why_no_single_step(case: ScriptCase) -> str:
    """Why backward and step cannot be separated soundly; empty when possible."""
    facts = case.facts
    if facts.num_optimizers == 0:
        return "no torch optimizer steps: the script updates its parameters by hand"
    if facts.num_optimizers > 1:
        return f"the script steps {facts.num_optimizers} optimizers, whose gradients would mix"
    if facts.uses_closure:
        return "the script steps with a closure"
    if facts.num_backwards_per_step != facts.num_micro_batches_per_step:
        return f"the script runs {facts.num_backwards_per_step} backward passes per optimizer step"
    return ""
