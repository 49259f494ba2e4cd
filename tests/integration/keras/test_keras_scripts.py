"""Unedited Keras scripts on the real engines, one process each: probe, trial, real training, refusals by name."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autotune.measure.block import Phase
from autotune.measure.window_stopping import WindowRule
from autotune.model.facts import ScriptFacts
from autotune.model.outcome import Outcome
from autotune.model.result import RankResult
from autotune.protocol.codec import encode, from_plain
from autotune.protocol.entry_points import INJECT
from autotune.protocol.environment import JOB, TRIAL, with_engine
from autotune.protocol.job import Mode, TrialJob
from autotune.protocol.paths import TrialPaths
from autotune.settings import variables_of
from autotune.space.script_settings import script_settings_of
from autotune.verdict.judge import Ending, judge, judge_probe
from tests.jobs import job_of

pytest.importorskip("keras")
pytestmark = pytest.mark.slow

QUICK = WindowRule(half_width_ratio=0.3, min_blocks=4, min_window_s=0.2, max_window_s=3.0, min_block_s=0.02)
MODEL = """
import numpy as np
import keras
from keras import layers

x, y = np.random.rand(960, 20).astype("float32"), np.random.rand(960, 1).astype("float32")
model = keras.Sequential([keras.Input((20,)), layers.Dense(32, activation="relu"), layers.Dense(1)])
model.compile("sgd", "mse")
"""
ARRAYS = MODEL + "model.fit(x, y, batch_size=32, epochs=2, verbose=0, validation_split=0.1)\n"
BATCHES = MODEL + "while True:\n    model.train_on_batch(x[:16], y[:16])\n"
TF_DATA = (
    MODEL + "import tensorflow as tf\n"
    "data = tf.data.Dataset.from_tensor_slices((x, y)).batch(32)\n"
    "model.fit(data, epochs=2, verbose=0)\n"
)
SLOW_MAP = TF_DATA.replace(
    ".batch(32)", ".batch(32).map(lambda a, b: (a + 0 * tf.reduce_sum(tf.linalg.inv(tf.random.normal((300, 300)))), b))"
)
PY_DATASET = MODEL + textwrap.dedent("""
    class Data(keras.utils.PyDataset):
        def __len__(self):
            return 3000  # Keras 3.15 hangs now and then where workers see hundreds of epochs within seconds.

        def __getitem__(self, index):
            begin = 32 * (index % 30)
            return x[begin : begin + 32], y[begin : begin + 32]

    model.fit(Data(), epochs=2, verbose=0)
    """)
TAPE = """
import tensorflow as tf

weight = tf.Variable(1.0)
for _ in range(20):
    with tf.GradientTape() as tape:
        loss = weight * weight
    weight.assign_sub(0.1 * tape.gradient(loss, weight))
"""
OWN_STEPS = """
import autotune
import tensorflow as tf

weight = tf.Variable(1.0)
while True:
    with autotune.step(8):
        with tf.GradientTape() as tape:
            loss = weight * weight
        weight.assign_sub(0.1 * tape.gradient(loss, weight))
