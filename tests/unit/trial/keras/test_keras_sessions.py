"""Probe, trial and real training on a stand-in for Keras, in this process."""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy
import pytest

from autotune.measure.block import Phase
from autotune.measure.window_stopping import WindowRule
from autotune.model.facts import ScriptFacts
from autotune.model.keras_facts import DataKind
from autotune.model.result import RankResult, RankStatus
from autotune.protocol.codec import from_plain
from autotune.protocol.job import Mode, TrialJob
from autotune.protocol.paths import TrialPaths
from autotune.settings import Settings
from autotune.space.script_settings import script_settings_of
from autotune.trial.keras.keras_probe import KerasProbe
from autotune.trial.keras.keras_run import KerasRun
from autotune.trial.keras.keras_trial import KerasTrial
from autotune.trial.meter.durations import PartTimes
from autotune.trial.report import rank_report
from autotune.trial.start import active_session
from autotune.verdict.in_force import missed_settings
from tests.jobs import job_of
from tests.unit.facts import keras_script_facts
from tests.unit.trial.keras import fake_keras

X, Y = numpy.zeros((640, 3)), numpy.zeros(640)
QUICK = WindowRule(half_width_ratio=0.5, min_blocks=4, min_window_s=0.02, max_window_s=0.3, min_block_s=0.002)
FACTS = replace(
    keras_script_facts(),
    step_s=0.001,
)


class ProcessEnd(BaseException):
    """In place of the end of the process."""


