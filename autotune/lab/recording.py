"""Records a complete grid, or goes on with a recording of the same script, machine and space."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from autotune import __version__
from autotune.errors import UsageError
from autotune.lab.grid import Grid, GridHeader
from autotune.lab.grid_file import GridFile, check_place, create_grid, open_grid, read_grid
from autotune.lab.grid_recorder import Recorder, num_left, num_measured
from autotune.lab.grid_space import enumerate_cells, grid_space, space_to_record
from autotune.model.events import Notice, OnEvent, SearchStarted
from autotune.runner.open_runner import RunnerFactory, open_runner
from autotune.runner.opened_workspace import open_workspace
from autotune.sandbox.workspace import Workspace
from autotune.settings import Settings
from autotune.spec import SearchSpec
from autotune.store.secrets import mask_arguments
from autotune.study.fingerprint import study_fingerprint, what_changed
from autotune.study.jobs import Jobs
from autotune.study.probing import Probed, probe
from autotune.study.protection_record import wish_of
from autotune.study.stop import StopRequest
from autotune.study.target import Target, open_target
from autotune.study_file.command import as_typed

PACKAGE_PLACE = Path(__file__).parents[2]
"""The folder of the package `autotune`: the root of a checkout, or where packages are installed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordOptions:
    """Options of a recording."""

    out: Path
    """The file; an existing recording is continued."""
    repeats: int = 2
    """Rounds over all cells, at least 1."""
    limit_s: float
    """Longest wall time of this run in seconds, probe included; above 0."""
    window_s: float | None = None
    """Longest measuring window in seconds, above 0; longer for long blocks. None = as in a search."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Recording:
    """The state of a recording after one run."""

    out: Path
    num_cells: int
    num_dropped: int
    num_measurements: int
    """Measurements by all runs, anchors not counted."""
    num_by_start: Mapping[str, int]
    """Measurements by the origin of their process, such as `live`, anchors not counted."""
    num_left: int
    """Missing measurements, anchors not counted."""
    num_infeasible: int
    """Cells with a measurement over the memory cap."""
    drift_ratio: float | None
    """Spread of an anchor's rates, from the lowest to the highest; None = not known yet."""
    is_interrupted: bool
    wall_s: float


def commit_in(place: Path) -> str:
    """The whole commit of the checkout in a folder; empty without a checkout, or for a worktree of another."""
    try:
        return _commit_of(place / ".git")
    except OSError:
        return ""


def version_in(place: Path) -> str:
    """Version of autotune, with the commit when the package lies in a checkout, as in `0.1.0+g0123abcd`.

    Args:
        place: The folder of the package. Packages installed below another project's checkout are not of its commits.
    """
    commit = commit_in(place)
    return f"{__version__}{'.' if '+' in __version__ else '+'}g{commit[:8]}" if commit else __version__


def _commit_of(folder: Path) -> str:
    """The commit of a repository's HEAD, without a process; empty for a branch without a commit."""
    head = (folder / "HEAD").read_text().strip()
    ref = head.removeprefix("ref: ")
    if ref == head:
        return head
    if (folder / ref).exists():
        return (folder / ref).read_text().strip()
    packed = [line.split() for line in (folder / "packed-refs").read_text().splitlines()]
    return next((words[0] for words in packed if words[1:] == [ref]), "")


def recorded_baseline(out: Path) -> tuple[Settings, float | None] | None:
    """The script's own settings and their first rate in a recording; None without a recording.

    The rate is in samples per second, and None before the first measurement.

    Raises:
        UsageError: The file is not the recording of a grid.
    """
    if not out.exists():
        return None
    grid = read_grid(out)
    rates = (record.result.measurement for record in grid.records if record.cell == 0)
    return grid.cells[0], next((measured.samples_per_second for measured in rates if measured is not None), None)


