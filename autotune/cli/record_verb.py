"""`autotune record`: measures a complete grid of settings into a file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autotune.cli.options import Flags, Output, takes_options
from autotune.cli.place import working_directory
from autotune.cli.tail import tail_of
from autotune.errors import UsageError
from autotune.units import format_seconds, parse_seconds

if TYPE_CHECKING:
    from autotune.lab.recording import Recording
    from autotune.report.lines import StudyStatus

EXAMPLES = """\b
Examples:
  autotune record train.py --set num_workers=0,1,2,4 --set precision=fp32,bf16 --out grid.jsonl
  autotune record train.py --set batch_size=8,32,128 --memory-cap 4GiB --time 9m --out grid.jsonl -- --batch-size 128
"""
SCHEMA = 1
INTERRUPTED = 130
DEFAULT_REPEATS = 2
DEFAULT_TIME = "12h"


@takes_options("record")
def record(
    context: typer.Context,
    flags: Flags,
    out: Annotated[
        str | None, typer.Option("--out", metavar="FILE", help="The recording; one that is there is gone on with.")
    ] = None,
    repeats: Annotated[
        int, typer.Option("--repeats", metavar="N", min=1, help="Measurements of every cell.")
    ] = DEFAULT_REPEATS,
    time: Annotated[
        str, typer.Option("--time", metavar="9m", help="Longest wall time of this run, its probe included.")
    ] = DEFAULT_TIME,
    window: Annotated[
        str | None,
        typer.Option(
            "--window", metavar="3s", help="Longest measuring window; longer where blocks are long. [default: 8s]"
        ),
    ] = None,
    *,
    output: Output,
) -> int:
    """Measure a complete grid of settings into one file.

    The file lets searches be compared without a trial.

    Cells are all combinations of the values given with --set and --fix; all other settings keep the script's values. A
    process of the script measures many cells where settings can be switched; --start fresh starts a process per cell.
    Each round measures all cells in random order, grouped by process. Anchors in between show drift. The same command
    again continues the recording.
    """
    if out is None:
        raise UsageError("A recording needs a file.", "Name it with --out grid.jsonl.")
    limits = {"limit_s": parse_seconds(time), "window_s": parse_seconds(window) if window is not None else None}
    return _record(flags, tail_of(context), Path(out), repeats, limits, output)


def _record(
    flags: Flags,
    tail: tuple[str, ...] | None,
    out: Path,
    repeats: int,
    limits: dict[str, Any],
    output: Output,
) -> int:
    from autotune.study_file.asked import asked

    spec = asked(flags, tail, working_directory()).spec
    from autotune.cli.subscribers import event_stream, told
    from autotune.lab import recording
    from autotune.report import streams
    from autotune.study.stop import StopRequest

    options = recording.RecordOptions(out=out, repeats=repeats, **limits)
    stop, stream = StopRequest(), event_stream(output)
    try:
        with told(stop, quiet=output.quiet, stream=stream, status=_status(out)) as tell:
            recorded = recording.record(spec, options, on_event=tell, stop=stop)
    except InterruptedError:
        streams.say("Interrupted before the first cell of this run.")
        return INTERRUPTED
    if stream is not None:
        stream.finish(_document(recorded))
    else:
        _write(recorded, as_json=output.as_json)
    return INTERRUPTED if recorded.is_interrupted and recorded.num_left else 0


def _status(out: Path) -> StudyStatus:
    """The baseline of an earlier run with the measured rate, as the reference for new cells."""
    from autotune.lab.recording import recorded_baseline
    from autotune.report.lines import StudyStatus

    baseline = recorded_baseline(out)
    return StudyStatus() if baseline is None else StudyStatus(baseline=baseline[0], baseline_rate=baseline[1])


def _write(recording: Recording, *, as_json: bool) -> None:
    from autotune.report.document import write_document
    from autotune.report.streams import write_result

    if as_json:
        write_document({"schema": SCHEMA, **_document(recording)})
    else:
        write_result(_text(recording))


def _document(recording: Recording) -> dict[str, Any]:
    return {
        "out": str(recording.out),
        "num_cells": recording.num_cells,
        "num_dropped": recording.num_dropped,
        "num_measurements": recording.num_measurements,
        "num_by_start": dict(recording.num_by_start),
        "num_left": recording.num_left,
        "num_infeasible": recording.num_infeasible,
        "drift_ratio": recording.drift_ratio,
        "wall_s": recording.wall_s,
    }


def _text(recording: Recording) -> str:
    share = recording.num_infeasible / recording.num_cells
    dropped = f", {recording.num_dropped} combinations are not legal" if recording.num_dropped else ""
    lines = [
        f"{recording.out}: {recording.num_cells} cells{dropped}; "
        f"{recording.num_infeasible} over the cap so far ({share:.0%})",
        f"{recording.num_measurements} measurements in the file, {recording.num_left} left; "
        f"this run took {format_seconds(recording.wall_s)}",
    ]
    if recording.num_by_start:
        lines.append(_starts(recording.num_by_start))
    if recording.drift_ratio is not None:
        lines.append(f"the rates of one anchor differ by up to {recording.drift_ratio:.1%} over the recording")
    lines.append("Complete." if recording.num_left == 0 else "The same command again goes on.")
    return "\n".join(lines) + "\n"


def _starts(num_by_start: Mapping[str, int]) -> str:
    """Measurements by kind of start, such as `measured 38 live (95%), 2 forked (5%)`."""
    total = sum(num_by_start.values())
    parts = [f"{num} {start} ({num / total:.0%})" for start, num in num_by_start.items()]
    return f"measured {', '.join(parts)}"
