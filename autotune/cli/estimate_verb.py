"""`autotune estimate`: the memory of a training, and the largest micro-batch on this card and on others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from autotune.cli.options import Flags, Json, Quiet, takes_options
from autotune.cli.place import working_directory
from autotune.cli.tail import tail_of

if TYPE_CHECKING:
    from autotune.study.estimate import Estimate

EXAMPLES = """\b
Examples:
  autotune estimate train.py
  autotune estimate train.py --card a100 --card 24GiB -- --data photos
"""
INTERRUPTED = 130


@takes_options("estimate")
def estimate(
    context: typer.Context,
    flags: Flags,
    card: Annotated[
        list[str] | None,
        typer.Option("--card", metavar="CARD", help="Another device: h200, h100, a100, l4, rtx4090, 24GiB, ..."),
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Estimate the memory of a training, and the largest micro-batch that fits.

    The unedited script runs once for a few steps, and files that the script writes are thrown away. The estimate holds
    for the script's own number format. A search measures instead of estimating.
    """
    from autotune.study_file import asked as study_file

    asked = study_file.asked(flags, tail_of(context), working_directory())

    from autotune.cli.subscribers import told
    from autotune.report.document import write_document
    from autotune.report.streams import say, write_result
    from autotune.study import estimate as estimating
    from autotune.study.stop import StopRequest

    stop = StopRequest(saves=False)
    try:
        with told(stop, quiet=quiet) as tell:
            found = estimating.estimate(asked.spec, tuple(card or ()), on_event=tell, stop=stop)
    except InterruptedError:
        say("Interrupted; nothing was stored.")
        return INTERRUPTED
    if as_json:
        write_document(found.document())
    else:
        write_result(estimate_text(found))
    return 0


def estimate_text(found: Estimate) -> str:
    """The estimate for people."""
    from autotune.report.status_text import table_text
    from autotune.report.words import clean
    from autotune.units import format_bytes

    parts = found.parts
    peak = parts.peak_at(parts.batch_size)
    measured = f" (measured {format_bytes(parts.peak_bytes)})" if parts.peak_bytes is not None else ""
    rows = [
        ("parameters", format_bytes(parts.parameter_bytes)),
        ("gradients", format_bytes(parts.gradient_bytes)),
        ("optimizer state", format_bytes(parts.optimizer_bytes)),
        ("activations of a sample", format_bytes(round(parts.activation_bytes))),
        (f"peak at a micro-batch of {parts.batch_size}", f"{format_bytes(peak)}{measured}"),
        ("whole process", format_bytes(found.process_bytes)),
    ]
    sizes = {None: "any", 0: "none fits"}
    cards = [
        (room.card, format_bytes(room.cap_bytes), sizes.get(room.batch_size, str(room.batch_size)))
        for room in found.rooms
    ]
    return "\n".join(
        [
            f"{clean(found.script)}, estimated from one run of a few steps",
            "",
            table_text(("memory", ""), rows),
            table_text(("card", "cap", "largest micro-batch"), cards),
        ]
    )
