import io

import pytest
from rich.text import Text

from autotune.model.events import Notice, ProbeStarted, TrialStarted
from autotune.report.lines import HEADER
from autotune.report.streams import Talk
from autotune.report.terminal import Terminal, render

from .examples import NATURAL, PROBED, STARTED, TUNED, finished, measured

EVENTS = (
    STARTED,
    ProbeStarted(),
    PROBED,
    TrialStarted(number=0, settings=NATURAL, stage="baseline"),
    finished(0, NATURAL, measured(1000.0), is_best=True),
    TrialStarted(number=1, settings=TUNED, stage="workers"),
    finished(1, TUNED, measured(2000.0), is_best=True),
)


class Page(io.StringIO):
    """A text stream that may be a terminal."""

    def __init__(self, *, is_terminal=False):
        super().__init__()
        self._is_terminal = is_terminal

    def isatty(self):
        return self._is_terminal


class Clock:
    now_s = 100.0

    def __call__(self):
        return self.now_s


@pytest.fixture(autouse=True)
def plain_terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)


def said(*events, **options):
    page = Page()
    with Terminal(stream=Talk(page), **options) as talk:
        for event in events:
            talk(event)
    return page.getvalue()


def test_in_a_file_there_is_one_line_per_finished_trial_and_no_control_character():
    text = said(*EVENTS)
    assert text.count("\n") == 3 + 1 + 3 + 1 + 1
    assert "\x1b" not in text and "\r" not in text
    assert "    1  ok                 2,000   2.00x" in text


def test_long_lines_are_not_broken():
    text = said(STARTED, Notice(message="word " * 100))
    assert len(text.splitlines()[-1]) > 400


def test_brackets_in_names_are_text_and_not_markup():
    assert "[bold]x[/bold]" in said(Notice(message="[bold]x[/bold]"))


def test_quiet_leaves_only_warnings():
    text = said(*EVENTS, Notice(message="told"), Notice(message="not told", is_warning=False), quiet=True)
    assert text == "warning: told\n"


def test_the_header_comes_once_also_without_a_probe():
    assert said(*EVENTS).count(HEADER) == 1
    assert said(STARTED, *EVENTS[3:]).count(HEADER) == 1


def test_the_status_line_says_how_far_the_search_is():
    clock = Clock()
    talk = Terminal(stream=Talk(Page()), now=clock)
    assert talk.status_line().plain == "starting"
    for event in EVENTS:
        talk(event)
    clock.now_s += 130.0
    assert talk.status_line().plain == "2 trials of at most 40 done | 2 min 10 s of 15 min 0 s | best 2.00x (trial 1)"
    talk(TrialStarted(number=2, settings=TUNED, stage="workers"))
    clock.now_s += 4.0
    assert talk.status_line().plain.endswith(
        "| trial 2: num_workers=4 persistent_workers=true precision=bf16 for 4.0 s"
    )


def test_a_person_sees_a_status_line_that_is_gone_at_the_end():
    page = Page(is_terminal=True)
    with Terminal(stream=Talk(page)) as talk:
        for event in EVENTS:
            talk(event)
        assert page.getvalue().endswith("\x1b[2mstarting\x1b[0m")  # the next frame comes within a second
    assert page.getvalue().endswith("\x1b[2K")


def test_the_cursor_is_not_left_hidden_by_a_tuner_that_is_killed():
    page = Page(is_terminal=True)
    with Terminal(stream=Talk(page)):
        assert page.getvalue().rindex("\x1b[?25h") > page.getvalue().rindex("\x1b[?25l")


@pytest.mark.parametrize(("variable", "value"), [("TERM", "dumb")])
def test_a_terminal_that_cannot_move_its_cursor_gets_plain_lines(monkeypatch, variable, value):
    monkeypatch.setenv(variable, value)
    page = Page(is_terminal=True)
    with Terminal(stream=Talk(page)) as talk:
        talk(STARTED)
    assert "\r" not in page.getvalue() and "[2K" not in page.getvalue()


def test_no_color_is_respected(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[3" not in render(Text("x", style="yellow"), is_terminal=True)


def test_a_rendered_text_has_colours_only_for_a_terminal():
    text = Text("a\nb\n", style="yellow")
    assert render(text, is_terminal=False) == "a\nb\n"
    assert "\x1b[33m" in render(text, is_terminal=True)


class Gone(Page):
    """A stream whose reader has left."""

    def __init__(self, error):
        super().__init__()
        self.error = error
        self.num_tries = 0

    def write(self, text):
        self.num_tries += 1
        raise self.error


@pytest.mark.parametrize("error", [BrokenPipeError(), OSError(28, "No space left"), ValueError("closed file")])
def test_a_reader_who_leaves_does_not_stop_the_search(error):
    page = Gone(error)
    with Terminal(stream=Talk(page)) as talk:
        for event in EVENTS:
            talk(event)
    assert page.num_tries == 1
