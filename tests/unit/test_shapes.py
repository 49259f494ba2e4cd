"""The matrix of shapes: what its command for somebody else's script takes, and what its verdicts allow."""

from __future__ import annotations

import pytest

from autotune.model.outcome import Outcome
from autotune.model.result import TrialResult
from autotune.settings import Settings
from autotune.space.search_space import SearchSpace
from tests.integration.shapes.__main__ import options_of
from tests.integration.shapes.ground import QUICK, Seen, quick
from tests.integration.shapes.shape import SAMPLES, Shape
from tests.integration.shapes.verdicts import PASSED, verdicts
from tests.unit.facts import script_facts
from tests.unit.runner.samples import block, job, rank

SCRIPT = ("folder", "main.py", "--window", "7")
JOB = job()


def test_a_window_and_a_limit_are_taken_for_trials_of_slow_steps() -> None:
    options = options_of(["--window", "20", "--limit", "150", *SCRIPT])
    trial = quick(JOB, window_s=options.window, limit_s=options.limit)
    assert (trial.request.window.max_window_s, trial.start_limit_s, trial.total_limit_s) == (20, 100, 150)
    assert options.arguments == ["--window", "7"]  # the script's own


def test_without_them_a_trial_keeps_to_those_of_the_matrix() -> None:
    options = options_of(SCRIPT)
    trial = quick(JOB, window_s=options.window, limit_s=options.limit)
    assert trial == quick(JOB)
    assert trial.request.window == QUICK


@pytest.mark.parametrize(("window", "limit"), [("90", "90"), ("0", "90")])
def test_a_window_that_the_limit_would_cut_off_is_refused(
    window: str, limit: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        options_of(["--window", window, "--limit", limit, *SCRIPT])
    assert f"a window of {window} s does not fit into a limit of {limit} s" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("num_read_ahead", "num_samples", "verdict"),
    [
        (0, 320, PASSED),
        (0, 321, "8.03 samples per step, not 8.0"),
        (3, 340, PASSED),  # three batches of 4, and one step of 8
        (3, 341, "8.53 samples per step, not 8.0"),
        (3, 268, PASSED),
        (3, 267, "6.67 samples per step, not 8.0"),
    ],
)
def test_samples_per_step_are_exact_up_to_what_the_scripts_own_queue_holds(
    num_read_ahead: int, num_samples: float, verdict: str
) -> None:
    shape = Shape(name="any", sources={}, num_read_ahead=num_read_ahead)
    ranks = (rank(blocks=(block(num_steps=40, num_samples=num_samples),)),)
    seen = Seen(
        facts=script_facts(),
        space=SearchSpace(
            script_settings=Settings(batch_size=8), domains={}, allowed={}, refused=(), device_is_cpu=True
        ),
        asked=Settings(batch_size=4, grad_accum_steps=2),
        trial=TrialResult(outcome=Outcome.INVALID, ranks=ranks),
    )
    assert verdicts(shape, seen)[SAMPLES] == verdict
