"""A running search on standard error: one line per event and, on a terminal, the live view below."""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Callable
from typing import IO, Self, cast

from rich.console import Console
from rich.live import Live
from rich.text import Text

from autotune.model.events import Event, Notice, ProbeStarted, SearchStarted, TrialFinished, TrialProgress
from autotune.model.outcome import Outcome
from autotune.report.folding import fold
from autotune.report.lines import SETTINGS_COLUMN, StudyStatus, event_lines, header
from autotune.report.live_view import LiveView, frame
from autotune.report.streams import BestEffortStream

PASTED = " " * 4
FRAMES_PER_SECOND = 1.0
"""Low, because the tuner shares its processors with the measured trial."""


class Terminal:
    """A subscriber of a search's events; a context manager around the search.

    Args:
        quiet: True for warnings only.
        status: Status left by an earlier run of the same study.
        stream: Destination of the text; None = standard error.
        num_stops: Returns the number of requested stops.
        now: The monotonic clock, in seconds.
    """

    def __init__(
        self,
        *,
        quiet: bool = False,
        status: StudyStatus | None = None,
        stream: BestEffortStream | None = None,
        num_stops: Callable[[], int] = lambda: 0,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._quiet = quiet
        self._num_stops, self._now = num_stops, now
        self._view = LiveView(began_at=now(), status=status or StudyStatus())
        talk = stream or BestEffortStream(sys.stderr)
        self._console = Console(file=cast("IO[str]", talk), force_terminal=talk.isatty(), highlight=False)
        self._has_header = False
        self._live: Live | None = None
        if talk.isatty() and not quiet and not self._console.is_dumb_terminal:
            self._live = Live(
                console=self._console,
                get_renderable=self.frame,
                refresh_per_second=FRAMES_PER_SECOND,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
                vertical_overflow="crop",
            )

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
            self._console.show_cursor(True)  # a killed process would leave the cursor hidden
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def __call__(self, event: Event) -> None:
        """Prints the lines for an event."""
        # One assignment, because another thread draws the frame.
        self._view = self._view.after(event, self._now())
        if self._live is not None and not isinstance(event, TrialProgress):
            self._live.refresh()  # Draw first, or new lines would stand above an outdated frame.
        if self._quiet and not (isinstance(event, Notice) and event.is_warning):
            return
        lines = event_lines(event, self._view.status)
        if isinstance(event, TrialFinished) and not self._has_header:
            lines = (self._header, *lines)
            self._has_header = True
        if lines:
            styled = [
                Text(part, style=self._style(event, line)) for line in lines for part in self._folded(line, event)
            ]
            self._console.print(Text("\n").join(styled), soft_wrap=True)

    @property
    def _header(self) -> str:
        return header(self._view.status.samples_unit)

    def _style(self, event: Event, line: str) -> str:
        if line == self._header:
            return "bold"
        if line.startswith("warning:"):
            return "yellow"
        if isinstance(event, TrialFinished):
            if event.is_best:
                return "green"
            return "" if event.result.outcome is Outcome.OK else "dim"
        return "bold" if isinstance(event, (SearchStarted, ProbeStarted)) else ""

    def _folded(self, line: str, event: Event) -> list[str]:
        """The line folded for the terminal; a file gets the whole line."""
        if self._live is None:
            return [line]
        width = self._console.width
        if line == self._header:
            narrow = header(self._view.status.samples_unit, settings="settings")
            return [line if len(line) <= width else narrow[:width]]
        is_row = isinstance(event, TrialFinished) and not line.startswith("warning:")
        return fold(line, width, column=SETTINGS_COLUMN, indent=7) if is_row else fold(line, width)

    def frame(self) -> Text:
        """The present status of the search, in a few lines that fit the terminal."""
        return frame(self._view, self._now(), self._console.width, num_stops=self._num_stops())

    @property
    def is_live(self) -> bool:
        """True when a live view is drawn; other writers to the terminal would garble it."""
        return self._live is not None


def render(text: Text, *, is_terminal: bool) -> str:
    """The text for output: folded and with colours for a terminal (no colours under NO_COLOR), plain for a file.

    Lines indented by four or more are for pasting, and stay whole.
    """
    page = io.StringIO()
    console = Console(file=page, force_terminal=is_terminal, highlight=False)
    if is_terminal:
        lines = [part for line in text.split("\n", allow_blank=True) for part in _folded_text(line, console.width)]
        text = Text("\n").join(lines)
    console.print(text, soft_wrap=True, end="")
    return page.getvalue()


def _folded_text(line: Text, width: int) -> list[Text]:
    if len(line) <= width or line.plain.startswith(PASTED):
        return [line]
    # A line of a summary has one style.
    style = line.spans[0].style if line.spans else line.style
    return [Text(part, style=style) for part in fold(line.plain, width)]
