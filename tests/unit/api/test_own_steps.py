"""`autotune.step`: counts in a search, and does nothing elsewhere."""

from __future__ import annotations

import subprocess
import sys

import pytest

import autotune
from autotune.errors import ConfigError


def test_a_step_outside_a_search_is_the_loops_own_affair(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AUTOTUNE_TRIAL", raising=False)
    with autotune.step(32):
        pass


@pytest.mark.parametrize("num_samples", [0, -1, float("nan")])
def test_a_step_without_samples_is_refused(num_samples: float) -> None:
    with pytest.raises(ConfigError, match="trains nothing"):
        autotune.step(num_samples)


def test_a_step_loads_neither_torch_nor_keras() -> None:
    program = "import sys, autotune\nwith autotune.step(1): pass\nprint(sorted({'torch', 'keras'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
