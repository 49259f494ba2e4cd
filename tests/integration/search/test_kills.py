"""SIGKILL at random moments of short searches: no finished trial lost, none repeated, nothing left."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from typing import Any

import pytest

from autotune.measure.window_stopping import SCREENING_HALF_WIDTH_RATIO

from .pretend import TABLE, Project

NUM_KILLS = int(os.environ.get("AUTOTUNE_TEST_KILLS", "100"))
KILLS_PER_STUDY = 5


@pytest.mark.slow
def test_kills_at_random_moments_lose_and_repeat_no_finished_trial(project: Project) -> None:
    generator = random.Random(11)
    num_kills, num_studies, lost, repeated = 0, 0, [], []
    whole_s = time_of_whole_search(project)
    while num_kills < NUM_KILLS:
        study, num_studies = f"study-{num_studies}", num_studies + 1
        for _ in range(KILLS_PER_STUDY):
            finished, position = project.trials(study), len(project.runs())
            is_killed = kill_one(project, study, generator.uniform(0.0, whole_s))
            num_kills += is_killed
            assert project.processes_left() == []
            now = project.trials(study)
            lost += [(study, number) for number, trial in finished.items() if now.get(number) != trial]
            repeated += run_again(project, finished, position)
            if not is_killed:
                break
        finished, position = project.trials(study), len(project.runs())
        code, output, talk = project.run(*words(project, study))
        assert code == 0, talk
        assert json.loads(output)["trials"]["total"] == 3
        repeated += run_again(project, finished, position)
        assert project.workspaces() == []
    row = (f"SIGKILL at {num_kills} random moments", "exit code -9", len(project.processes()))
    TABLE.append((*row, project.num_files_changed(), len(lost)))
    assert (lost, repeated, project.num_files_changed()) == ([], [], 0)


def time_of_whole_search(project: Project) -> float:
    """Seconds, here and now: within them every part of a search is hit."""
    began = time.monotonic()
    code, _, talk = project.run(*project.search("whole"))
    took_s = time.monotonic() - began
    assert code == 0, talk
    assert sum(what == "begins" and mode == "trial" for what, mode, *_ in project.runs()) >= 3
    return took_s


def kill_one(project: Project, study: str, delay_s: float) -> bool:
    """Whether a search was still at work after so long, and so was killed."""
    process = project.start(*words(project, study))
    try:
        _, talk = process.communicate(timeout=delay_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate(timeout=60)
        return process.returncode == -signal.SIGKILL
    assert process.returncode == 0, talk
    return False


def words(project: Project, study: str) -> tuple[str, ...]:
    """A search where there is no such study yet, otherwise its resume."""
    return ("resume", study, "--json") if project.has_study(study) else project.search(study)


def run_again(project: Project, finished: dict[int, Any], position: int) -> list[str]:
    """Trials that were finished, and whose settings were tried once more since; finals do not count."""
    settings = {json.dumps(settings.to_dict()) for settings, *_ in finished.values()}
    return [
        json.dumps(tried)
        for what, mode, tried, half_width_ratio in project.runs()[position:]
        if (what, mode, half_width_ratio) == ("begins", "trial", SCREENING_HALF_WIDTH_RATIO)
        and json.dumps(tried) in settings
    ]
