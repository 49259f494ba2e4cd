"""Who is told of the events of a search: a person on standard error, a program on standard output."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from autotune.cli.interrupts import Stoppable, stops_on_signal
from autotune.cli.options import Output
from autotune.model.events import Event
from autotune.report.event_stream import EventStream
from autotune.report.lines import StudyStatus
from autotune.report.terminal_text import Terminal
from autotune.store.secrets import mask_plain


def event_stream(output: Output) -> EventStream | None:
    """The stream on standard output; None without `--jsonl`."""
    return EventStream(mask=mask_plain) if output.as_jsonl else None


@contextmanager
def told(
    stop: Stoppable, *, quiet: bool, stream: EventStream | None = None, status: StudyStatus | None = None
) -> Iterator[Callable[[Event], None]]:
    """What is to be called with every event, for as long as the search runs; signals ask it to stop meanwhile.

    Args:
        stop: What they ask.
        quiet: Say only warnings.
        stream: Is told as well.
        status: What an earlier run of the same study found.
    """
    with (
        Terminal(quiet=quiet, status=status, num_stops=lambda: stop.level) as talk,
        stops_on_signal(stop, is_shown=talk.is_live),
    ):

        def tell(event: Event) -> None:
            talk(event)
            if stream is not None:
                stream(event)

        yield tell
