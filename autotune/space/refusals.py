"""Reasons against tuning a script, or against counting its samples, by facts of the probe."""

from __future__ import annotations

from collections.abc import Collection

from autotune.model.facts import ScriptFacts
from autotune.settings import BY_NAME, SETTINGS, Setting, Settings
from autotune.settings.cases import ScriptCase

WORDS = {"torch": "torch", "keras": "Keras", "loop": "a loop of its own"}
"""Frameworks for people."""
SIMULATORS = frozenset({"gymnasium", "gym", "pettingzoo", "dm_env", "envpool", "ale_py", "procgen"})
"""Packages of environments for reinforcement learning."""


def why_not_one_device(facts: ScriptFacts) -> str:
    """Why one process of the script cannot be measured on the device given by a trial; empty when measurable."""
    numbers = facts.device_numbers
    if len(numbers) > 1 and "data_parallel" in facts.notes:
        return (
            f"The script spreads each batch over {len(numbers)} devices by torch.nn.DataParallel in one process, which "
            "is measured on one device at a time only"
        )
    if len(numbers) > 1:
        return (
            f"The script lays its model over {len(numbers)} devices in one process, which is measured on one device at "
            "a time only"
        )
    if numbers and facts.world_size == 1 and numbers[0] > 0:
        return f"The script trains on cuda:{numbers[0]} by its own choice, where trials show it one device, as cuda:0"
    return ""


def why_not_a_trainer(facts: ScriptFacts, *, is_declared: bool) -> str:
    """Why the rate of one process says nothing of the script's settings; empty for a script that learns from data.

    Args:
        facts: Facts of the probe.
        is_declared: The user says how many samples an optimizer step has, and takes steps to be comparable.
    """
    if "shared_model" in facts.notes:
        return (
            "The script's model lies in shared memory, where several processes train it at once without waiting for "
            "each other, and a trial would measure one of them"
        )
    played = sorted(SIMULATORS.intersection(facts.modules))
    if facts.loader is not None or is_declared or not played:
        return ""
    return (
        f"The script learns by reinforcement from an environment ({played[0]}), and no DataLoader was seen to train: "
        "how long a step takes depends on what it plays, so no two windows do the same work"
    )


def why_other_framework(setting: Setting, facts: ScriptFacts) -> str:
    """Why the framework of a script does not have a setting; empty when it does."""
    if facts.framework in setting.frameworks_of_scripts:
        return ""
    named = " and ".join(setting.frameworks_of_scripts)
    return f"it is for scripts that train by {named}, and this script trains by {WORDS[facts.framework]}"


def why_no_samples(facts: ScriptFacts, *, is_declared: bool) -> str:
    """Why the samples of an optimizer step are unknown; empty when known.

    Args:
        facts: Facts of the probe.
        is_declared: The user gives the number of samples.
    """
    if is_declared or (facts.loader is None and facts.foreign_loader):
        return ""
    if facts.loader is None:
        counted = "evaluations of the optimizer's closure" if facts.counts_evaluations else "steps"
        return f"no torch DataLoader was seen to train, so {counted} are counted (--samples-per-step)"
    if "several_loaders" in facts.notes:
        return "several loaders train side by side, and the samples of one are counted (--samples-per-step)"
    return ""


def why_no_free_batch(facts: ScriptFacts, *, is_declared: bool) -> str:
    """Why rates at different effective batches cannot be compared; empty where samples are counted from the batches.

    Args:
        facts: Facts of the probe.
        is_declared: The user gives the number of samples.
    """
    if is_declared:
        return "--samples-per-step gives every optimizer step the same samples, so the smallest batch would look best"
    if facts.loader is None and not facts.foreign_loader:
        return (
            "no torch DataLoader was seen to train, so steps are counted and not samples, and the smallest batch would "
            "look best"
        )
    return ""


def why_no_split(facts: ScriptFacts, *, splits_batch_norm: bool, mapped: Collection[str]) -> str:
    """Why the batch of a script cannot be divided into micro-batches soundly; empty when possible.

    Args:
        facts: Facts of the probe.
        splits_batch_norm: The user allows BatchNorm to see smaller batches.
        mapped: Settings that reach the script as arguments.
    """
    is_cpu = facts.device == "cpu"
    case = ScriptCase(facts=facts, is_cpu=is_cpu, mapped=mapped, splits_batch_norm=splits_batch_norm)
    return BY_NAME["batch_size"].refused(case)


def why_not_unedited(
    settings: Settings,
    script_settings: Settings,
    facts: ScriptFacts,
    *,
    mapped: frozenset[str] = frozenset(),
    splits_batch_norm: bool = False,
) -> dict[str, str]:
    """Settings that no seam can put in force soundly on an unedited script, as name -> reason; without knobs.

    Args:
        settings: The settings asked for.
        script_settings: The script's own settings; equal values are left alone.
        facts: Facts of the probe.
        mapped: Fields passed to the script as arguments.
        splits_batch_norm: The user allows that BatchNorm sees smaller batches.
    """
    is_cpu = facts.device == "cpu"
    case = ScriptCase(facts=facts, is_cpu=is_cpu, mapped=mapped, splits_batch_norm=splits_batch_norm)
    differences = settings.differences(script_settings)
    reasons: dict[str, str] = {}
    for setting in SETTINGS:
        if setting.name in differences and setting.name not in mapped and not case.is_claimed(setting.group):
            reason = (
                why_other_framework(setting, facts)
                or setting.refused(case)
                or setting.refused_value(case, getattr(settings, setting.name))
            )
            if reason:
                reasons[setting.name] = reason
    return reasons
