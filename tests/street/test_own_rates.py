"""The table of rates under a script's own settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.street.own_rates import measured, row
from tests.street.rows import SCRIPTS
from tests.street.runner import Plan


def test_a_row_has_the_scripts_extremes_and_the_ratios_of_the_means() -> None:
    turns = [{"script": 900.0, "trial": 1000.0, "final": 950.0}, {"script": 1100.0, "trial": 1100.0, "final": 950.0}]
    assert row("vae", turns) == "| vae | 1,000 [900, 1,100], 2 turns | 1.05 | 0.95 |"


def test_a_run_or_trial_without_a_rate_is_shown_as_such() -> None:
    assert row("vae", [{"script": 900.0, "trial": float("nan"), "final": 900.0}]).endswith("| nan | 1.00 |")


def test_a_script_with_a_launcher_is_refused_by_name(tmp_path: Path) -> None:
    script = next(one for one in SCRIPTS if "2gpu" in one.launcher)
    plan = Plan(checkouts=tmp_path, work=tmp_path)
    with pytest.raises(SystemExit, match=script.name):
        next(measured(script, "2gpu", plan, 1))
