"""The page of results, and the runner's reading of a search."""

from __future__ import annotations

from typing import Any

import pytest

from tests.street.rows import SCRIPTS
from tests.street.runner import Searched, changed, left_out, outcome, rates
from tests.street.table import keras_line, shortened, with_keras_rows, written
from tests.street.watch import Watched


def row(script: str, **values: Any) -> dict[str, Any]:
    return {"script": script, "device": "gpu", "kind": "timm", "repository": "a/b", "outcome": "tuned", **values}


def tuned(script: str, claimed: float, real: float, low: float, high: float) -> dict[str, Any]:
    return row(script, claimed=claimed, claimed_low=low, claimed_high=high, real=real, trials=5, search_s=181.0)


def test_a_tuned_row_has_its_claim_and_its_real_ratio() -> None:
    page = written([tuned("one", 2.0, 1.98, 1.9, 2.1) | {"expert": 2.15, "settings": {"num_workers": 8}}])
    assert "| a/b `one` | gpu | tuned | 5 | 181 | 2.00x [1.90, 2.10] | 1.98x | 2.15x | num_workers=8 |" in page


def test_the_figures_are_over_all_claims_of_a_device() -> None:
    page = written(
        [tuned("one", 2.0, 1.98, 1.9, 2.1), tuned("two", 1.5, 1.0, 1.4, 1.6), tuned("three", 1.1, 1.1, 1.0, 1.2)]
    )
    assert "On a GPU: 3 claims of a gain; median |error| against the real run 1.0%, largest 50.0%" in page
    assert "within the interval in 2 of 3" in page


def test_a_failure_a_hang_and_a_missed_gain_are_named() -> None:
    page = written([
        row("broken", outcome="failed", exit_code=4, stderr_tail=["the loader is not known"]),
        row("stuck", outcome="hung"),
        row("missed", outcome="no gain", expert=3.35),
        row("right", outcome="no gain", expert=1.01),
        row("games", outcome="refused", stderr_tail=["reinforcement learning"]),
    ])  # fmt: skip
    assert "nor refused by name: 3: broken (gpu), missed (gpu), stuck (gpu)." in page
    assert "| failed, exit 4 |" in page and "the loader is not known" in page


def test_a_config_that_slows_the_real_run_is_named() -> None:
    assert "(below 0.98): 1: slow (gpu)." in written([tuned("slow", 1.2, 0.9, 1.1, 1.3)])


def test_reasons_of_the_device_alone_are_not_in_the_page() -> None:
    reasons = [
        "left out compile: on a CPU it builds for minutes",
        "left out batch_size: the model has BatchNorm layers",
    ]
    page = written([row("one", outcome="no gain", left_out=reasons)])
    assert "BatchNorm" in page and "for minutes" not in page


def test_rows_of_keras_take_the_place_of_those_in_its_page() -> None:
    def trial(engine: str, rate: float | None, outcome: str = "ok") -> dict[str, Any]:
        return {"outcome": outcome, "samples_per_second": rate, "settings": {"keras_backend": engine}}

    trials = [trial("tensorflow", 100.0), trial("jax", 300.0), trial("jax", 310.0), trial("torch", None, "crashed")]
    line = tuned("one", 3.0, 2.9, 2.5, 3.5) | {"settings": {"keras_backend": "jax"}, "trial_outcomes": trials}
    page = with_keras_rows("before\n<!-- rows of Keras -->\nold\n<!-- /rows of Keras -->\nafter\n", [line])
    assert "| `one` | tuned | 3.00x [2.50, 3.50] | 2.90x | keras_backend=jax | jax 3.00x, torch crashed |" in page
    assert "old" not in page and page.startswith("before\n") and page.endswith("after\n")


def test_the_record_keeps_what_the_pages_show_and_not_what_a_script_printed() -> None:
    rows = [
        tuned("one", 2.0, 1.98, 1.9, 2.1) | {"settings": {"num_workers": 8}, "left_out": ["left out fp16: a closure"]},
        row(
            "broken",
            outcome="failed",
            exit_code=4,
            stderr_tail=["before", "", "", "", "the loader is not known"],
        ),
    ]
    engines = [
        {"settings": {"keras_backend": "tensorflow"}, "outcome": "ok", "samples_per_second": 10.0, "reason": "x"},
        {"settings": {"keras_backend": "jax"}, "outcome": "crashed", "samples_per_second": None},
    ]
    of_keras = row("two", trial_outcomes=engines)
    short = [shortened(one) for one in rows]
    assert written(short) == written(rows) and keras_line(shortened(of_keras)) == keras_line(of_keras)
    assert "before" not in str(short) and [shortened(one) for one in short] == short


def test_a_pipe_in_a_reason_does_not_end_the_cell() -> None:
    assert "a \\| b" in written([row("one", outcome="not run", why="a | b")])


def searched(exit_code: int | None, status: str | None, said: str = "") -> Searched:
    events = [{"event": "result", "status": status}] if status else []
    return Searched(exit_code=exit_code, wall_s=1.0, events=events, said=said)


@pytest.mark.parametrize(
    ("exit_code", "status", "expected"),
    [
        (0, "improved", "tuned"),
        (0, "no_gain", "no gain"),
        (0, "too_short", "too short"),
        (4, None, "failed"),
        (None, None, "hung"),
    ],
)
def test_the_outcome_is_what_the_search_said(exit_code: int | None, status: str | None, expected: str) -> None:
    assert outcome(searched(exit_code, status), SCRIPTS[0]) == expected


def test_a_refusal_by_name_is_no_failure() -> None:
    player = next(script for script in SCRIPTS if script.kind == "reinforcement learning")
    assert outcome(searched(2, None, "This is reinforcement learning."), player) == "refused"
    assert outcome(searched(2, None, "Something went wrong."), player) == "failed"


def test_settings_that_changed_are_those_that_differ() -> None:
    assert changed({"num_workers": 0, "precision": "fp32"}, {"num_workers": 4, "precision": "fp32"}) == {
        "num_workers": 4
    }


def test_what_was_left_out_is_kept_with_its_reason_over_broken_lines() -> None:
    said = (
        "  left out compile: it builds\n          for minutes\n  note: channels_last left out: RuntimeError at a.py:5\n"
    )
    assert left_out(searched(0, "no_gain", said)) == [
        "left out compile: it builds for minutes", "channels_last left out: RuntimeError at a.py:5",
    ]  # fmt: skip


def watched(rate: float | None, epoch_length: float | None = None) -> Watched:
    return Watched(
        rate=rate, first_s=1.0, wall_s=2.0, exit_code=None, tail=("last words",), epoch_length=epoch_length
    )  # fmt: skip


def test_a_run_in_batches_of_half_the_size_counts_half_of_each() -> None:
    """Its lines say 1/100 where the script's say 1/50: a claim of 1.74x looked like 3.31x in the real run."""
    line = rates({"script": [watched(100.0, 50.0)], "run": [watched(330.0, 100.0)], "expert": [watched(90.0)]})
    assert line["real"] == pytest.approx(1.65) and line["rates"]["run"] == [pytest.approx(165.0)]
    assert line["expert"] == pytest.approx(0.9)


def test_ratios_are_paired_by_rounds_and_a_silent_contender_keeps_its_words() -> None:
    line = rates({
        "script": [watched(100.0), watched(110.0)], "run": [watched(200.0), watched(None)], "expert": [watched(None)],
    })  # fmt: skip
    assert line["real"] == pytest.approx(2.0) and line["real_rounds"] == [pytest.approx(2.0)]
    assert "expert" not in line and line["silent"] == {"expert": ["last words"]}
