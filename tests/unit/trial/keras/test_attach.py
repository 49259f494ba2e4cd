"""A process of a search attaches to Keras, or to `autotune.load` before Keras; scripts of torch are left alone."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.measure.window_stopping import WindowRule
from autotune.model.facts import ScriptFacts
from autotune.protocol.codec import encode
from autotune.protocol.entry_points import INJECT
from autotune.protocol.environment import KERAS_BACKEND, TRIAL, with_engine
from autotune.protocol.job import Mode
from autotune.protocol.paths import TrialPaths
from autotune.space.script_settings import script_settings_of
from tests.jobs import job_of
from tests.unit.facts import keras_script_facts, script_facts

ROOT = Path(__file__).parents[4]
FAKE = """
import os
class Model:
    def compile(self): ...
    def fit(self): ...
    def make_train_function(self): ...
class backend:
    name = os.environ.get("KERAS_BACKEND")
    backend = staticmethod(lambda: backend.name)
class utils:
    set_random_seed = staticmethod(lambda seed: print("seed", seed))
"""


def run(folder: Path, program: str, facts: ScriptFacts, **changes: object) -> str:
    """Standard output of a program in the process of a trial, beside a stand-in for Keras."""
    (folder / "keras.py").write_text(FAKE)
    paths = TrialPaths(folder / "trial")
    paths.job.parent.mkdir()
    own = script_settings_of(facts)
    job = job_of(
        mode=Mode.TRIAL,
        settings=replace(own, **changes),  # type: ignore[arg-type]
        script_settings=own,
        facts=facts,
        window=WindowRule(half_width_ratio=0.5),
        command=("python", "train.py"),
        cwd="/",
        cap_bytes=1 << 30,
        start_limit_s=10.0,
        total_limit_s=20.0,
    )
    paths.job.write_text(encode(job))
    environment = {**os.environ, TRIAL: str(paths.job.parent), "AUTOTUNE_SEED": "7"}
    environment["PYTHONPATH"] = os.pathsep.join([INJECT, str(folder), str(ROOT)])
    environment |= with_engine({"KERAS_BACKEND": str(changes["keras_backend"])} if "keras_backend" in changes else {})
    command = [sys.executable, "-c", program]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


def test_the_engine_asked_for_wins_over_the_scripts_own_variable(tmp_path: Path) -> None:
    program = "import os\nos.environ['KERAS_BACKEND'] = 'torch'\nimport keras, sys\n"
    program += "print(keras.backend.backend(), hasattr(keras.Model.fit, '__wrapped__'), 'torch' in sys.modules)"
    assert run(tmp_path, program, keras_script_facts(), keras_backend="jax") == "seed 7\njax True False\n"


def test_the_scripts_own_engine_stays_in_a_trial_that_does_not_ask_for_another(tmp_path: Path) -> None:
    program = "import os\nos.environ['KERAS_BACKEND'] = 'torch'\nimport keras\nprint(keras.backend.backend())"
    assert run(tmp_path, program, keras_script_facts()) == "seed 7\ntorch\n"


def test_a_script_that_loads_its_config_before_keras_gets_the_trials_settings(tmp_path: Path) -> None:
    program = "import autotune\ncfg = autotune.load('none.yaml')\nprint(cfg.settings.steps_per_execution)"
    assert run(tmp_path, program, keras_script_facts(), steps_per_execution=4) == "4\n"


def test_keras_in_a_script_of_torch_is_left_alone(tmp_path: Path) -> None:
    program = "import keras\nprint(hasattr(keras.Model.fit, '__wrapped__'))"
    assert run(tmp_path, program, script_facts()).splitlines()[-1] == "False"


@pytest.mark.parametrize("variables", [{}, {"OMP_NUM_THREADS": "2"}])
def test_only_an_engine_needs_a_variable_of_ours(variables: dict[str, str]) -> None:
    assert with_engine(variables) == variables
    assert with_engine({"KERAS_BACKEND": "jax"}) == {"KERAS_BACKEND": "jax", KERAS_BACKEND: "jax"}
