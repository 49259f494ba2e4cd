import io
from dataclasses import replace

import pytest
from rich.text import Text

from autotune.model.events import Notice, ProbeFinished, ProbeStarted, TrialStarted
from autotune.report.lines import header
from autotune.report.streams import BestEffortStream, say
from autotune.report.terminal_text import Terminal, render

from ...screen import Screen
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
    with Terminal(stream=BestEffortStream(page), **options) as talk:
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
    assert said(*EVENTS).count(header("samples")) == 1
    assert said(STARTED, *EVENTS[3:]).count(header("samples")) == 1


def test_rates_of_a_script_whose_samples_nobody_counts_are_of_steps():
    in_steps = [replace(e, samples_unit="steps") if isinstance(e, ProbeFinished) else e for e in EVENTS]
    assert said(*in_steps).count(header("steps")) == 1 and "samples" not in said(*in_steps)


def test_a_person_sees_a_live_view_that_is_gone_at_the_end():
    page = Page(is_terminal=True)
    with Terminal(stream=BestEffortStream(page)) as talk:
        for event in EVENTS:
            talk(event)
        view = Screen().feed(page.getvalue()).plain
        assert view[-1] == "Ctrl-C ends after this trial; what is finished is saved"
        assert any("best 2,000" in line for line in view), "what is printed never stands above an older view"
    assert page.getvalue().endswith("\x1b[2K")


def test_the_view_is_drawn_once_a_second_at_most():
    assert Terminal(stream=BestEffortStream(Page(is_terminal=True)))._live.refresh_per_second <= 1.0


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_on_a_terminal_no_line_is_longer_than_it(monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    page = Page(is_terminal=True)
    with Terminal(stream=BestEffortStream(page)) as talk:
        for event in (*EVENTS, Notice(message="word " * 100)):
            talk(event)
    lines = Screen().feed(page.getvalue()).plain
    assert max(map(len, lines)) <= columns
    assert " ".join(" ".join(lines).split()).endswith("precision=bf16 <- best so far warning:" + " word" * 100)


def test_a_row_that_is_too_long_is_broken_before_its_settings(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    page = Page(is_terminal=True)
    with Terminal(stream=BestEffortStream(page)) as talk:
        for event in EVENTS:
            talk(event)
    assert Screen().feed(page.getvalue()).plain[-5:] == [
        "  left out split: BatchNorm would see smaller batches",
        "trial  outcome        samples/s   ratio      memory  settings",
        "    0  ok                 1,000   1.00x    10.0 GiB  your settings",
        "    1  ok                 2,000   2.00x    10.0 GiB",
        "       num_workers=4 persistent_workers=true precision=bf16  <- best so far",
    ]


def test_between_two_runs_the_screen_holds_the_lines_and_the_view_below_them(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    page = Page(is_terminal=True)
    with Terminal(stream=BestEffortStream(page)) as talk:
        for event in EVENTS:
            talk(event)
        lines = Screen().feed(page.getvalue()).plain
    assert lines[-8].endswith("<- best so far")
    assert lines[-7:-5] == ["", "train.py on NVIDIA H200, 8 usable cores, torch 2.13.0"]
    assert lines[-1] == "Ctrl-C ends after this trial; what is finished is saved"


def test_the_cursor_is_not_left_hidden_by_a_tuner_that_is_killed():
    page = Page(is_terminal=True)
    with Terminal(stream=BestEffortStream(page)):
        assert page.getvalue().rindex("\x1b[?25h") > page.getvalue().rindex("\x1b[?25l")


@pytest.mark.parametrize(("variable", "value"), [("TERM", "dumb")])
def test_a_terminal_that_cannot_move_its_cursor_gets_plain_lines(monkeypatch, variable, value):
    monkeypatch.setenv(variable, value)
    page = Page(is_terminal=True)
    with Terminal(stream=BestEffortStream(page)) as talk:
        talk(STARTED)
    assert "\r" not in page.getvalue() and "[2K" not in page.getvalue()


def test_a_summary_is_folded_on_a_terminal_but_for_what_is_there_to_be_pasted(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    text = (
        Text().append("  " + "word " * 30 + "\n", style="yellow").append("    autotune run " + "x" * 90 + "\n\nend\n")
    )
    lines = render(text, is_terminal=True).split("\n")
    assert len(lines) == 6 and lines[-3:] == ["", "end", ""]
    assert all("\x1b[33m" in line for line in lines[:2])
    assert "    autotune run " + "x" * 90 in lines[2]
    assert render(text, is_terminal=False) == text.plain


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
    with Terminal(stream=BestEffortStream(page)) as talk:
        for event in EVENTS:
            talk(event)
    assert page.num_tries == 1


def test_what_a_script_wrote_gives_a_terminal_no_orders(capsys):
    say("It failed at '\x1b]0;owned\x07file'.\n\tSee there.")
    assert capsys.readouterr().err == "It failed at ']0;ownedfile'.\n\tSee there.\n"
