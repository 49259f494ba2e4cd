from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

import autotune
from autotune.api.fit import cuda_doubts
from autotune.emit.tuned_config import MemoryShares
from autotune.emit.writing import write_config
from autotune.errors import ConfigError
from autotune.settings import Group, OmpWaitPolicy, Settings
from autotune.settings.optimizer_form import OptimizerForm

from ..emit.example import FACTS, tuned_config
from .scripts import HERE, config_of, in_search


def test_a_loader_without_workers_gets_no_worker_arguments() -> None:
    cfg = config_of(Settings(num_workers=0, prefetch_factor=4, persistent_workers=True, batch_size=4))
    assert cfg.loader_kwargs() == {"num_workers": 0, "batch_size": 4}
    assert DataLoader(range(8), **cfg.loader_kwargs()).batch_size == 4  # type: ignore[arg-type]


def test_a_loader_with_workers_gets_them_all() -> None:
    cfg = config_of(Settings(num_workers=1, prefetch_factor=4, persistent_workers=True, batch_size=4))
    loader = DataLoader(range(8), shuffle=True, **cfg.loader_kwargs())  # type: ignore[arg-type]
    assert (loader.num_workers, loader.prefetch_factor, loader.persistent_workers) == (1, 4, True)
    assert cfg.in_force() == {**cfg.loader_kwargs(), "pin_memory": False}


@pytest.mark.parametrize("has_accelerator", [True, False])
def test_memory_is_pinned_only_for_an_accelerator(monkeypatch: pytest.MonkeyPatch, has_accelerator: bool) -> None:
    # Of an older torch, CUDA is asked.
    owner = getattr(torch, "accelerator", torch.cuda)
    monkeypatch.setattr(owner, "is_available", lambda: has_accelerator)
    cfg = config_of(Settings(pin_memory=True))
    assert cfg.loader_kwargs() == {"num_workers": 0} | ({"pin_memory": True} if has_accelerator else {})


