"""The talk of a running search on standard error: one line per event and, for a person, one live status line."""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Callable
from typing import IO, Self, cast

from rich.console import Console
from rich.live import Live
from rich.text import Text

from autotune.model.events import Event, Notice, ProbeStarted, SearchStarted, TrialFinished, TrialStarted
from autotune.model.outcome import Outcome
from autotune.report.lines import HEADER, Standing, event_lines, running_words
from autotune.report.streams import Talk
from autotune.units import format_seconds

FRAMES_PER_SECOND = 1.0
"""The tuner shares its processors with what it measures."""


class Terminal:
    """A subscriber of a search's events. Use it as a context manager around the search.

    Args:
        quiet: Say only warnings.
        standing: What an earlier run of the same study found.
        stream: Where the talk goes; None = standard error.
        now: The monotonic clock, in seconds.
    """

    def __init__(
        self,
        *,
        quiet: bool = False,
        standing: Standing | None = None,
        stream: Talk | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._quiet = quiet
        self._standing = standing or Standing()
        self._now = now
        talk = stream or Talk(sys.stderr)
        self._console = Console(file=cast("IO[str]", talk), force_terminal=talk.isatty(), highlight=False)
        self._started: SearchStarted | None = None
        self._running = ""
        self._began_at = self._running_since = now()
        self._has_header = False
        self._live: Live | None = None
        if talk.isatty() and not quiet and not self._console.is_dumb_terminal:
            self._live = Live(
                console=self._console,
                get_renderable=self.status_line,
                refresh_per_second=FRAMES_PER_SECOND,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
            self._console.show_cursor(True)  # it would stay hidden if this process were killed
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def __call__(self, event: Event) -> None:
        """Says what is to be said of an event."""
        self._standing = self._standing.after(event)
        if isinstance(event, SearchStarted):
            self._started = event
        self._note_running(event)
        if self._quiet and not (isinstance(event, Notice) and event.is_warning):
            return
        lines = event_lines(event, self._standing)
        if isinstance(event, TrialFinished) and not self._has_header:
            lines = (HEADER, *lines)
        self._has_header = self._has_header or HEADER in lines
        if lines:
            styled = Text("\n").join(Text(line, style=_style(event, line)) for line in lines)
            self._console.print(styled, soft_wrap=True)

    def _note_running(self, event: Event) -> None:
        words = running_words(event, self._standing)
        if words or isinstance(event, TrialFinished):
            self._running, self._running_since = words, self._now()

    def status_line(self) -> Text:
        """How the search stands at this moment, on one line that is cut at the terminal's edge."""
        now, started, standing = self._now(), self._started, self._standing
        if started is None:
            return Text("starting", style="dim", no_wrap=True, overflow="crop")
        limit = f" of at most {started.max_trials}" if started.max_trials is not None else ""
        parts = [
            f"{standing.num_finished} trials{limit} done",
            f"{format_seconds(now - self._began_at)} of {format_seconds(started.budget_s)}",
        ]
        if standing.best_rate is not None and standing.baseline_rate:
            parts.append(f"best {standing.best_rate / standing.baseline_rate:.2f}x (trial {standing.best_trial})")
        if self._running:
            parts.append(f"{self._running} for {format_seconds(now - self._running_since)}")
        return Text(" | ".join(parts), style="dim", no_wrap=True, overflow="crop")


def render(text: Text, *, is_terminal: bool) -> str:
    """The text as it is written: with colours for a terminal (not under NO_COLOR), plain for anything else."""
    page = io.StringIO()
    Console(file=page, force_terminal=is_terminal, highlight=False).print(text, soft_wrap=True, end="")
    return page.getvalue()


def _style(event: Event, line: str) -> str:
    if line.startswith("warning:"):
        return "yellow"
    if isinstance(event, TrialFinished):
        if event.is_best:
            return "green"
        return "" if event.result.outcome is Outcome.OK else "dim"
    return "bold" if isinstance(event, (SearchStarted, ProbeStarted, TrialStarted)) or line == HEADER else ""
