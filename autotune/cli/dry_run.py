"""`autotune search --dry-run`: the plan, for people and as a document."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from autotune.cli.subscribers import told
from autotune.model.events import ProbeFinished
from autotune.protocol.codec import to_plain
from autotune.protocol.protection import BEST
from autotune.report.document import write_document
from autotune.report.lines import argument_words, facts_words
from autotune.report.streams import say, write_result
from autotune.report.words import changes_text, clean, refused_words, value_text
from autotune.settings import Value
from autotune.space.search_space import SPLIT
from autotune.spec import SearchSpec
from autotune.store.secrets import mask_arguments
from autotune.study.preview import Preview, preview
from autotune.units import format_bytes, format_seconds

SCHEMA = 1
UNKNOWN = "unknown until the script has run once (--dry-run --probe)"
INTERRUPTED = 130


def dry_run(spec: SearchSpec, *, run_probe: bool, as_json: bool, quiet: bool) -> int:
    """Prints the plan of a search; gives the exit code."""
    from autotune.study.stop import StopRequest

    stop = StopRequest(saves=False)
    try:
        with told(stop, quiet=quiet) as tell:
            plan = preview(spec, run_probe=run_probe, on_event=tell, stop=stop)
    except InterruptedError:
        say("Interrupted; nothing was stored.")
        return INTERRUPTED
    if as_json:
        write_document(plan_document(plan))
    else:
        write_result(plan_text(plan))
    return 0


def plan_text(plan: Preview) -> str:
    """The plan for people. Without a probe, the results of the probe are called unknown."""
    spec = plan.spec
    trials = f"{spec.max_trials} trials, " if spec.max_trials is not None else ""
    lines = [
        f"study         {clean(spec.study)}",
        f"command       {clean(shlex.join(mask_arguments(spec.command)))}",
        f"in            {clean(spec.cwd)}",
        f"machine       {clean(plan.machine)}",
        f"device        {clean(plan.device)}",
        f"memory cap    {format_bytes(plan.memory_cap_bytes)}",
        f"budget        {trials}{format_seconds(spec.budget_s)} at most, probe and finals included",
        f"batch         effective batch {clean(spec.effective_batch)}",
        f"storage       {clean(plan.storage)}",
        f"config        {clean(str(Path(spec.cwd, spec.out)))}",
    ]
    or_none = ", or none where the system permits none" if spec.unprotected and spec.protection == BEST else ""
    lines.append(f"protection    {clean(spec.protection)}{or_none}")
    if spec.writable:
        lines.append(f"writable      {clean(shlex.join(spec.writable))}, for real, in every trial")
    wishes = [f"{name}={text}" for name, text in (*spec.ranges, *spec.fixed)]
    if wishes:
        lines.append(f"asked         {clean(' '.join(wishes))}")
    return "\n".join([*lines, *_probed_lines(plan, plan.probe)]) + "\n"


def _probed_lines(plan: Preview, probe: ProbeFinished | None) -> list[str]:
    if probe is None:
        return [f"script        {UNKNOWN}", f"search space  {UNKNOWN}", f"first         {UNKNOWN}"]
    lines = [f"script        {clean(facts_words(probe.facts, probe.natural))}", "", "searched:"]
    lines += [
        f"  {clean(name.removeprefix('knobs.'))}: {', '.join(value_text(value) for value in values)}"
        for name, values in _searched(plan, probe)
    ]
    if plan.num_settings is not None:
        lines.append(f"  {plan.num_settings:,} combinations")
    if probe.refused:
        lines += ["", "left out:", *(f"  {words}" for words in refused_words(probe.refused))]
    if probe.arguments:
        lines += ["", *argument_words(probe.arguments)]
    own = probe.natural.canonical(device_is_cpu=probe.facts.device == "cpu")
    lines += ["", "first, if all were equally fast:"]
    lines += [f"  {clean(stage)}: {changes_text(settings, own) or 'your settings'}" for settings, stage in plan.first]
    return lines


def _searched(plan: Preview, probe: ProbeFinished) -> tuple[tuple[str, tuple[Value, ...]], ...]:
    """Settings with their candidate values; positions among the divisors of the batch become sizes of micro-batches."""
    batch = probe.natural.effective_batch() or 1
    divisors = [size for size in range(1, batch + 1) if batch % size == 0]
    return tuple(
        ("batch_size", tuple(divisors[int(value)] for value in values)) if name == SPLIT else (name, values)
        for name, values in plan.searched
    )


def plan_document(plan: Preview) -> dict[str, Any]:
    """The plan as plain values for `--json`. Without a probe, the results of the probe are null."""
    spec, probe = plan.spec, plan.probe
    return {
        "schema": SCHEMA,
        "study": spec.study,
        "command": list(mask_arguments(spec.command)),
        "cwd": spec.cwd,
        "machine": plan.machine,
        "device": plan.device,
        "memory_cap_bytes": plan.memory_cap_bytes,
        "max_trials": spec.max_trials,
        "budget_s": spec.budget_s,
        "effective_batch": spec.effective_batch,
        "storage": plan.storage,
        "config": str(Path(spec.cwd, spec.out)),
        "protection": spec.protection,
        "unprotected": spec.unprotected,
        "writable": list(spec.writable),
        "natural": probe.natural.to_dict() if probe is not None else None,
        "facts": to_plain(probe.facts) if probe is not None else None,
        "refused": dict(probe.refused) if probe is not None else None,
        "searched": {name: list(values) for name, values in _searched(plan, probe)} if probe is not None else None,
        "num_settings": plan.num_settings,
        "first": [{"stage": stage, "settings": settings.to_dict()} for settings, stage in plan.first]
        if probe is not None
        else None,
    }
