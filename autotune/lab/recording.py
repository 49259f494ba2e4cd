"""Recording a complete grid from beginning to end: the same script, machine and space as before, or by a new probe."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from autotune import __version__
from autotune.errors import UsageError
from autotune.lab.grid import Grid, GridHeader
from autotune.lab.grid_file import GridFile, check_place, create_grid, open_grid
from autotune.lab.grid_recorder import Recorder, num_left, num_measured
from autotune.lab.grid_space import enumerate_cells, grid_space, space_to_record
from autotune.model.events import Event, Notice, ProbeFinished, ProbeStarted, SearchStarted
from autotune.model.facts import ScriptFacts, samples_unit
from autotune.runner.cold_runner import ColdRunner
from autotune.runner.fork_runner import ForkRunner
from autotune.runner.opened_workspace import open_workspace
from autotune.sandbox.workspace import Workspace
from autotune.settings import Settings
from autotune.space.derive import derive_space
from autotune.space.offers import useful_arguments
from autotune.spec import SearchSpec
from autotune.store.secrets import mask_arguments
from autotune.study.fingerprint import study_fingerprint, what_changed
from autotune.study.jobs import Jobs
from autotune.study.probing import probe_script
from autotune.study.protection_record import wish_of
from autotune.study.stop import StopRequest
from autotune.study.target import Target, open_target
from autotune.study_file.command import as_typed

OnEvent = Callable[[Event], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordOptions:
    """How a grid is recorded."""

    out: Path
    """The recording; gone on with where it is there already."""
    repeats: int = 2
    """Rounds over all cells, at least 1."""
    limit_s: float
    """Longest wall time of this run, probe included; above 0."""
    window_s: float | None = None
    """Longest measuring window, above 0; long blocks make it longer. None = that of a search's trials."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Recording:
    """How a recording stands at the end of one run."""

    out: Path
    num_cells: int
    num_dropped: int
    num_measurements: int
    """Of cells' own turns, all runs together."""
    num_left: int
    """Measurements that are missing, anchors not counted."""
    num_infeasible: int
    """Cells of which some measurement needed more memory than the cap."""
    drift_ratio: float | None
    """Spread of an anchor's rates, from the lowest to the highest; None where that is not known yet."""
    is_interrupted: bool
    wall_s: float


def record(
    spec: SearchSpec, options: RecordOptions, *, on_event: OnEvent, stop: StopRequest | None = None
) -> Recording:
    """Measures what is missing in a recording, for as long as the time allows.

    Raises:
        UsageError: The file is of another script, command, machine or grid; the differences are named.
        AutotuneError: Whatever the user, the machine or the script caused, as in a search.
    """
    began = time.monotonic()
    stop = stop or StopRequest()
    with ExitStack() as stack:
        file = stack.enter_context(open_grid(options.out)) if options.out.exists() else None
        known = file.header if file is not None else None
        if file is None:
            check_place(options.out)
        target = _open_target(spec, options, known)
        workspace = _open_workspace(spec, options)
        stack.callback(workspace.leave)
        if file is None or num_left(file, options.repeats):
            header, target = _prepare(spec, options, known, target, workspace, on_event, stop)
            if file is None:
                create_grid(options.out, header)
                file = stack.enter_context(open_grid(options.out))
            on_event(_started(spec, options, target, file))
            target = target.as_probed(header.facts)
            recorder = Recorder(
                file,
                repeats=options.repeats,
                jobs=Jobs(spec=spec, target=target, facts=header.facts, script_settings=header.natural),
                runner=stack.enter_context(ForkRunner(ColdRunner(workspace, target.device), header.facts)),
                deadline=began + options.limit_s,
                stop=stop,
                on_event=on_event,
            )
            recorder.run()
        left = num_left(file, options.repeats)
    if not left:
        workspace.remove()
    return Recording(
        out=options.out,
        num_cells=len(file.header.cells),
        num_dropped=len(file.header.dropped),
        num_measurements=num_measured(file, options.repeats),
        num_left=left,
        num_infeasible=len({record.cell for record in file.records if record.result.outcome.is_infeasible}),
        drift_ratio=Grid(file.header, file.records).drift_ratio,
        is_interrupted=bool(stop.level),
        wall_s=time.monotonic() - began,
    )


def _open_target(spec: SearchSpec, options: RecordOptions, known: GridHeader | None) -> Target:
    """This machine, under the cap of the recording where there is one already.

    Raises:
        UsageError: The recording is of something else.
    """
    target = open_target(spec)
    if known is None:
        return target
    target = replace(target, cap_bytes=known.memory_cap_bytes)
    if known.device == "cpu" and not target.device.is_cpu:
        target = replace(target.on_cpu(spec), cap_bytes=known.memory_cap_bytes)
    changes = [*what_changed(known.fingerprint, study_fingerprint(spec, target))]
    for name, value in _asked(spec, options).items():
        if getattr(known, name) != value:
            changes.append(f"{name}: {value!r}, was {getattr(known, name)!r}")
    _refuse(options.out, changes)
    return target


