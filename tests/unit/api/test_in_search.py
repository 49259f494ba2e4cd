from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import autotune
from autotune.emit.writing import write_config
from autotune.settings import Group, Precision, Settings

from ..emit.example import tuned_config
from .scripts import HERE, Job, assert_same_weights, in_search


def test_a_trial_gives_its_settings_and_no_file_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("autotune.yaml").write_text("not: [a config")
    session = in_search(monkeypatch, Settings(num_workers=3, knobs=(("storage", "npy"),)))
    cfg = autotune.load("autotune.yaml", batch_size=64, storage="jpeg", cache=True)
    assert cfg.settings == Settings(num_workers=3, batch_size=64, knobs=(("storage", "npy"),))
    assert session.knobs == {"storage": "jpeg", "cache": "true"}
    assert (cfg["storage"], cfg["cache"]) == ("npy", True)
    assert session.observed == {"knobs.storage": "npy", "knobs.cache": "true"}


def test_the_probe_and_the_baseline_give_the_defaults_of_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("autotune.yaml").write_text("not: [a config")
    in_search(monkeypatch, None)
    num_threads = torch.get_num_threads()
    cfg = autotune.load("autotune.yaml", batch_size=64, num_workers=2)
    cfg.prepare(torch.nn.Linear(1, 1))
    assert cfg.settings == Settings(batch_size=64, num_workers=2)
    assert torch.get_num_threads() == num_threads


@pytest.mark.parametrize(
    ("call", "claims"),
    [
        (lambda cfg, _: cfg.loader_kwargs(), [Group.LOADER, Group.BATCH]),
        (lambda cfg, job: cfg.prepare(job.model), [Group.KERNELS, Group.THREADS]),
        (lambda cfg, job: cfg.on_device(job.loader(8), "cpu"), [Group.TRANSFER]),
        (lambda cfg, _: cfg.autocast(), [Group.PRECISION]),
        (lambda cfg, job: cfg.optimizer(job.optimizer), [Group.OPTIMIZER]),
        (lambda cfg, job: cfg.backward(job.loss(job.x, job.y), job.optimizer), [Group.BATCH]),
        (lambda cfg, _: cfg.settings, []),
    ],
)
@pytest.mark.parametrize("settings", [Settings(batch_size=8, intra_op_threads=2), None])
def test_each_method_claims_the_groups_that_it_applies(
    monkeypatch: pytest.MonkeyPatch, settings: Settings | None, call: Any, claims: list[Group]
) -> None:
    session = in_search(monkeypatch, settings)
    cfg, job = autotune.load("autotune.yaml", batch_size=8), Job()
    call(cfg, job)
    call(cfg, job)
    assert session.claims == claims


def test_a_trial_is_told_nothing_that_it_sees_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(batch_size=8, grad_accum_steps=3, intra_op_threads=2, precision=Precision.BF16)
    session = in_search(monkeypatch, settings)
    cfg = autotune.load("autotune.yaml", batch_size=24)
    job = Job()
    cfg.prepare(job.model)
    for x, y in autotune.micro_batches(job.loader(8)):
        with cfg.autocast():
            loss = job.loss(x, y)
        cfg.backward(loss, job.optimizer)
    assert session.observed == {}
    assert cfg.in_force() == {
        "intra_op_threads": 2,
        "matmul_precision": "highest",
        "sdpa_backend": "default",
        "activation_checkpointing": False,
        "activation_memory_budget": 1.0,
        "cudnn_benchmark": False,
        "cudnn_benchmark_limit": torch.backends.cudnn.benchmark_limit,
        "channels_last": False,
        "compile": False,
        "omp_wait_policy": "default",
        "keep_freed_memory": False,
        "precision": "bf16",
        "grad_accum_steps": 3,
    }


def test_micro_batches_are_the_loaders_own() -> None:
    batches = autotune.micro_batches([1, 2, 3])
    assert next(batches) == 1
    assert list(batches) == [2, 3]


def test_the_lines_of_the_documentation_train_as_a_plain_script_does() -> None:
    write_config(
        "autotune.yaml",
        tuned_config(settings=Settings(batch_size=16, grad_accum_steps=2, intra_op_threads=2), provenance_host=HERE),
        force=False,
    )
    plain, owned = Job(), Job()
    for _ in range(3):
        plain.plain_step(plain.x, plain.y, clip_norm=1.0)

    optimizer, data = owned.optimizer, TensorDataset(owned.x, owned.y)
    loss_fn = torch.nn.functional.mse_loss
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 1.0)
    cfg = autotune.load("autotune.yaml", batch_size=64, num_workers=2)
    model = cfg.prepare(owned.model)
    loader = DataLoader(data, shuffle=True, **cfg.loader_kwargs())
    for _ in range(3):
        for x, y in autotune.micro_batches(loader):
            with cfg.autocast():
                loss = loss_fn(model(x), y)
            cfg.backward(loss, optimizer, clip_norm=1.0, scheduler=scheduler)
    assert_same_weights(plain, owned)
    assert cfg.in_force()["grad_accum_steps"] == 2
