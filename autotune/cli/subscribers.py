"""Sends the events of a search to standard error for people and to standard output for programs."""

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
    """The function to call with every event during the search; meanwhile, signals ask for a stop.

    Args:
        stop: Counts the requests of signals.
        quiet: Say only warnings.
        stream: Gets every event too.
        status: Results of an earlier run of the same study.
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
