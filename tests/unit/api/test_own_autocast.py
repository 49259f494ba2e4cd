from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import autotune
from autotune.errors import ConfigError
from autotune.settings import Precision, Settings

from .scripts import Job, assert_same_weights, config_of, in_search


class MatmulDtypes(TorchDispatchMode):
    """Sees the operands of every matrix product."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[torch.dtype] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket in (torch.ops.aten.addmm, torch.ops.aten.mm):
            self.seen |= {value.dtype for value in args if isinstance(value, torch.Tensor)}
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    ("precision", "dtype"),
    [
        (Precision.FP32, torch.float32),
        (Precision.TF32, torch.float32),
        (Precision.BF16, torch.bfloat16),
        (Precision.FP16, torch.float16),
    ],
)
def test_matrix_products_really_have_the_tuned_format(precision: Precision, dtype: torch.dtype) -> None:
    cfg = config_of(Settings(batch_size=32, precision=precision))
    job = Job()
    model = cfg.prepare(job.model)
    with MatmulDtypes() as dtypes, cfg.autocast():
        model(job.x)
    assert dtypes.seen == {dtype}
    assert cfg.in_force()["precision"] == precision.value
    assert not torch.is_autocast_enabled("cpu")
    assert (torch.get_float32_matmul_precision() == "high") == (precision is Precision.TF32)


@pytest.mark.parametrize("num_micro_batches", [1, 4])
@pytest.mark.parametrize("precision", list(Precision))
def test_the_loss_falls_in_every_precision(precision: Precision, num_micro_batches: int) -> None:
    size = 32 // num_micro_batches
    cfg = config_of(Settings(batch_size=size, grad_accum_steps=num_micro_batches, precision=precision))
    job = Job()
    cfg.prepare(job.model)
    first = job.loss(job.x, job.y).item()
    for _ in range(30):
        for x, y in autotune.micro_batches(job.loader(size)):
            with cfg.autocast():
                loss = job.loss(x, y)
            cfg.backward(loss, job.optimizer, clip_norm=1.0)
    assert job.loss(job.x, job.y).item() < 0.8 * first


def test_fp16_is_scaled_for_backward_and_unscaled_for_clipping(monkeypatch: pytest.MonkeyPatch) -> None:
    scales: list[float] = []
    scale = torch.amp.GradScaler.scale

    def spy(scaler: torch.amp.GradScaler, loss: torch.Tensor) -> Any:
        scaled = scale(scaler, loss)
        scales.append(float(scaled.detach() / loss.detach()))
        return scaled

    monkeypatch.setattr(torch.amp.GradScaler, "scale", spy)
    cfg = config_of(Settings(batch_size=8, grad_accum_steps=4, precision=Precision.FP16))
    full, accumulated = Job(), Job()
    full.plain_step(full.x, full.y, clip_norm=0.05)
    for x, y in autotune.micro_batches(accumulated.loader(8)):
        with cfg.autocast():
            loss = accumulated.loss(x, y)
        cfg.backward(loss, accumulated.optimizer, clip_norm=0.05)
    assert scales == [65536.0] * 4
    assert_same_weights(full, accumulated, tolerance=2e-3)
    assert float((accumulated.weights() - Job().weights()).norm()) == pytest.approx(0.1 * 0.05, rel=1e-3)


def test_a_step_that_overflows_is_skipped_with_its_scheduler(monkeypatch: pytest.MonkeyPatch) -> None:
    in_search(monkeypatch, Settings(batch_size=32, precision=Precision.FP16))
    cfg = autotune.load("autotune.yaml")
    job = Job()
    scheduler = torch.optim.lr_scheduler.LambdaLR(job.optimizer, lambda _: 1.0)
    start = job.weights()
    with cfg.autocast():
        loss = job.loss(job.x, job.y)
    assert cfg.backward(loss * 1e36, job.optimizer, clip_norm=1.0, scheduler=scheduler) is False
    torch.testing.assert_close(job.weights(), start)
    assert all(parameter.grad is None for parameter in job.model.parameters())
    with cfg.autocast():
        loss = job.loss(job.x, job.y)
    assert cfg.backward(loss, job.optimizer, clip_norm=1.0, scheduler=scheduler) is True
    assert scheduler.last_epoch == 1


def test_fp16_with_a_backward_of_the_scripts_own_is_refused() -> None:
    cfg = config_of(Settings(batch_size=32, precision=Precision.FP16))
    job = Job()

    def passes(number: int) -> None:
        for _ in range(number):
            with cfg.autocast():
                job.loss(job.x, job.y)

    with torch.no_grad():
        passes(100)
    passes(16)
    with pytest.raises(ConfigError, match=r"fp16 ran for 16 forward passes without cfg\.backward"):
        passes(1)
    cfg = config_of(Settings(batch_size=32, precision=Precision.FP16))
    with cfg.autocast():
        loss = job.loss(job.x, job.y)
    cfg.backward(loss, job.optimizer)
    passes(100)


def test_a_script_without_autocast_is_not_scaled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch.amp, "GradScaler")
    cfg = config_of(Settings(batch_size=32, precision=Precision.FP16))
    full, job = Job(), Job()
    full.plain_step(full.x, full.y)
    assert cfg.backward(job.loss(job.x, job.y), job.optimizer)
    assert_same_weights(full, job)
    assert "precision" not in cfg.in_force()
