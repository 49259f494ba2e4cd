"""The seams at `compile`, `fit` and `train_on_batch`, on a stand-in for Keras."""

from __future__ import annotations

from typing import Any

import numpy
import pytest

from autotune.trial.keras.fit_seams import FitSeams, has_batch_callbacks
from tests.unit.trial.keras import fake_keras

X, Y = numpy.zeros((64, 3)), numpy.zeros(64)


@pytest.fixture
def seams(monkeypatch: pytest.MonkeyPatch) -> FitSeams:
    fake_keras.install(monkeypatch)
    made = FitSeams()
    made.install()
    return made


def model_of(**arguments: Any) -> Any:
    import keras

    model = keras.Model()
    model.compile("adam", **arguments)
    return model


def test_a_session_changes_the_arguments_of_compile_and_knows_the_scripts_own(seams: FitSeams) -> None:
    seams.before_compile = lambda arguments: arguments.update(jit_compile=True, steps_per_execution=4)
    model = model_of(jit_compile=False)
    assert (model.jit_compile, model.steps_per_execution) == (True, 4)
    assert seams.compile_arguments == {"optimizer": "adam", "jit_compile": False}


def test_every_call_of_fit_and_of_train_on_batch_goes_through_the_session(seams: FitSeams) -> None:
    calls = []

    def train(model: Any, function: Any, args: tuple[Any, ...]) -> Any:
        calls.append(model)
        return function(*args)

    seams.train = train
    model = model_of()
    model.fit(X, Y, batch_size=16)
    model.train_on_batch(X[:8], Y[:8])
    assert calls == [model] * 5
    assert len(model.batches) == 5


def test_a_model_compiled_again_is_counted_once_per_call(seams: FitSeams) -> None:
    calls = []
    seams.train = lambda model, function, args: (calls.append(1), function(*args))[1]
    model = model_of()
    model.fit(X, Y, batch_size=32)
    model.compile("sgd")
    model.fit(X, Y, batch_size=32)
    assert len(calls) == 4


def test_a_session_hears_of_an_epochs_end_before_the_validation_and_before_the_scripts_callbacks(
    seams: FitSeams,
) -> None:
    heard: list[str] = []
    seams.epoch_begins = lambda: heard.append("begins")
    seams.epoch_ends = lambda: heard.append("ends")

    class Own(fake_keras.Callback):
        def on_test_begin(self, logs: Any = None) -> None:
            heard.append("own")

    model_of().fit(X, Y, epochs=1, validation_data=(X, Y), callbacks=[Own()])
    assert heard == ["begins", "ends", "own", "ends"]


def test_the_scripts_list_of_callbacks_stays_as_it_was(seams: FitSeams) -> None:
    own = [fake_keras.Callback()]
    model_of().fit(X, Y, callbacks=own)
    assert len(own) == 1


def test_only_callbacks_that_act_on_batches_count_as_such(seams: FitSeams) -> None:
    class OnEpochs(fake_keras.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None: ...

    class OnBatches(fake_keras.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None: ...

    assert not has_batch_callbacks(None)
    assert not has_batch_callbacks([OnEpochs()])
    assert has_batch_callbacks([OnEpochs(), OnBatches()])
    assert has_batch_callbacks(fake_keras.CallbackList([OnBatches()]))


def test_keras_own_checkpoints_count_only_if_they_save_between_epochs(seams: FitSeams) -> None:
    def checkpoint(save_freq: Any) -> Any:
        kind = type("ModelCheckpoint", (fake_keras.Callback,), {"on_train_batch_end": lambda *_: None})
        kind.__module__ = "keras.src.callbacks"
        made = kind()
        made.save_freq = save_freq
        return made

    assert not has_batch_callbacks([checkpoint("epoch")])
    assert has_batch_callbacks([checkpoint(100)])


def test_a_fit_within_a_fit_is_a_part_of_the_outer_one(seams: FitSeams) -> None:
    fits = []
    seams.before_fit = lambda model, arguments: fits.append(arguments)
    outer, inner = model_of(), model_of()

    class Nested(fake_keras.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            inner.fit(X, Y)

    outer.fit(X, Y, callbacks=[Nested()])
    assert len(fits) == 1
