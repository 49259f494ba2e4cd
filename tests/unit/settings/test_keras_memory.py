"""Settings of a GPU below Keras, on stand-ins for the engines: how they are put in force and read back."""

from __future__ import annotations

import os
import sys
import types
from dataclasses import replace
from typing import Any

import pytest

from autotune.errors import SearchSpaceError
from autotune.model.keras_facts import DataKind
from autotune.settings import BY_NAME, Settings, engine_memory_fraction, variables_of
from autotune.space.derive import derive_space
from tests.unit.facts import cpu_machine, gpu_machine, keras_script_facts, search_spec

MIB = 1 << 20
OF_A_GPU = ("tf_memory_growth", "tf_gpu_allocator", "engine_memory_fraction", "xla_flags", "tf_device_prefetch")
VALUES = {
    "tf_memory_growth": "true", "tf_gpu_allocator": "cuda_malloc_async", "engine_memory_fraction": "0.5",
    "xla_flags": "latency_hiding", "tf_device_prefetch": "true",
}  # fmt: skip


class TensorFlow:
    """TensorFlow's configuration of one GPU, and of datasets."""

    def __init__(self) -> None:
        self.grows, self.limits = False, list[Any]()
        self.config = types.SimpleNamespace(
            list_physical_devices=lambda kind: ["GPU"] if kind == "GPU" else [],
            experimental=types.SimpleNamespace(set_memory_growth=self._grow, get_memory_growth=lambda _: self.grows),
            LogicalDeviceConfiguration=lambda memory_limit: types.SimpleNamespace(memory_limit=memory_limit),
            set_logical_device_configuration=lambda _, limits: self.limits.extend(limits),
            get_logical_device_configuration=lambda _: self.limits,
        )
        self.data = types.SimpleNamespace(experimental=types.SimpleNamespace(prefetch_to_device=lambda device: device))

    def _grow(self, _: Any, value: bool) -> None:
        self.grows = value


class Dataset:
    """A tf.data dataset."""

    element_spec = None

    def with_options(self, options: Any) -> Dataset:
        changed = Dataset()
        changed.options = options  # type: ignore[attr-defined]
        return changed

    def prefetch(self, _: Any) -> Dataset:
        return Dataset()

    def apply(self, device: str) -> Dataset:
        copied = Dataset()
        copied.device = device  # type: ignore[attr-defined]
        return copied


@pytest.fixture
def tensorflow(monkeypatch: pytest.MonkeyPatch) -> TensorFlow:
    module = TensorFlow()
    monkeypatch.setitem(sys.modules, "tensorflow", module)  # type: ignore[arg-type]
    keras = types.SimpleNamespace(backend=types.SimpleNamespace(backend=lambda: "tensorflow"))
    monkeypatch.setitem(sys.modules, "keras", keras)  # type: ignore[arg-type]
    monkeypatch.setattr(engine_memory_fraction, "total_bytes", lambda: 80_000 * MIB)
    return module


def seams(name: str) -> Any:
    return BY_NAME[name].keras


def test_growth_and_limit_of_the_memory_are_in_force_in_tensorflow(tensorflow: TensorFlow) -> None:
    assert (seams("tf_memory_growth").read(None, {}), seams("engine_memory_fraction").read(None, {})) == (False, 1.0)
    seams("tf_memory_growth").at_import(True)
    seams("engine_memory_fraction").at_import(0.3)
    assert tensorflow.grows and tensorflow.limits[0].memory_limit == 24_000
    assert (seams("tf_memory_growth").read(None, {}), seams("engine_memory_fraction").read(None, {})) == (True, 0.3)


def test_a_dataset_ends_with_the_copy_to_the_gpu(tensorflow: TensorFlow) -> None:
    fit: dict[str, Any] = {"x": Dataset()}
    assert seams("tf_device_prefetch").read(None, fit) is False
    seams("tf_device_prefetch").at_fit(True, fit)
    assert fit["x"].device == "/GPU:0" and seams("tf_device_prefetch").read(None, fit) is True


def test_a_machine_with_a_gpu_that_the_engine_does_not_see_has_no_share(tensorflow: TensorFlow) -> None:
    tensorflow.config.list_physical_devices = lambda _: []
    assert seams("engine_memory_fraction").read(None, {}) is None
    assert seams("tf_memory_growth").read(None, {}) is False


@pytest.mark.usefixtures("tensorflow")
@pytest.mark.parametrize(
    ("cuda", "share"),
    [
        (types.SimpleNamespace(is_available=lambda: True), None),
        (types.SimpleNamespace(is_available=lambda: False, get_per_process_memory_fraction=None), None),
        (types.SimpleNamespace(is_available=lambda: True, get_per_process_memory_fraction=lambda: 0.3), 0.3),
    ],
    ids=["an older torch", "a CPU build", "torch 2.8"],
)
def test_the_share_of_torch_is_read_where_torch_tells_it(
    monkeypatch: pytest.MonkeyPatch, cuda: Any, share: float | None
) -> None:
    sys.modules["keras"].backend.backend = lambda: "torch"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=cuda))  # type: ignore[arg-type]
    assert seams("engine_memory_fraction").read(None, {}) == share


