"""`autotune diagnose`: why a training script is slow, from a measured run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autotune.cli.options import Flags, Json, Quiet, takes_options
from autotune.cli.place import working_directory
from autotune.cli.tail import tail_of
from autotune.errors import UsageError

EXAMPLES = """\b
Examples:
  autotune diagnose train.py
  autotune diagnose train.py --json -- --data photos
  autotune diagnose train.py --profile --out profiles
"""
DEFAULT_FOLDER = "autotune-profile"
INTERRUPTED = 130


@takes_options("diagnose")
def diagnose(
    context: typer.Context,
    flags: Flags,
    profile: Annotated[
        bool,
        typer.Option(
            "--profile", help="Write a trace (for chrome://tracing, Perfetto) and a .prof (for snakeviz, pstats) too."
        ),
    ] = False,
    out: Annotated[
        str | None,
        typer.Option("--out", metavar="DIR", help=f"Where profiles go. [default: {DEFAULT_FOLDER}]"),
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Say why a training script is slow, and how to make it faster.

    The unedited script runs twice for some seconds: first to find loader, model and optimizer, then to be measured
    under its own settings. No settings are searched, and files that the script writes are thrown away. Every advice
    names the setting or the line to change, the expected gain, and the measurement behind the gain. The largest gain
    comes first.
    """
    if out is not None and not profile:
        raise UsageError("--out goes with --profile.", "It is where profiles are written.")
    folder = Path(out or DEFAULT_FOLDER) if profile else None
    return _diagnose(flags, tail_of(context), folder, as_json=as_json, quiet=quiet)


def _diagnose(
    flags: Flags, tail: tuple[str, ...] | None, profiles_to: Path | None, *, as_json: bool, quiet: bool
) -> int:
    from autotune.study_file import asked as study_file

    asked = study_file.asked(flags, tail, working_directory())

    from autotune.cli.interrupts import stops_on_signal
    from autotune.diagnose import diagnosing
    from autotune.report.diagnosis_text import diagnosis_text
    from autotune.report.document import write_document
    from autotune.report.streams import say, write_result
    from autotune.report.terminal_text import Terminal
    from autotune.study.stop import StopRequest

    stop = StopRequest(saves=False)
    try:
        with stops_on_signal(stop), Terminal(quiet=quiet) as talk:
            diagnosis = diagnosing.diagnose(asked.spec, profiles_to=profiles_to, on_event=talk, stop=stop)
    except InterruptedError:
        say("Interrupted; nothing was measured.")
        return INTERRUPTED
    if as_json:
        write_document(diagnosis.document())
    else:
        write_result(diagnosis_text(diagnosis))
    return 0
