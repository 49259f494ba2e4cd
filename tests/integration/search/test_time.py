"""A limit is a limit, also within one step that never ends: probe and trials end with the time of the search."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.integration.search.test_search_command import autotune, finished

SCRIPT = Path(__file__).with_name("never_returns.py")


@pytest.fixture
def project(tmp_path):
    shutil.copy(SCRIPT, tmp_path / "train.py")
    (tmp_path / "home").mkdir()
    return tmp_path


def test_a_probe_whose_first_step_never_ends_ends_with_the_time_and_says_what_to_do(project):
    code, _, talk = finished(autotune(project, "search", "train.py", "--time", "15s", "--", "0"))
    assert code == 4
    assert "The probe was not through in all the time of the search, 15 s:" in " ".join(talk.split())
    assert "Give the search more --time" in talk
    assert "Traceback" not in talk


def test_a_baseline_whose_step_never_ends_ends_with_the_time_and_says_what_to_do(project):
    code, output, talk = finished(autotune(project, "search", "train.py", "--time", "40s", "--json", "--", "20"))
    assert code == 0, talk
    result = json.loads(output)
    assert (result["status"], result["trials"]["total"]) == ("too_short", 0)
    assert "before the script's own settings were measured once. About --time" in result["reason"]
