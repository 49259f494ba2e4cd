"""The live view, drawn by rich at fixed widths."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from autotune.model.events import (
    FinalFinished,
    FinalsStarted,
    FinalStarted,
    LargerBatchStarted,
    MemoryShareStarted,
    ProbeFinished,
    ProbeStarted,
    TrialProgress,
    TrialStarted,
)
from autotune.model.gauges import Gauges, TrialPhase
from autotune.report.live_view import PHASE_WORDS, RUNS_IN_FINALS, LiveView, frame, left_s
from autotune.study.budget import NUM_FINALISTS, NUM_ROUNDS
from autotune.units import GIB

from .examples import NATURAL, PROBED, STARTED, TUNED, finished, measured

GAUGES = Gauges(
    phase=TrialPhase.WINDOW,
    num_steps=40,
    samples_per_second=2311.0,
    data_wait_fraction=0.03,
    cpu_fraction=0.71,
    device_utilization=0.94,
    memory_bytes=12 * GIB,
)
RUNNING = (
    STARTED,
    PROBED,
    finished(0, NATURAL, measured(1000.0), is_best=True),
    finished(1, TUNED, measured(2410.0), is_best=True),
    TrialStarted(number=2, settings=replace(TUNED, num_workers=6), stage="workers"),
    TrialProgress(gauges=GAUGES),
)
AT_80_COLUMNS = """