@pytest.fixture(autouse=True)
def process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process whose end is an exception, with a stand-in for Keras."""

    def end(code: int = 0) -> None:
        raise ProcessEnd(code)

    monkeypatch.setattr(rank_report, "end_process", end)
    monkeypatch.setattr(rank_report.EndWatch, "install", lambda self: None)
    monkeypatch.setattr(active_session, "session", None)
    fake_keras.install(monkeypatch)
    yield


def job(mode: Mode, facts: ScriptFacts | None = FACTS, **changes: Any) -> TrialJob:
    own = script_settings_of(facts) if facts is not None else None
    return job_of(
        mode=mode,
        settings=replace(own, **changes) if own is not None else None,
        script_settings=own,
        facts=facts,
        window=QUICK,
        command=("python", "train.py"),
        cwd="/",
        cap_bytes=1 << 30,
        start_limit_s=10.0,
        total_limit_s=20.0,
    )


def paths_in(folder: Path) -> TrialPaths:
    return TrialPaths(folder)


def report(folder: Path) -> RankResult:
    text = paths_in(folder).result(0).read_text()
    return from_plain(RankResult, json.loads(text))


def train(**arguments: Any) -> Any:
    """A Keras script: 640 samples in batches of 64, for an epoch."""
    import keras

    model = keras.Model()
    model.compile("adam", "mse", **arguments)
    model.fit(X, Y, batch_size=64, epochs=1)
    return model


def trial(folder: Path, mode: Mode = Mode.TRIAL, **changes: Any) -> KerasTrial:
    times = PartTimes(asked_at=0.0, ready_at=0.0, attached_at=0.0)
    session = KerasTrial(job(mode, **changes), paths_in(folder), times)
    session.install()
    session.imported("keras")
    return session


def probe(folder: Path) -> KerasProbe:
    session = KerasProbe(job(Mode.PROBE, facts=None), paths_in(folder), 0.0)
    session.install()
    session.imported("keras")
    return session


def test_a_probe_learns_of_engine_data_and_own_settings(tmp_path: Path) -> None:
    probe(tmp_path)
    with pytest.raises(ProcessEnd):
        train(steps_per_execution=1, jit_compile=False)
    facts = report(tmp_path).facts
    assert facts is not None and facts.keras is not None and facts.loader is not None
    assert facts.framework == "keras"
    assert (facts.keras.data, facts.keras.jit_compile, facts.keras.trains_on_batch) == ("arrays", "off", False)
    assert (facts.loader.batch_size, facts.loader.num_batches, facts.loader.num_samples) == (64, 10, 640)
    assert (facts.loss_reduction, facts.first_loss, facts.num_steps) == ("mean", 1.0, 8)
    own = script_settings_of(facts)
    assert (own.batch_size, own.jit_compile, own.precision) == (64, "off", "fp32")


@pytest.mark.parametrize("is_first", [True, False], ids=["first session", "after another"])
def test_a_probe_knows_the_size_of_a_batch_whoever_came_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_first: bool
) -> None:
    session = probe(tmp_path)
    monkeypatch.setattr(active_session, "session", session if is_first else None)
    with pytest.raises(ProcessEnd):
        while True:
            train(steps_per_execution=2)
    facts = report(tmp_path).facts
    assert facts is not None and facts.loader is not None
    assert facts.loader.batch_bytes == 64 * (3 * 8 + 8)
    assert (facts.leading_size, session.feed.steps_per_call) == (64, 2)


def test_a_probe_of_single_batches_says_so(tmp_path: Path) -> None:
    import keras

    probe(tmp_path)
    model = keras.Model()
    model.compile("adam", "mse")
    with pytest.raises(ProcessEnd):
        while True:
            model.train_on_batch(X[:16], Y[:16])
    facts = report(tmp_path).facts
    assert facts is not None and facts.keras is not None
    assert facts.keras.trains_on_batch and facts.leading_size == 16


def test_the_probe_of_torch_stands_down_before_keras_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class OfTorch:
        is_down = False

        def stand_down(self) -> None:
            self.is_down = True

    of_torch = OfTorch()
    monkeypatch.setattr(active_session, "session", of_torch)
    probe(tmp_path)
    with pytest.raises(ProcessEnd):
        train()
    assert of_torch.is_down


def test_each_fit_counts_batches_of_its_own_size(tmp_path: Path) -> None:
    """A compiled step reads the batches out of Python's sight: their size is the argument's."""
    import keras

    session = trial(tmp_path, Mode.RUN)
    model = keras.Model()
    model.compile("adam", "mse")
    sizes = []
    for size in (16, 64):
        model.fit(X, Y, batch_size=size)
        sizes.append(session.feed.batch_samples)
    assert sizes == [16, 64]


class Given:
    """A weight of JAX, gone once it was given away."""

    shape = (2, 2)
    is_gone = False

    def __init__(self, value: float) -> None:
        self.value = value

    def __array__(self, *_: Any, **__: Any) -> Any:
        if self.is_gone:
            raise RuntimeError("Array has been deleted with shape=float32[2,2].")
        return numpy.full(self.shape, self.value)


@pytest.mark.parametrize("gain", [1.0, 0.0], ids=["trains", "does not train"])
def test_weights_that_the_validation_takes_over_are_read_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gain: float
) -> None:
    """On JAX the test function takes the weights over, and the window may end before the next step."""
    keras = fake_keras.install(monkeypatch, "jax")
    monkeypatch.setitem(sys.modules, "jax", types.SimpleNamespace(default_backend=lambda: "cpu"))  # type: ignore[arg-type]
    weights = [Given(0.0)]

    def make_train_function(model: Any) -> None:
        def train_step(_: Any, iterator: Iterator[Any]) -> Any:
            next(iterator)
            weights[:] = [Given(weights[0].value + gain)]
            return {"loss": 1.0}, (list(weights),)

        model.train_function = lambda iterator: train_step(None, iterator)

    class Validates(fake_keras.Callback):
        def on_test_begin(self, logs: Any = None) -> None:
            weights[0].is_gone = True

    monkeypatch.setattr(keras.Model, "make_train_function", make_train_function)
    trial(tmp_path)
    model = keras.Model()
    model.compile("adam", "mse")
    with pytest.raises(ProcessEnd):
        model.fit(X[:64], Y[:64], batch_size=64, callbacks=[Validates()], validation_data=(X, Y))
    result = report(tmp_path)
    assert result.status in (RankStatus.MEASURED, RankStatus.RACED_OUT)
    assert result.has_changed_parameters is bool(gain)


def test_a_trial_measures_batches_in_blocks_without_an_end_of_the_script(tmp_path: Path) -> None:
    trial(tmp_path)
    with pytest.raises(ProcessEnd):
        train()
    result = report(tmp_path)
    assert result.status in (RankStatus.MEASURED, RankStatus.RACED_OUT)
    window = [block for block in result.blocks if block.phase is Phase.WINDOW]
    assert len(window) >= QUICK.min_blocks
    assert all(block.num_samples == 64 * block.num_micro_batches for block in window)
    assert result.compute_samples_per_second is not None
    assert result.has_changed_parameters and result.is_loss_finite


def test_settings_asked_for_are_in_force_and_read_back(tmp_path: Path) -> None:
    asked = {"precision": "bf16", "jit_compile": "on", "batch_size": 32, "grad_accum_steps": 2}
    session = trial(tmp_path, **asked)
    with pytest.raises(ProcessEnd):
        train()
    observed = report(tmp_path).observed
    assert {name: observed[name] for name in asked} == asked
    assert missed_settings(session._job, observed) == {}
    blocks = [block for block in report(tmp_path).blocks if block.phase is Phase.WINDOW]
    assert all(block.num_samples == 64 * block.num_steps for block in blocks)


def test_an_epoch_of_a_number_of_steps_gets_as_many_more_micro_batches(tmp_path: Path) -> None:
    """Keras makes 10 batches of 64 of 640 samples; in halves an epoch is 20."""
    import keras

    run = KerasRun(job(Mode.RUN, batch_size=32, grad_accum_steps=2))
    run.install()
    run.imported("keras")
    model = keras.Model()
    model.compile("adam", "mse")
    model.fit(X, Y, steps_per_epoch=10)
    assert (run.fit["batch_size"], run.fit["steps_per_epoch"]) == (32, 20)


def test_a_setting_that_the_script_takes_back_is_missed_by_name(tmp_path: Path) -> None:
    import keras

    session = trial(tmp_path, jit_compile="on")
    model = keras.Model()
    model.compile("adam", "mse")
    model.jit_compile = False
    with pytest.raises(ProcessEnd):
        model.fit(X, Y, batch_size=64)
    assert missed_settings(session._job, report(tmp_path).observed) == {"jit_compile": ("on", "off")}


def test_a_counted_run_keeps_epochs_and_real_batches(tmp_path: Path) -> None:
    trial(tmp_path, Mode.RUN)
    with pytest.raises(ProcessEnd):
        while True:
            train()
    result = report(tmp_path)
    assert result.status is RankStatus.MEASURED
    assert {block.phase for block in result.blocks} <= {Phase.WARMUP, Phase.RAMP, Phase.WINDOW}


@pytest.mark.parametrize(("mode", "changes", "size"), [(Mode.RUN, {}, 64), (Mode.RUN, {"batch_size": 16}, 16)])
def test_real_batches_that_a_compiled_step_reads_count_with_all_their_samples(
    tmp_path: Path, mode: Mode, changes: dict[str, Any], size: int
) -> None:
    """No batch is seen in Python, so the size is the probe's or the setting's."""
    session = trial(tmp_path, mode, steps_per_execution=4, **changes)
    session.feed.given((types.SimpleNamespace(element_spec="spec"),))
    assert (session.feed.taken.num_batches, session.feed.taken.num_samples) == (4, 4.0 * size)


def test_real_training_names_what_is_in_force(capsys: pytest.CaptureFixture[str]) -> None:
    run = KerasRun(job(Mode.RUN, steps_per_execution=2))
    run.install()
    run.imported("keras")
    model = train()
    assert model.steps_per_execution == 2
    assert capsys.readouterr().err == "autotune: in force: steps_per_execution 2\n"


def test_real_training_ends_before_it_trains_on_other_settings(capsys: pytest.CaptureFixture[str]) -> None:
    import keras

    run = KerasRun(job(Mode.RUN, jit_compile="on"))
    run.install()
    run.imported("keras")
    model = keras.Model()
    model.compile("adam", "mse")
    model.jit_compile = False
    with pytest.raises(ProcessEnd) as ending:
        model.fit(X, Y)
    assert ending.value.args == (2,)
    words = capsys.readouterr().err
    assert "jit_compile off, not on" in words and "cfg.compile_kwargs(optimizer)" in words


def test_a_loop_of_the_scripts_own_is_probed_and_measured_by_its_steps(tmp_path: Path) -> None:
    session = KerasProbe(job(Mode.PROBE, facts=None), paths_in(tmp_path), 0.0)
    session.install()
    with pytest.raises(ProcessEnd):
        while True:
            with session.own_step(32):
                pass
    facts = report(tmp_path).facts
    assert facts is not None and facts.framework == "loop" and facts.leading_size == 32
    measured = KerasTrial(job(Mode.TRIAL, facts), paths_in(tmp_path), PartTimes(asked_at=0, ready_at=0, attached_at=0))
    measured.install()
    with pytest.raises(ProcessEnd):
        while True:
            with measured.own_step(32):
                pass
    window = [block for block in report(tmp_path).blocks if block.phase is Phase.WINDOW]
    assert window and all(block.num_samples == 32 * block.num_steps for block in window)


def test_a_scripts_own_settings_are_given_to_autotune_load_as_none(tmp_path: Path) -> None:
    assert trial(tmp_path).settings is None
    changed = trial(tmp_path, jit_compile="off").settings
    assert isinstance(changed, Settings) and changed.jit_compile == "off"


def test_a_diagnosis_tells_data_wait_from_compute(tmp_path: Path) -> None:
    import keras

    asked = replace(job(Mode.TRIAL), diagnoses=True)
    session = KerasTrial(asked, paths_in(tmp_path), PartTimes(asked_at=0.0, ready_at=0.0, attached_at=0.0))
    session.install()
    session.imported("keras")

    model = keras.Model()
    model.compile("adam", "mse")
    with pytest.raises(ProcessEnd):
        model.fit(X, Y, batch_size=64)
    observation = report(tmp_path).observation
    assert observation is not None
    steps = observation.steps
    assert steps.num_steps > 0 and steps.forward_s > 0.0
    assert steps.data_wait_s + steps.forward_s <= steps.wall_s
    assert (steps.backward_s, steps.optimizer_s) == (0.0, 0.0)


@pytest.mark.parametrize("data", [DataKind.ARRAYS, DataKind.TF_DATA, DataKind.PY_DATASET])
def test_a_wait_inside_a_compiled_step_is_the_time_beyond_the_calls_on_the_one_batch(
    tmp_path: Path, data: DataKind
) -> None:
    """On TensorFlow a compiled step reads whatever data by itself."""
    session = trial(tmp_path)
    session._keras = replace(session._keras, data=data)
    session.feed.is_read_unseen = True

    class Phases:
        phase, uses_cached_batch = Phase.COMPUTE, True

    meter: Any = Phases()
    assert session._hidden_wait_s(meter, 0.02, 2) == 0.0
    meter.phase, meter.uses_cached_batch = Phase.WINDOW, False
    assert session._hidden_wait_s(meter, 0.05, 2) == pytest.approx(0.03)
    assert session._hidden_wait_s(meter, 0.01, 2) == 0.0
    assert session._hidden_wait_s(meter, 0.04, 2) == pytest.approx(0.01)
    session.feed.is_read_unseen = False
    assert session._hidden_wait_s(meter, 0.05, 2) == 0.0


@pytest.mark.parametrize(("workers", "can_cache"), [(1, True), (2, False)])
def test_every_batch_of_a_dataset_with_workers_is_taken(tmp_path: Path, workers: int, can_cache: bool) -> None:
    """Workers that wait for room in the queue would keep Keras waiting at the end of an epoch for ever."""
    session = trial(tmp_path)
    session.seams.depth = 1
    session.fit = {"x": types.SimpleNamespace(workers=workers, use_multiprocessing=False, max_queue_size=10)}
    assert session._can_cache is can_cache
    assert session._uses_cache() is can_cache
