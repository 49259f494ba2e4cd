"""Whatever the script writes, the user's files stay byte for byte, and the script sees what it wrote."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from autotune.model.job import Mode
from autotune.model.outcome import Outcome
from tests.integration.runner.ground import Ground


def test_every_way_to_write_leaves_the_users_files_alone(ground: Ground) -> None:
    result = ground.run("writes.py")
    assert result.outcome is Outcome.OK, f"{result.reason} {result.log_tail}"
    assert result.escaped == ()
    ground.check("writes everywhere", result)


@pytest.mark.parametrize("seeds", [(0, 40), pytest.param((40, 400), marks=pytest.mark.slow)])
def test_redirected_calls_do_what_they_do_elsewhere(ground: Ground, seeds: tuple[int, int]) -> None:
    first, last = map(str, seeds)
    prepare = [sys.executable, "twins.py", "prepare", first, last]
    subprocess.run(prepare, cwd=ground.user, check=True, env={**os.environ, "AUTOTUNE_TRIAL": "/"})
    ground.cover()
    result = ground.run("twins.py", first, last, total_limit_s=200, start_limit_s=200)
    assert result.outcome is Outcome.OK, f"{result.reason} {result.log_tail}"
    assert result.escaped == ()
    ground.check(f"random writes {first} to {last}", result)