train.py on NVIDIA H200, 8 usable cores, torch 2.13.0
cap 16.0 GiB  [###-----------------]  2 of 40 trials  2 min 10 s of 15 min 0 s
ends within 10 min 0 s
yours 1,000 [990, 1,010] samples/s
best 2,410 [2,386, 2,434] samples/s 2.41x (trial 1)
trial 2  measuring, 5.0 s  about 2,311 samples/s
num_workers=6 persistent_workers=true precision=bf16
GPU [########]  94%  CPU [######--]  71%  data wait [--------]   3%
memory [######--] 12.0 GiB
Ctrl-C ends after this trial; what is finished is saved
"""


def view_after(*events, at_s=125.0):
    view = LiveView(began_at=0.0)
    for event in events:
        view = view.after(event, at_s)
    return view


def drawn(view, now=130.0, width=80):
    console = Console(file=io.StringIO(), record=True, width=width, force_terminal=False)
    console.print(frame(view, now, width))
    return console.export_text()


def test_a_frame_says_machine_cap_budget_baseline_best_what_runs_and_the_gauges():
    assert "\n" + drawn(view_after(*RUNNING)) == AT_80_COLUMNS


@pytest.mark.parametrize("width", [20, 60, 80, 100, 160])
def test_no_line_of_a_frame_is_longer_than_the_terminal(width):
    lines = drawn(view_after(*RUNNING), width=width).splitlines()
    assert max(map(len, lines)) <= width
    assert all(line.isascii() for line in lines)


def test_on_a_wide_terminal_a_frame_is_six_lines_under_a_blank_one():
    assert len(drawn(view_after(*RUNNING), width=160).splitlines()) == 7


def test_before_anything_is_known_it_starts():
    assert drawn(LiveView(began_at=0.0)) == "starting\n"


def test_a_probe_without_a_search_is_shown_by_itself():
    looked = TrialProgress(gauges=Gauges(phase=TrialPhase.LEARNING, memory_bytes=2 * GIB))
    assert drawn(view_after(ProbeStarted(), looked)).splitlines() == [
        "",
        "probe: your script as it is  learning the script, 5.0 s",
        "memory 2.0 GiB",
        "Ctrl-C ends after this trial; what is finished is saved",
    ]


def test_gauges_that_nobody_reads_are_not_drawn():
    text = drawn(view_after(*RUNNING[:-1], TrialProgress(gauges=Gauges(phase=TrialPhase.STARTING))))
    assert "GPU" not in text and "memory" not in text
    assert "trial 2  starting, 5.0 s" in text


def test_rates_of_a_script_whose_samples_nobody_counts_are_of_steps():
    in_steps = [replace(e, samples_unit="steps") if isinstance(e, ProbeFinished) else e for e in RUNNING]
    text = drawn(view_after(*in_steps), width=160)
    assert "samples" not in text and text.count(" steps/s") == drawn(view_after(*RUNNING), width=160).count(
        " samples/s"
    )


def test_a_stop_that_was_asked_for_is_shown():
    view = view_after(*RUNNING)
    assert "Ctrl-C ends after" in frame(view, 130.0, 80).plain
    assert "Ctrl-C once more" in frame(view, 130.0, 80, num_stops=1).plain
    assert frame(view, 130.0, 80, num_stops=9).plain.endswith("Ending what is running")


def test_every_phase_has_words():
    assert set(PHASE_WORDS) == set(TrialPhase)


def test_the_clock_of_a_phase_starts_anew_with_it_and_not_with_every_look():
    view = view_after(*RUNNING, at_s=10.0).after(TrialProgress(gauges=replace(GAUGES, num_steps=50)), 20.0)
    assert "measuring, 15 s" in drawn(view, 25.0)
    view = view.after(TrialProgress(gauges=Gauges(phase=TrialPhase.ENDING)), 24.0)
    assert "ending, 1.0 s" in drawn(view, 25.0)


def test_the_baseline_is_no_best_of_its_own():
    text = drawn(view_after(*RUNNING[:3]))
    assert "yours 1,000" in text and "best" not in text


def test_what_the_next_minute_may_gain_is_shown_until_the_finals():
    hopeful = TrialStarted(number=3, settings=TUNED, stage="sampled", gain_ratio_per_minute=0.031)
    view = view_after(*RUNNING, hopeful)
    assert "next minute +3.1%" in drawn(view)
    assert "next minute" not in drawn(view_after(*RUNNING, hopeful, FinalsStarted(numbers=(2, 0), num_rounds=3)))
    assert "next minute" not in drawn(view_after(*RUNNING))


def test_between_two_runs_nothing_is_said_to_run():
    assert "trial 2" not in drawn(view_after(*RUNNING, finished(2, TUNED, measured(2000.0))))


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (ProbeStarted(), "probe: your script as it is  starting"),
        (TrialStarted(number=0, settings=NATURAL, stage="baseline"), "trial 0  starting, 5.0 s  your settings"),
        (LargerBatchStarted(factor=4), "a look at 4x the batch  starting"),
        (LargerBatchStarted(factor=1), "a second look at the batch as it is  starting"),
        (MemoryShareStarted(limit_bytes=12 << 30), "the winner in 12.0 GiB  starting"),
        (FinalStarted(round=0, number=7), "final 1 of 3: trial 7  starting"),
    ],
)
def test_what_runs_is_named(event, words):
    finals = FinalsStarted(numbers=(0, 7), num_rounds=3)
    assert words in drawn(view_after(STARTED, PROBED, finals, event))


def test_without_a_trial_the_budget_bounds_the_time_that_is_left():
    assert left_s(LiveView(began_at=0.0), 5.0) is None
    assert left_s(view_after(STARTED), 100.0) == 800.0
    assert left_s(view_after(replace(STARTED, spent_s=300.0)), 100.0) == 500.0


def test_with_few_trials_to_go_the_search_ends_before_its_budget():
    started = replace(STARTED, max_trials=4, budget_s=9000.0)
    view = view_after(started, PROBED, finished(0, NATURAL, measured(1000.0), is_best=True))
    assert left_s(view, 130.0) == (3 + RUNS_IN_FINALS) * 12.0
    assert left_s(view, 8990.0) == 10.0


def test_as_many_runs_of_finals_are_expected_as_the_budget_plans():
    assert RUNS_IN_FINALS == NUM_ROUNDS * (1 + NUM_FINALISTS)


def test_in_the_finals_what_is_left_is_counted_in_runs():
    view = view_after(*RUNNING, FinalsStarted(numbers=(0, 1), num_rounds=3))
    assert left_s(view, 899.0) == 6 * 12.0
    view = view.after(FinalFinished(round=0, number=1, result=measured(2400.0)), 899.0)
    assert left_s(view, 899.0) == 5 * 12.0
    assert "[####################]" in drawn(view)
    for _ in range(7):
        view = view.after(FinalFinished(round=3, number=1, result=measured(2400.0)), 899.0)
    assert left_s(view, 899.0) == 0.0


def test_without_a_limit_on_trials_none_is_shown():
    assert "2 trials  2 min" in drawn(view_after(replace(STARTED, max_trials=None), *RUNNING[1:]))
