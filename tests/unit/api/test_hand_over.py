"""What a framework puts in force by its own arguments: claimed, told, and only what is tuned or named."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import autotune
from autotune.emit.writing import write_config
from autotune.errors import ConfigError
from autotune.integrations.lightning import single_loaders
from autotune.settings import Group, Precision, Settings

from ..emit.example import tuned_config
from .scripts import in_search

GROUPS = (Group.BATCH, Group.PRECISION)


def loader(batch_size: int) -> DataLoader[tuple[torch.Tensor, ...]]:
    return DataLoader(TensorDataset(torch.zeros(64, 1)), batch_size)


def test_a_trial_hands_over_all_fields_of_the_groups_and_claims_them(monkeypatch: pytest.MonkeyPatch) -> None:
    session = in_search(monkeypatch, Settings(batch_size=8, grad_accum_steps=4, precision=Precision.BF16))
    cfg = autotune.load("autotune.yaml", batch_size=32)
    assert cfg.hand_over(*GROUPS) == {"batch_size", "grad_accum_steps", "precision"}
    assert session.claims == list(GROUPS)
    assert cfg.in_force() == {"batch_size": 8, "grad_accum_steps": 4, "precision": "bf16"}


def test_in_the_probe_only_what_the_call_names_is_the_configs(monkeypatch: pytest.MonkeyPatch) -> None:
    in_search(monkeypatch, None)
    assert autotune.load("autotune.yaml", batch_size=32).hand_over(*GROUPS) == {"batch_size"}


def test_tf32_is_switched_on_since_no_framework_does_it(monkeypatch: pytest.MonkeyPatch) -> None:
    in_search(monkeypatch, Settings(precision=Precision.TF32))
    autotune.load("autotune.yaml").hand_over(Group.PRECISION)
    assert torch.get_float32_matmul_precision() == "high"


@pytest.mark.filterwarnings("ignore:autotune.yaml may not hold here")
def test_a_loader_of_another_batch_size_is_refused_with_a_tuned_config() -> None:
    write_config("autotune.yaml", tuned_config(settings=Settings(batch_size=8)), force=False)
    cfg = autotune.load("autotune.yaml")
    cfg.check_loader(loader(8))
    cfg.check_loader(SimpleNamespace(batch_size=None, batch_sampler=SimpleNamespace(batch_size=8)))
    with pytest.raises(ConfigError, match="The training loader has batch_size 32, and the config says 8"):
        cfg.check_loader(loader(32))
    with pytest.raises(ConfigError, match="has batch_size None"):
        cfg.check_loader([1, 2, 3])


def test_all_loaders_of_a_trainer_are_looked_at() -> None:
    assert single_loaders({"a": [1, 2], "b": (3, {"c": 4})}) == [1, 2, 3, 4]
    assert single_loaders(5) == [5]


def test_in_the_probe_a_loader_that_is_not_the_configs_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    in_search(monkeypatch, None)
    cfg = autotune.load("autotune.yaml", batch_size=32)
    with pytest.raises(ConfigError, match="not built from the config"):
        cfg.check_loader(loader(32))
    cfg.loader_kwargs()
    cfg.check_loader(loader(32))