def _open_workspace(spec: SearchSpec, options: RecordOptions) -> Workspace:
    """The folder of this recording, the one of an earlier run where it is still there."""
    study_id = f"record {options.out.resolve()}"
    workspace = open_workspace(cwd=Path(spec.cwd), command=spec.command, study_id=study_id, wish=wish_of(spec))
    workspace.remove_leftovers()
    return workspace


def _refuse(out: Path, changes: list[str]) -> None:
    if changes:
        raise UsageError(
            f"{out} cannot be gone on with, because its cells would not be comparable: {'; '.join(changes)}.",
            "Record to another file with --out.",
        )


def _asked(spec: SearchSpec, options: RecordOptions) -> dict[str, Any]:
    """What the user asked, as far as every cell depends on it, by the header's fields."""
    return {
        "memory_cap": spec.memory_cap,
        "effective_batch": spec.effective_batch,
        "asked": (*spec.ranges, *spec.fixed),
        "window_s": options.window_s,
        "seed": spec.seed,
    }


def _prepare(
    spec: SearchSpec,
    options: RecordOptions,
    known: GridHeader | None,
    target: Target,
    workspace: Workspace,
    on_event: OnEvent,
    stop: StopRequest,
) -> tuple[GridHeader, Target]:
    """The recording's header, and the site that its script trains on; the probe runs where its files are not here."""
    if known is not None and workspace.has_probe_layer():
        return known, target
    began = time.monotonic()
    on_event(ProbeStarted())
    workspace.forget_probe()
    runner = ColdRunner(workspace, target.device)
    facts = probe_script(Jobs(spec=spec, target=target), runner, workspace.probe_is_through, stop, on_event)
    target = target.where_it_trains(facts, spec, on_event)
    if known is not None:
        changes = derive_space(facts, target.machine, spec).script_settings.differences(known.natural)
        _refuse(options.out, [f"the script's own {name} is {now}, was {was}" for name, (now, was) in changes.items()])
        return known, target
    header, refused = _new_header(spec, options, target, facts)
    wall_s = time.monotonic() - began
    on_event(
        ProbeFinished(
            facts=facts,
            natural=header.natural,
            refused=refused,
            wall_s=wall_s,
            samples_unit=samples_unit(facts, spec.samples_per_step),
            arguments=useful_arguments(facts, target.machine, spec),
        )
    )
    if header.dropped:
        message = f"{len(header.dropped)} combinations are left out, the first because: {header.dropped[0][1]}"
        on_event(Notice(message=message, is_warning=False))
    return header, target


def _new_header(
    spec: SearchSpec, options: RecordOptions, target: Target, facts: ScriptFacts
) -> tuple[GridHeader, tuple[tuple[str, str], ...]]:
    """The header of a new recording, and what the script or the machine refuse."""
    space = grid_space(derive_space(facts, target.machine, spec), spec)
    enumeration = enumerate_cells(space)
    own = enumeration.cells[0].to_dict()

    def changes(settings: Settings) -> dict[str, Any]:
        return {name: value for name, value in settings.to_dict().items() if value != own[name]}

    # Where the folder lies is no matter; cap and batch are compared by name, as they were asked.
    elsewhere = ("cwd", "effective_batch", "memory_cap")
    fingerprint = {name: value for name, value in study_fingerprint(spec, target).items() if name not in elsewhere}
    header = GridHeader(
        study=spec.study,
        command=as_typed(mask_arguments(spec.command)),
        fingerprint=fingerprint,
        memory_cap_bytes=target.cap_bytes,
        usable_cpus=target.usable_cpus,
        device=target.device.kind,
        repeats=options.repeats,
        natural=space.script_settings,
        space=space_to_record(space),
        facts=facts,
        cells=tuple(map(changes, enumeration.cells)),
        dropped=tuple((changes(settings), reason) for settings, reason in enumeration.dropped),
        autotune=__version__,
        recorded_at=datetime.now(UTC).isoformat(timespec="seconds"),
        **_asked(spec, options),
    )
    return header, space.refused


def _started(spec: SearchSpec, options: RecordOptions, target: Target, file: GridFile) -> SearchStarted:
    return SearchStarted(
        study=spec.study,
        script=spec.script,
        machine=f"{target.host.device}, {target.host.usable_cpus:g} usable cores, torch {target.host.torch}",
        memory_cap_bytes=target.cap_bytes,
        max_trials=len(file.header.cells) * options.repeats,
        budget_s=options.limit_s,
        num_finished=num_measured(file, options.repeats),
        storage=str(options.out),
    )
