"""The command that tries one script of somebody else's: what it takes, and what its trial then keeps to."""

from __future__ import annotations

import pytest

from autotune.measure.stopping import WindowRule
from autotune.model.job import Mode, TrialJob
from autotune.settings import Settings
from tests.integration.shapes.__main__ import options_of
from tests.integration.shapes.ground import QUICK, quick
from tests.unit.facts import script_facts

SCRIPT = ("folder", "main.py", "--window", "7")
JOB = TrialJob(
    mode=Mode.TRIAL,
    command=("python", "main.py"),
    cwd="",
    settings=Settings(),
    natural=None,
    facts=script_facts(),
    cap_bytes=1,
    window=WindowRule(half_width_ratio=0.05),
    start_limit_s=1,
    total_limit_s=1,
)


def test_a_window_and_a_limit_are_taken_for_trials_of_slow_steps() -> None:
    options = options_of(["--window", "20", "--limit", "150", *SCRIPT])
    job = quick(JOB, window_s=options.window, limit_s=options.limit)
    assert (job.window.max_window_s, job.start_limit_s, job.total_limit_s) == (20, 100, 150)
    assert options.arguments == ["--window", "7"]  # the script's own


def test_without_them_a_trial_keeps_to_those_of_the_matrix() -> None:
    options = options_of(SCRIPT)
    job = quick(JOB, window_s=options.window, limit_s=options.limit)
    assert job == quick(JOB)
    assert job.window == QUICK


@pytest.mark.parametrize(("window", "limit"), [("90", "90"), ("0", "90")])
def test_a_window_that_the_limit_would_cut_off_is_refused(
    window: str, limit: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        options_of(["--window", window, "--limit", limit, *SCRIPT])
    assert f"a window of {window} s does not fit into a limit of {limit} s" in capsys.readouterr().err