def test_prepare_applies_threads_kernels_format_and_compilation(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[Any] = []
    monkeypatch.setattr(torch, "compile", lambda call: compiled.append(call) or call)
    monkeypatch.setenv("OMP_WAIT_POLICY", "PASSIVE")
    cfg = config_of(
        Settings(
            intra_op_threads=2,
            cudnn_benchmark=True,
            channels_last=True,
            compile=True,
            omp_wait_policy=OmpWaitPolicy.PASSIVE,
        )
    )
    model = torch.nn.Conv2d(3, 4, 3)
    names = set(model.state_dict())
    assert cfg.prepare(model) is model
    assert len(compiled) == 1
    assert set(model.state_dict()) == names
    assert torch.get_num_threads() == 2
    assert torch.backends.cudnn.benchmark is True
    assert model.weight.is_contiguous(memory_format=torch.channels_last)
    assert model(torch.randn(1, 3, 8, 8)).is_contiguous(memory_format=torch.channels_last)
    assert cfg.in_force() == {
        "intra_op_threads": 2,
        "matmul_precision": "highest",
        "sdpa_backend": "default",
        "activation_checkpointing": False,
        "activation_memory_budget": 1.0,
        "cudnn_benchmark": True,
        "cudnn_benchmark_limit": 10,
        "channels_last": True,
        "compile": True,
        "compile_mode": "default",
        "omp_wait_policy": "passive",
        "keep_freed_memory": False,
    }


def test_prepare_puts_the_format_on_a_model_with_a_to_of_its_own() -> None:
    class Task(torch.nn.Conv2d):
        def to(self, *args: Any, **kwargs: Any) -> Any:
            torch.empty(0).to(*args, **kwargs)
            return super().to(*args, **kwargs)

    model = config_of(Settings(channels_last=True)).prepare(Task(3, 4, 3))
    assert model.weight.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.filterwarnings("ignore:autotune.yaml does not exist")
def test_the_defaults_of_the_call_leave_alone_what_they_do_not_say() -> None:
    torch.set_num_threads(2)
    torch.backends.cudnn.benchmark = True
    cfg = autotune.load(channels_last=True)
    model = cfg.prepare(torch.nn.Conv2d(3, 4, 3))
    with cfg.autocast():
        pass
    assert torch.get_num_threads() == 2
    assert torch.backends.cudnn.benchmark is True
    assert model.weight.is_contiguous(memory_format=torch.channels_last)
    assert cfg.in_force() == {"channels_last": True}


def test_a_config_without_channels_last_undoes_what_the_script_did_itself() -> None:
    model = torch.nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    config_of(Settings(channels_last=False)).prepare(model)
    assert model.weight.is_contiguous()


class FakeCuda:
    """A device of 100 bytes, as torch tells it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str = "NVIDIA H200") -> None:
        self.limits: list[tuple[float, torch.device | None]] = []
        properties = SimpleNamespace(total_memory=100, name=name)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
        monkeypatch.setattr(
            torch.cuda,
            "set_per_process_memory_fraction",
            self._limit,
        )

    def _limit(self, fraction: float, device: torch.device | None = None) -> None:
        """Takes what torch takes: a float, and no device without an index."""
        assert type(fraction) is float
        assert device is None or device.index is not None
        self.limits.append((fraction, device))


def config_of_cuda(settings: Settings, *, share: bool = False, device: str = "NVIDIA H200") -> autotune.Config:
    config = tuned_config(
        settings=settings,
        memory=MemoryShares(fraction=0.9, shared_memory_bytes=25),
        provenance_host=replace(HERE, device=device),
    )
    write_config("autotune.yaml", config, force=True)
    return autotune.load("autotune.yaml", share=share)


@pytest.mark.parametrize(("share", "fraction"), [(False, 0.9), (True, 0.25)])
def test_prepare_limits_the_memory_of_a_cuda_device(
    monkeypatch: pytest.MonkeyPatch, share: bool, fraction: float
) -> None:
    cuda = FakeCuda(monkeypatch)
    cfg = config_of_cuda(Settings(), share=share)
    cfg.prepare(torch.nn.Linear(1, 1))
    assert cuda.limits == [(fraction, None)]
    assert cfg.in_force()["memory_fraction"] == fraction


def test_a_model_tuned_on_the_cpu_leaves_a_cuda_device_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = FakeCuda(monkeypatch)
    config_of(Settings()).prepare(torch.nn.Linear(1, 1))
    assert cuda.limits == []


def model_on(monkeypatch: pytest.MonkeyPatch, device: str) -> torch.nn.Module:
    """A model that says it is on a device which this machine may not have."""
    model = torch.nn.Linear(1, 1)
    monkeypatch.setattr(
        model, "parameters", lambda: iter([SimpleNamespace(device=torch.device(device), dim=lambda: 2)])
    )
    return model


def test_the_limit_is_that_of_the_models_device(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = FakeCuda(monkeypatch)
    config_of_cuda(Settings(memory_fraction=0.5)).prepare(model_on(monkeypatch, "cuda:1"))
    assert cuda.limits == [(0.5, torch.device("cuda:1"))]


@pytest.mark.filterwarnings("ignore:autotune.yaml does not exist")
def test_without_a_file_only_a_limit_in_the_call_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = FakeCuda(monkeypatch)
    autotune.load(num_workers=0).prepare(model_on(monkeypatch, "cuda:0"))
    assert cuda.limits == []
    autotune.load(memory_fraction=1).prepare(model_on(monkeypatch, "cuda:0"))
    assert cuda.limits == [(1.0, torch.device("cuda:0"))]


def test_a_trial_limits_the_memory_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = FakeCuda(monkeypatch)
    in_search(monkeypatch, Settings(memory_fraction=0.5))
    autotune.load("autotune.yaml").prepare(model_on(monkeypatch, "cuda:0"))
    assert cuda.limits == []


@pytest.mark.parametrize(
    ("settings", "device", "said"),
    [
        (Settings(), "NVIDIA L4", "measured on NVIDIA L4, and this device is NVIDIA H200"),
        (Settings(expandable_segments=True), "NVIDIA H200", "expandable_segments must be set before CUDA starts"),
        (
            Settings(non_blocking=True, stream_prefetch=True),
            "NVIDIA H200",
            "non_blocking and stream_prefetch cannot be applied",
        ),
    ],
)
def test_what_a_config_cannot_apply_on_cuda_is_a_warning_at_the_users_line(
    monkeypatch: pytest.MonkeyPatch, settings: Settings, device: str, said: str
) -> None:
    FakeCuda(monkeypatch)
    cfg = config_of_cuda(settings, device=device)
    with pytest.warns(UserWarning, match=said) as seen:
        cfg.prepare(torch.nn.Linear(1, 1))
    assert [warning.filename for warning in seen] == [__file__]
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    if settings.expandable_segments:
        cfg.prepare(torch.nn.Linear(1, 1))


def test_a_script_that_copies_by_the_config_is_not_warned_of_its_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeCuda(monkeypatch)
    facts = replace(FACTS, claims=(Group.TRANSFER,))
    config = tuned_config(settings=Settings(stream_prefetch=True), script_facts=facts, provenance_host=HERE)
    assert list(cuda_doubts(config.settings, config, HERE.device)) == []
    config = tuned_config(settings=Settings(stream_prefetch=True), script_facts=FACTS, provenance_host=HERE)
    assert len(list(cuda_doubts(config.settings, config, HERE.device))) == 1


def test_an_optimizer_gets_the_tuned_form_and_a_foreign_optimizer_is_refused_by_name() -> None:
    class Lion(torch.optim.Adam):
        """An optimizer of the script's."""

    model = torch.nn.Linear(2, 2)
    cfg = config_of(Settings(optimizer_form=OptimizerForm.FUSED))
    optimizer = torch.optim.Adam(model.parameters())
    assert cfg.optimizer(optimizer) is optimizer
    assert optimizer.param_groups[0]["fused"] is True
    assert cfg.in_force() == {"optimizer_form": "fused"}
    with pytest.raises(ConfigError, match="Lion cannot take optimizer_form fused"):
        cfg.optimizer(Lion(model.parameters()))