"""
PAIRS = [(engine, text) for engine in ("tensorflow", "jax", "torch") for text in ("arrays", "batches")]
SCRIPTS = {"arrays": ARRAYS, "batches": BATCHES}


class Place:
    """A folder for one script, run as the runner would run it, without a sandbox."""

    def __init__(self, folder: Path, text: str, engine: str) -> None:
        if importlib.util.find_spec(engine) is None:
            pytest.skip(f"{engine} is not installed")
        self.folder, self.engine, self._num = folder, engine, 0
        self.script = folder / "train.py"
        self.script.write_text(text)

    def run(self, job: TrialJob, limit_s: float = 240.0) -> tuple[RankResult, subprocess.CompletedProcess[str]]:
        self._num += 1
        paths = TrialPaths(self.folder / f"trial-{self._num}")
        paths.job.parent.mkdir(parents=True)
        paths.job.write_text(encode(job))
        environment = {**os.environ, "PYTHONPATH": INJECT, "KERAS_BACKEND": self.engine, **dict(job.environment)}
        environment |= {TRIAL: str(paths.job.parent), "AUTOTUNE_SEED": "0", "TF_CPP_MIN_LOG_LEVEL": "3"}
        done = self._execute(environment, limit_s)
        assert paths.result(0).exists(), f"exit {done.returncode} {done.stderr[-2000:]}"
        return from_plain(RankResult, json.loads(paths.result(0).read_text())), done

    def train(self, job: TrialJob, limit_s: float = 240.0) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTHONPATH": INJECT, "KERAS_BACKEND": self.engine, **dict(job.environment)}
        assert job.facts is not None
        job = replace(job, facts=replace(job.facts, imports=()))  # as a tuned config has them
        return self._execute({**environment, JOB: encode(job)}, limit_s)

    def _execute(self, environment: dict[str, str], limit_s: float) -> subprocess.CompletedProcess[str]:
        environment.pop("PYTEST_CURRENT_TEST", None)
        command = [sys.executable, str(self.script)]
        return subprocess.run(
            command, env=environment, cwd=self.folder, capture_output=True, text=True, timeout=limit_s, check=False
        )

    def probe(self) -> ScriptFacts:
        result, done = self.run(job(Mode.PROBE, None))
        assert result.facts is not None, done.stderr
        return result.facts


def job(mode: Mode, facts: ScriptFacts | None, **changes: Any) -> TrialJob:
    own = script_settings_of(facts) if facts is not None else None
    settings = replace(own, **changes) if own is not None else None
    variables = with_engine(variables_of(settings, {}, own)) if settings is not None else {}
    return job_of(
        mode=mode,
        settings=settings,
        script_settings=own,
        facts=facts,
        window=QUICK,
        environment=tuple(variables.items()),
        command=("python", "train.py"),
        cwd="/",
        cap_bytes=1 << 40,
        start_limit_s=100.0,
        total_limit_s=200.0,
    )


def assert_trained(asked: TrialJob, result: RankResult, done: subprocess.CompletedProcess[str]) -> None:
    verdict = judge(asked, Ending(exit_code=done.returncode, signal=None), [result])
    assert verdict.outcome is Outcome.OK, f"{verdict} {done.stderr[-2000:]}"
    assert verdict.measurement is not None and verdict.measurement.samples_per_second > 0


@pytest.mark.parametrize(("engine", "data"), PAIRS)
def test_an_unedited_script_is_measured_on_every_engine(tmp_path: Path, engine: str, data: str) -> None:
    place = Place(tmp_path, SCRIPTS[data], engine)
    facts = place.probe()
    assert facts.keras is not None and facts.keras.engine == engine
    assert facts.keras.data == data and facts.loader is not None
    assert facts.loader.batch_size == (32 if data == "arrays" else 16)
    asked = job(Mode.TRIAL, facts)
    result, done = place.run(asked)
    assert_trained(asked, result, done)
    window = [block for block in result.blocks if block.phase is Phase.WINDOW]
    size = facts.loader.batch_size
    assert all(block.num_samples == pytest.approx(size * block.num_micro_batches, rel=0.1) for block in window)


@pytest.mark.parametrize(("text", "num_batches"), [(TF_DATA, 30), (PY_DATASET, 3000)], ids=["tf.data", "PyDataset"])
def test_a_probe_knows_the_batches_that_a_compiled_step_reads_by_itself(
    tmp_path: Path, text: str, num_batches: int
) -> None:
    facts = Place(tmp_path, text, "tensorflow").probe()
    assert facts.loader is not None
    assert (facts.loader.batch_size, facts.loader.num_batches) == (32, num_batches)
    assert facts.loader.batch_bytes == 32 * 21 * 4


def test_a_trial_on_tensorflow_imports_no_torch(tmp_path: Path) -> None:
    text = ARRAYS.replace("model.fit(", "import sys\nprint('torch' in sys.modules, flush=True)\nmodel.fit(")
    place = Place(tmp_path, text, "tensorflow")
    _, done = place.run(job(Mode.TRIAL, place.probe()))
    assert done.stdout.splitlines()[0] == "False"


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        (ARRAYS, {"keras_backend": "jax"}),
        (
            ARRAYS.replace("import numpy", "import os\nos.environ['KERAS_BACKEND'] = 'tensorflow'\nimport numpy", 1),
            {"keras_backend": "jax"},
        ),
        (ARRAYS, {"jit_compile": "on"}),
        (ARRAYS, {"precision": "bf16"}),
        (ARRAYS, {"steps_per_execution": 4}),
        (ARRAYS, {"engine_threads": 1}),
        (ARRAYS, {"batch_size": 16, "grad_accum_steps": 2}),
        (TF_DATA, {"tf_data_threads": 1, "tf_data_deterministic": False, "tf_data_prefetch": True}),
        (TF_DATA, {"tf_data_autotune": False}),
        (TF_DATA, {"tf_data_ram_budget": 256, "tf_data_cpu_budget": 1}),
        (PY_DATASET, {"dataset_workers": 2, "dataset_queue": 5}),
        (PY_DATASET, {"dataset_workers": 2, "dataset_multiprocessing": True}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, dict) else None,
)
def test_a_setting_is_in_force_in_the_trial(tmp_path: Path, text: str, changes: dict[str, Any]) -> None:
    place = Place(tmp_path, text, "tensorflow")
    asked = job(Mode.TRIAL, place.probe(), **changes)
    result, done = place.run(asked)
    assert {name: result.observed.get(name) for name in changes} == changes, done.stderr[-2000:]
    assert_trained(asked, result, done)


def test_real_training_takes_the_settings_and_ends_by_itself(tmp_path: Path) -> None:
    place = Place(tmp_path, ARRAYS + "print('done')\n", "tensorflow")
    done = place.train(job(Mode.RUN, place.probe(), steps_per_execution=2, precision="bf16"))
    assert done.returncode == 0 and done.stdout.endswith("done\n"), done.stderr
    assert "autotune: in force: precision bf16, steps_per_execution 2" in done.stderr


def test_a_counted_run_reports_the_rate_of_real_training(tmp_path: Path) -> None:
    place = Place(tmp_path, ARRAYS.replace("epochs=2", "epochs=5000"), "tensorflow")
    asked = job(Mode.RUN, place.probe(), steps_per_execution=2)
    result, done = place.run(asked)
    assert_trained(asked, result, done)
    window = [block for block in result.blocks if block.phase is Phase.WINDOW]
    assert all(block.num_samples == pytest.approx(32 * block.num_micro_batches, rel=0.1) for block in window)


def test_a_diagnosis_names_the_slowest_stage_of_a_tf_data_dataset(tmp_path: Path) -> None:
    place = Place(tmp_path, SLOW_MAP, "tensorflow")
    asked = replace(job(Mode.TRIAL, place.probe()), diagnoses=True)
    result, done = place.run(asked)
    assert_trained(asked, result, done)
    assert result.observation is not None
    stages = result.observation.dataset_stages
    assert [stages[0].name, stages[0].parallelism] == ["Map", 1], stages
    assert stages[0].busy_s > 5 * sum(stage.busy_s for stage in stages[1:])


def test_a_loop_that_nothing_counts_is_refused_with_the_line_to_add(tmp_path: Path) -> None:
    place = Place(tmp_path, TAPE, "tensorflow")
    asked = job(Mode.PROBE, None)
    result, done = place.run(asked)
    reason = judge_probe(asked, Ending(exit_code=done.returncode, signal=None), [result])
    assert "tf.GradientTape" in reason and "with autotune.step(num_samples): ..." in reason


def test_a_loop_with_the_line_is_measured(tmp_path: Path) -> None:
    place = Place(tmp_path, OWN_STEPS, "tensorflow")
    facts = place.probe()
    assert facts.framework == "loop"
    asked = job(Mode.TRIAL, facts)
    result, done = place.run(asked)
    assert_trained(asked, result, done)