def test_a_gpu_in_use_is_not_asked_to_stay_as_it_is(tensorflow: TensorFlow) -> None:
    def refuse(*_: Any) -> None:
        raise RuntimeError("Physical devices cannot be modified after being initialized")

    tensorflow.config.experimental.set_memory_growth = refuse
    tensorflow.config.set_logical_device_configuration = refuse
    seams("tf_memory_growth").at_import(False)
    seams("engine_memory_fraction").at_import(1.0)


def test_a_dataset_keeps_both_marks_of_batches_built_and_copied_ahead(tensorflow: TensorFlow) -> None:
    tensorflow.data.AUTOTUNE = -1
    fit: dict[str, Any] = {"x": Dataset()}
    for name in ("tf_data_prefetch", "tf_device_prefetch"):
        seams(name).at_fit(True, fit)
    assert [seams(name).read(None, fit) for name in ("tf_data_prefetch", "tf_device_prefetch")] == [True, True]


@pytest.mark.usefixtures("tensorflow")
def test_options_of_the_user_give_way_to_the_values_that_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    own = {
        "XLA_FLAGS": "--other --xla_gpu_enable_latency_hiding_scheduler=true",
        "TF_GPU_ALLOCATOR": "cuda_malloc_async",
    }
    on_tensorflow = Settings(keras_backend="tensorflow")  # type: ignore[arg-type]
    for value, given in (("default", "--other"), ("no_triton_gemm", "--other --xla_gpu_enable_triton_gemm=false")):
        variables = variables_of(replace(on_tensorflow, xla_flags=value), own)  # type: ignore[arg-type]
        assert (variables["XLA_FLAGS"], variables["TF_GPU_ALLOCATOR"]) == (given, "")
        for name, text in variables.items():
            monkeypatch.setenv(name, text)
        assert (seams("xla_flags").read(None, {}), seams("tf_gpu_allocator").read(None, {})) == (value, "default")


def test_a_config_of_torch_names_no_variable_of_another_engine() -> None:
    own = {"TF_FORCE_GPU_ALLOW_GROWTH": "true", "XLA_FLAGS": "--other", "TF_GPU_ALLOCATOR": "cuda_malloc_async"}
    assert not own.keys() & variables_of(Settings(), own).keys()


@pytest.mark.usefixtures("tensorflow")
def test_variables_of_the_engines_are_read_back_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = replace(
        Settings(keras_backend="tensorflow"),  # type: ignore[arg-type]
        tf_gpu_allocator="cuda_malloc_async", xla_flags="latency_hiding", engine_memory_fraction=0.5,
        tf_memory_growth=True,
    )  # type: ignore[arg-type]  # fmt: skip
    variables = variables_of(asked, {"XLA_FLAGS": "--of-the-user"})
    assert variables["XLA_FLAGS"] == "--of-the-user --xla_gpu_enable_latency_hiding_scheduler=true"
    assert variables["XLA_PYTHON_CLIENT_MEM_FRACTION"] == "0.5"
    assert (variables["TF_GPU_ALLOCATOR"], variables["TF_FORCE_GPU_ALLOW_GROWTH"]) == ("cuda_malloc_async", "true")
    for name in ("tf_gpu_allocator", "xla_flags"):
        assert seams(name).read(None, {}) == "default"
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert seams("tf_gpu_allocator").read(None, {}) == "cuda_malloc_async"
    assert seams("xla_flags").read(None, {}) == "latency_hiding"


def test_the_limit_of_jax_is_read_back_as_a_share(monkeypatch: pytest.MonkeyPatch, tensorflow: TensorFlow) -> None:
    sys.modules["keras"].backend.backend = lambda: "jax"  # type: ignore[attr-defined]
    device = types.SimpleNamespace(memory_stats=lambda: {"bytes_limit": 40_000 * MIB})
    monkeypatch.setitem(sys.modules, "jax", types.SimpleNamespace(local_devices=lambda: [device]))  # type: ignore[arg-type]
    assert seams("engine_memory_fraction").read(None, {}) is None  # The share that JAX takes by itself.
    monkeypatch.setenv("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.5")
    seams("engine_memory_fraction").at_import(0.125)
    assert os.environ["XLA_PYTHON_CLIENT_MEM_FRACTION"] == "0.125", "read by JAX at its first use of the device"
    assert seams("engine_memory_fraction").read(None, {}) == 0.5 and not tensorflow.limits


@pytest.mark.parametrize("name", OF_A_GPU)
def test_settings_of_a_gpu_are_tried_there_and_never_on_a_cpu(name: str) -> None:
    facts = keras_script_facts(data=DataKind.TF_DATA)
    spec = replace(
        search_spec(), ranges=((name, f"{BY_NAME[name].reading(BY_NAME[name].default)},{VALUES[name]}".lower()),)
    )
    on_gpu = derive_space(replace(facts, device="cuda"), gpu_machine(), spec)
    assert len(on_gpu.allowed[name]) == 2
    assert len(derive_space(facts, cpu_machine(), search_spec()).allowed[name]) == 1
    with pytest.raises(SearchSpaceError, match=name):
        derive_space(facts, cpu_machine(), spec)


def test_a_share_of_memory_is_left_alone_unless_asked_for() -> None:
    facts = replace(keras_script_facts(data=DataKind.TF_DATA), device="cuda")
    refused = dict(derive_space(facts, gpu_machine(), search_spec()).refused)
    for name in ("tf_memory_growth", "engine_memory_fraction", "tf_data_ram_budget"):
        assert "ask with --set" in refused[name]
