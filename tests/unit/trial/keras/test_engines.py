"""What concerns the engines: fences, weights, refused loops, engines named in the script. No engine is needed."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import numpy
import pytest

from autotune.settings.fit_arrays import num_samples
from autotune.trial.keras import engines
from autotune.trial.keras.fenced_clock import FencedClock
from autotune.trial.keras.script_engines import engines_named, script_engines
from autotune.trial.keras.untrained import ESTIMATOR, SESSION, STRATEGY, TAPE, RawLoops


def test_a_mark_waits_for_the_call_before_the_last_so_that_one_stays_queued() -> None:
    waited: list[str] = []
    clock = FencedClock(waited.append)
    clock.mark()
    for logs in ("first", "second", "third"):
        clock.note(logs)
    clock.mark()
    assert waited == ["second"]
    clock.finish()
    assert waited == ["second", "third"]


def test_a_pause_is_no_part_of_the_time() -> None:
    clock = FencedClock(None)
    start = clock.mark()
    clock.leave_out(1000.0)
    assert clock.seconds(start, clock.mark()) < -999.0


def test_weights_are_compared_by_value() -> None:
    weight = types.SimpleNamespace(value=numpy.ones((2, 2)), shape=(2, 2))
    model = types.SimpleNamespace(trainable_variables=[weight])
    before = engines.small_weights("tensorflow", model, None)
    assert not engines.has_changed(before, engines.small_weights("tensorflow", model, None))
    weight.value = weight.value * 2
    assert engines.has_changed(before, engines.small_weights("tensorflow", model, None))
    assert engines.small_weights("jax", model, ([numpy.zeros(3)], []))[0].shape == (3,)


def test_samples_and_bytes_are_those_of_the_first_and_of_all_arrays() -> None:
    batch = ({"a": numpy.zeros((8, 2), "float32")}, None, numpy.zeros(8, "int64"))
    assert (num_samples(batch), engines.num_bytes(batch)) == (8, 8 * 2 * 4 + 8 * 8)
    assert num_samples(()) == 1


def test_bytes_of_a_tensor_of_tensorflow_follow_from_its_shape_and_type() -> None:
    tensor = types.SimpleNamespace(shape=(32, 20), dtype=types.SimpleNamespace(size=4))
    assert engines.num_bytes((tensor, types.SimpleNamespace(shape=(32,)))) == 32 * 20 * 4


def test_tensors_without_a_size_of_their_own_count_as_nothing() -> None:
    dtype = types.SimpleNamespace(size=4)
    ragged = types.SimpleNamespace(shape=(32, None), dtype=dtype)
    sparse = types.SimpleNamespace(shape=(32, 1_000_000), dtype=dtype, dense_shape=(32, 1_000_000))
    assert engines.num_bytes((ragged, sparse, types.SimpleNamespace(nbytes=None))) == 0


def test_engines_that_the_script_names_are_found_within_functions_too(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import keras\nfrom keras import layers\ndef f():\n    from tensorflow import data\n    import jax.numpy\n"
    )
    assert engines_named(str(script)) == {"tensorflow", "jax"}
    assert engines_named(str(tmp_path / "none.py")) == set()


def test_packages_and_the_standard_library_are_not_the_script(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for module in list(sys.modules.values()):
        if str(getattr(module, "__file__", "")).startswith(str(Path(__file__).parents[4])):
            monkeypatch.delitem(sys.modules, module.__name__, raising=False)
    package = tmp_path / "site-packages" / "their.py"
    package.parent.mkdir()
    package.write_text("import tensorflow\n")
    monkeypatch.setitem(sys.modules, "their", types.SimpleNamespace(__file__=str(package)))
    assert script_engines() == ()
    own = tmp_path / "own.py"
    own.write_text("import tensorflow\n")
    monkeypatch.setitem(sys.modules, "own", types.SimpleNamespace(__file__=str(own)))
    assert script_engines() == ("tensorflow",)


def fake_tensorflow(monkeypatch: pytest.MonkeyPatch) -> Any:
    class GradientTape:
        def gradient(self) -> None: ...

    class Session:
        def run(self) -> None: ...

    class MultiWorkerMirroredStrategy:
        def __init__(self) -> None: ...

    tf = types.SimpleNamespace(
        GradientTape=GradientTape,
        compat=types.SimpleNamespace(v1=types.SimpleNamespace(Session=Session)),
        distribute=types.SimpleNamespace(
            MultiWorkerMirroredStrategy=MultiWorkerMirroredStrategy, experimental=types.SimpleNamespace()
        ),
    )
    monkeypatch.setitem(sys.modules, "tensorflow", tf)
    return tf


def test_loops_that_no_seam_counts_are_named_with_the_line_to_add(monkeypatch: pytest.MonkeyPatch) -> None:
    tf = fake_tensorflow(monkeypatch)
    loops = RawLoops()
    loops.watch("tensorflow")
    assert loops.advice() == ""
    for _ in range(3):
        tf.GradientTape().gradient()
    assert loops.advice() == TAPE and "with autotune.step(num_samples): ..." in TAPE
    for _ in range(3):
        tf.compat.v1.Session().run()
    assert loops.advice() == SESSION
    tf.distribute.MultiWorkerMirroredStrategy()
    assert loops.advice() == STRATEGY
    monkeypatch.setitem(sys.modules, "tensorflow_estimator", types.ModuleType("tensorflow_estimator"))
    assert loops.advice() == ESTIMATOR


def test_loops_of_jax_count_by_one_transformation(monkeypatch: pytest.MonkeyPatch) -> None:
    jax = types.SimpleNamespace(grad=lambda f: f, value_and_grad=lambda f: f)
    monkeypatch.setitem(sys.modules, "jax", jax)
    loops = RawLoops()
    loops.watch("jax")
    jax.grad(len)
    assert "jax.grad" in loops.advice()
