"""Who is told of the events of a search: a person on standard error, a program on standard output."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from autotune.cli.options import Output
from autotune.model.events import Event
from autotune.report.event_stream import EventStream
from autotune.report.lines import Standing
from autotune.report.terminal import Terminal
from autotune.store.secrets import mask_plain


def event_stream(output: Output) -> EventStream | None:
    """The stream on standard output; None without `--jsonl`."""
    return EventStream(mask=mask_plain) if output.as_jsonl else None


@contextmanager
def told(
    *, quiet: bool, stream: EventStream | None = None, standing: Standing | None = None
) -> Iterator[Callable[[Event], None]]:
    """What is to be called with every event, for as long as the search runs."""
    with Terminal(quiet=quiet, standing=standing) as talk:

        def tell(event: Event) -> None:
            talk(event)
            if stream is not None:
                stream(event)

        yield tell