def record(
    spec: SearchSpec,
    options: RecordOptions,
    *,
    on_event: OnEvent,
    stop: StopRequest | None = None,
    open_runner: RunnerFactory = open_runner,
) -> Recording:
    """Measures the missing cells of a recording, for as long as the time allows.

    Args:
        spec: The script and the ranges of the grid.
        options: File, rounds and limits.
        on_event: Receives every event.
        stop: Ends the recording early.
        open_runner: Builds the runners.

    Raises:
        UsageError: The file is of another script, command, machine or grid; the message names the differences.
        AutotuneError: The user, the machine or the script caused an error, as in a search.
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
            header, target = _prepare(spec, options, known, target, workspace, open_runner, on_event, stop)
            if file is None:
                create_grid(options.out, header)
                file = stack.enter_context(open_grid(options.out))
            on_event(_started(spec, options, target, file))
            target = target.as_probed(header.facts)
            recorder = Recorder(
                file,
                repeats=options.repeats,
                jobs=Jobs(
                    spec=replace(spec, start=header.start),
                    target=target,
                    facts=header.facts,
                    script_settings=header.natural,
                ),
                runner=stack.enter_context(closing(open_runner(workspace, target.device, header.facts))),
                deadline=began + options.limit_s,
                stop=stop,
                on_event=on_event,
            )
            recorder.run()
        left = num_left(file, options.repeats)
    if not left:
        workspace.remove()
    grid = Grid(file.header, file.records)
    return Recording(
        out=options.out,
        num_cells=len(file.header.cells),
        num_dropped=len(file.header.dropped),
        num_measurements=num_measured(file, options.repeats),
        num_by_start=grid.num_by_start,
        num_left=left,
        num_infeasible=len({record.cell for record in file.records if record.result.outcome.is_infeasible}),
        drift_ratio=grid.drift_ratio,
        is_interrupted=bool(stop.level),
        wall_s=time.monotonic() - began,
    )


def _open_target(spec: SearchSpec, options: RecordOptions, known: GridHeader | None) -> Target:
    """This machine, under the memory cap of the recording when there is one.

    Raises:
        UsageError: The recording is of another script, command, machine or grid.
    """
    target = open_target(spec)
    if known is None:
        return target
    target = replace(target, cap_bytes=known.memory_cap_bytes)
    if known.device == "cpu" and not target.device.is_cpu:
        target = replace(target.on_cpu(spec), cap_bytes=known.memory_cap_bytes)
    changes = [*what_changed(known.fingerprint, study_fingerprint(spec, target))]
    for name, value in _asked(spec, options, known).items():
        if getattr(known, name) != value:
            changes.append(f"{name}: {value!r}, was {getattr(known, name)!r}")
    _refuse(options.out, changes)
    return target


def _open_workspace(spec: SearchSpec, options: RecordOptions) -> Workspace:
    """The folder of this recording, kept from an earlier run when possible."""
    study_id = f"record {options.out.resolve()}"
    workspace = open_workspace(
        cwd=Path(spec.cwd), command=spec.command, study_id=study_id, wish=replace(wish_of(spec), keeps_network=True)
    )
    workspace.remove_leftovers()
    return workspace


def _refuse(out: Path, changes: list[str]) -> None:
    if changes:
        raise UsageError(
            f"{out} cannot be gone on with, because its cells would not be comparable: {'; '.join(changes)}.",
            "Record to another file with --out.",
        )


def _asked(spec: SearchSpec, options: RecordOptions, known: GridHeader | None = None) -> dict[str, Any]:
    """The user's wishes with an effect on every cell, by fields of the header."""
    return {
        "memory_cap": spec.memory_cap,
        "effective_batch": spec.effective_batch,
        "asked": (*spec.ranges, *spec.fixed),
        "window_s": options.window_s,
        "seed": spec.seed,
        "start": _start(spec, known),
    }


def _start(spec: SearchSpec, known: GridHeader | None) -> str:
    """The start of the cells: the user's choice, else the choice in the recording, else live."""
    if spec.start != "auto":
        return spec.start
    return known.start if known is not None else "live"


def _prepare(
    spec: SearchSpec,
    options: RecordOptions,
    known: GridHeader | None,
    target: Target,
    workspace: Workspace,
    open_runner: RunnerFactory,
    on_event: OnEvent,
    stop: StopRequest,
) -> tuple[GridHeader, Target]:
    """The header of the recording and the target of the script, by a new probe unless the probe's files are here."""
    if known is not None and workspace.has_probe_layer():
        return known, target
    probed = probe(spec, target, workspace, open_runner(workspace, target.device), stop, on_event)
    if known is not None:
        changes = probed.space.script_settings.differences(known.natural)
        _refuse(options.out, [f"the script's own {name} is {now}, was {was}" for name, (now, was) in changes.items()])
        return known, probed.target
    header = _new_header(probed, options)
    on_event(probed.event)
    if header.dropped:
        message = f"{len(header.dropped)} combinations are left out, the first because: {header.dropped[0][1]}"
        on_event(Notice(message=message, is_warning=False))
    return header, probed.target


def _new_header(probed: Probed, options: RecordOptions) -> GridHeader:
    spec, target = probed.spec, probed.target
    space = grid_space(probed.space, spec)
    enumeration = enumerate_cells(space)
    own = enumeration.cells[0].to_dict()

    def changes(settings: Settings) -> dict[str, Any]:
        return {name: value for name, value in settings.to_dict().items() if value != own[name]}

    # A resume may find the script in another folder; the header names cap and batch as the user wrote them.
    elsewhere = ("cwd", "effective_batch", "memory_cap")
    fingerprint = {name: value for name, value in study_fingerprint(spec, target).items() if name not in elsewhere}
    return GridHeader(
        study=spec.study,
        command=as_typed(mask_arguments(spec.command)),
        fingerprint=fingerprint,
        memory_cap_bytes=target.cap_bytes,
        usable_cpus=target.usable_cpus,
        device=target.device.kind,
        repeats=options.repeats,
        natural=space.script_settings,
        space=space_to_record(space),
        facts=probed.facts,
        cells=tuple(map(changes, enumeration.cells)),
        dropped=tuple((changes(settings), reason) for settings, reason in enumeration.dropped),
        autotune=version_in(PACKAGE_PLACE),
        recorded_at=datetime.now(UTC).isoformat(timespec="seconds"),
        **_asked(spec, options),
    )


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
