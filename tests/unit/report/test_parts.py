"""The sentence on where the trials' seconds went."""

from __future__ import annotations

from autotune.model.outcome import Outcome
from autotune.model.result import TrialResult
from autotune.report.parts import parts_text, seconds_by_part


def trial(**durations_s: float) -> TrialResult:
    return TrialResult(outcome=Outcome.CRASHED, durations_s=durations_s)


def test_every_second_of_the_trials_has_one_part() -> None:
    results = [trial(server=3.0, start=1.0, warm_up=2.0, ramp=1.0, window=60.0, ending=0.5), trial(unreported=4.0)]
    parts = seconds_by_part(results)
    assert list(parts) == ["server", "start", "warm-up", "windows", "ending", "in trials without a report"]
    assert parts["warm-up"] == 3.0
    assert sum(parts.values()) == sum(sum(result.durations_s.values()) for result in results)


def test_the_sentence_says_what_was_measuring_and_names_the_rest() -> None:
    text = parts_text([trial(start=10.0, imports=20.0, warm_up=30.0, window=152.0, ending=38.0)])
    assert text == (
        "of 4 min 10 s, 3 min 2 s were spent measuring: "
        "start 10 s, imports 20 s, warm-up 30 s, windows 2 min 32 s, ending 38 s"
    )


def test_a_part_that_a_newer_version_names_is_counted_too() -> None:
    assert seconds_by_part([trial(start=1.0, prefetch=2.0)]) == {"start": 1.0, "prefetch": 2.0}


def test_nothing_is_said_of_a_search_without_trials() -> None:
    assert parts_text([]) == ""
