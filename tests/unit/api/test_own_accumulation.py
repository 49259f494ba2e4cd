from collections.abc import Iterator
from typing import Any

import pytest
import torch

import autotune
from autotune.errors import ConfigError
from autotune.settings import Settings

from .scripts import Job, assert_same_weights, config_of


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("num_micro_batches", [1, 2, 4, 8])
def test_accumulated_micro_batches_step_like_the_full_batch(num_micro_batches: int, reduction: Any) -> None:
    cfg = config_of(Settings(batch_size=32 // num_micro_batches, grad_accum_steps=num_micro_batches))
    full, accumulated = Job(), Job()
    clip_norm = 1.0 if reduction == "sum" else None
    full.plain_step(full.x, full.y, clip_norm, reduction)
    stepped = [
        cfg.backward(accumulated.loss(x, y, reduction), accumulated.optimizer, clip_norm=clip_norm, reduction=reduction)
        for x, y in autotune.micro_batches(accumulated.loader(32 // num_micro_batches))
    ]
    assert stepped == [False] * (num_micro_batches - 1) + [True]
    assert_same_weights(full, accumulated)
    assert all(parameter.grad is None for parameter in accumulated.model.parameters())


def test_clipping_sees_the_norm_of_the_whole_step() -> None:
    full, accumulated = Job(), Job()
    full.loss(full.x, full.y).backward()
    norm = float(torch.nn.utils.clip_grad_norm_(full.model.parameters(), max_norm=float("inf")))
    full.optimizer.zero_grad()
    # Just above the true norm nothing is clipped, although single micro-batches and their sum are above it.
    cfg = config_of(Settings(batch_size=8, grad_accum_steps=4))
    for x, y in autotune.micro_batches(accumulated.loader(8)):
        cfg.backward(accumulated.loss(x, y), accumulated.optimizer, clip_norm=norm * 1.001)
    full.plain_step(full.x, full.y)
    assert_same_weights(full, accumulated)

    before = accumulated.weights()
    for x, y in autotune.micro_batches(accumulated.loader(8)):
        cfg.backward(accumulated.loss(x, y), accumulated.optimizer, clip_norm=norm / 100)
    assert float((accumulated.weights() - before).norm()) == pytest.approx(0.1 * norm / 100, rel=1e-3)


def test_the_scheduler_moves_once_per_optimizer_step() -> None:
    job = Job()
    scheduler = torch.optim.lr_scheduler.LambdaLR(job.optimizer, lambda step: 1 / (1 + step))
    cfg = config_of(Settings(batch_size=2, grad_accum_steps=4))
    for x, y in autotune.micro_batches(job.loader(2)):
        cfg.backward(job.loss(x, y), job.optimizer, scheduler=scheduler)
    assert scheduler.last_epoch == 32 // 2 // 4


@pytest.mark.parametrize("clip_norm", [None, 0.5])
def test_micro_batches_that_do_not_fill_the_last_step_count_truly(clip_norm: float | None) -> None:
    cfg = config_of(Settings(batch_size=2, grad_accum_steps=4))
    full, accumulated = Job(num_samples=22), Job(num_samples=22)
    scheduler = torch.optim.lr_scheduler.LambdaLR(accumulated.optimizer, lambda _: 1.0)
    for _ in range(2):
        for start in (0, 8, 16):
            full.plain_step(full.x[start : start + 8], full.y[start : start + 8], clip_norm)
        for x, y in autotune.micro_batches(accumulated.loader(2)):
            cfg.backward(accumulated.loss(x, y), accumulated.optimizer, clip_norm=clip_norm, scheduler=scheduler)
        assert_same_weights(full, accumulated)
    assert scheduler.last_epoch == 6


def test_a_summed_loss_of_an_unfilled_step_is_not_rescaled() -> None:
    cfg = config_of(Settings(batch_size=2, grad_accum_steps=4))
    full, accumulated = Job(num_samples=6), Job(num_samples=6)
    full.plain_step(full.x, full.y, reduction="sum")
    for x, y in autotune.micro_batches(accumulated.loader(2)):
        cfg.backward(accumulated.loss(x, y, "sum"), accumulated.optimizer, reduction="sum")
    assert_same_weights(full, accumulated)


def test_a_loop_that_is_left_early_hands_its_micro_batches_to_the_next() -> None:
    cfg = config_of(Settings(batch_size=8, grad_accum_steps=4))
    full, accumulated = Job(), Job()
    full.plain_step(full.x, full.y)
    start = accumulated.weights()
    batches = list(accumulated.loader(8))
    for x, y in autotune.micro_batches(batches):
        cfg.backward(accumulated.loss(x, y), accumulated.optimizer)
        if x is batches[1][0]:
            break
    torch.testing.assert_close(accumulated.weights(), start)
    for x, y in autotune.micro_batches(batches[2:]):
        cfg.backward(accumulated.loss(x, y), accumulated.optimizer)
    assert_same_weights(full, accumulated)


def test_a_validation_loop_inside_an_epoch_steps_nothing() -> None:
    cfg = config_of(Settings(batch_size=8, grad_accum_steps=4))
    full, accumulated = Job(), Job()
    full.plain_step(full.x, full.y)
    for x, y in autotune.micro_batches(accumulated.loader(8)):
        cfg.backward(accumulated.loss(x, y), accumulated.optimizer)
        with torch.no_grad():
            losses = [accumulated.loss(*batch).item() for batch in autotune.micro_batches(accumulated.loader(16))]
        assert len(losses) == 2
    assert_same_weights(full, accumulated)


def test_a_training_loop_inside_another_steps_its_own_rest() -> None:
    outer_cfg = config_of(Settings(batch_size=16, grad_accum_steps=4))
    inner_cfg = autotune.load("autotune.yaml")
    outer, inner, plain = Job(), Job(), Job()
    start = outer.weights()
    for x, y in autotune.micro_batches(outer.loader(16)):
        outer_cfg.backward(outer.loss(x, y), outer.optimizer)
        for inner_x, inner_y in autotune.micro_batches(inner.loader(16)):
            inner_cfg.backward(inner.loss(inner_x, inner_y), inner.optimizer)
        plain.plain_step(plain.x, plain.y)
        assert_same_weights(plain, inner)
        torch.testing.assert_close(outer.weights(), start)
    assert not torch.equal(outer.weights(), start)


def test_an_error_in_the_loader_steps_nothing() -> None:
    def broken(job: Job) -> Iterator[Any]:
        yield next(iter(job.loader(8)))
        raise OSError("disk")

    cfg = config_of(Settings(batch_size=8, grad_accum_steps=4))
    job = Job()
    start = job.weights()
    with pytest.raises(OSError, match="disk"):
        for x, y in autotune.micro_batches(broken(job)):
            cfg.backward(job.loss(x, y), job.optimizer)
    torch.testing.assert_close(job.weights(), start)


def test_a_second_optimizer_is_refused() -> None:
    cfg = config_of(Settings(batch_size=8))
    one, other = Job(), Job()
    cfg.backward(one.loss(one.x, one.y), one.optimizer)
    with pytest.raises(ConfigError, match=r"second optimizer.*Call autotune\.load once for each"):
        cfg.backward(other.loss(other.x, other.y), other.optimizer)


def test_gradients_zeroed_by_the_script_between_micro_batches_are_refused() -> None:
    cfg = config_of(Settings(batch_size=8, grad_accum_steps=4))
    job = Job()
    with pytest.raises(
        ConfigError, match=r"gradients of 1 micro-batches were zeroed.*Leave zero_grad to cfg\.backward"
    ):
        for x, y in autotune.micro_batches(job.loader(8)):
            job.optimizer.zero_grad()
            cfg.backward(job.loss(x, y), job.optimizer)
