"""A small training script in pieces, configs for it, and a trial that listens to it."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import autotune
from autotune import host
from autotune.emit.writing import write_config
from autotune.settings import Group, Settings
from autotune.trial.start import active_session

from ..emit.example import FACTS, tuned_config

HERE = host.fingerprint(host.cpu_device(), num_devices=1, torch_version=torch.__version__)


class FakeSession:
    """A trial that writes down what the script tells it."""

    def __init__(self, settings: Settings | None) -> None:
        self.settings = settings
        self.claims: list[Group] = []
        self.knobs: dict[str, str] = {}
        self.observed: dict[str, str] = {}

    def claim(self, group: Group) -> None:
        self.claims.append(group)

    def declare_knobs(self, defaults: Mapping[str, str]) -> None:
        self.knobs = dict(defaults)

    def observe(self, field: str, value: str) -> None:
        self.observed[field] = value


def in_search(monkeypatch: pytest.MonkeyPatch, settings: Settings | None) -> FakeSession:
    session = FakeSession(settings)
    monkeypatch.setattr(active_session, "session", session)
    return session


def config_of(settings: Settings, **changes: Any) -> autotune.Config:
    """The config of a file with these settings, measured on this machine."""
    changes = {"provenance_host": HERE, "script_facts": replace(FACTS, device="cpu"), **changes}
    write_config("autotune.yaml", tuned_config(settings=settings, **changes), force=True)
    return autotune.load("autotune.yaml")


class Job:
    """A small regression, the same every time."""

    def __init__(self, num_samples: int = 32) -> None:
        generator = torch.Generator().manual_seed(7)
        self.x = torch.randn(num_samples, 6, generator=generator)
        self.y = torch.randn(num_samples, 1, generator=generator)
        torch.manual_seed(3)
        self.model = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def loader(self, batch_size: int) -> DataLoader[Any]:
        return DataLoader(TensorDataset(self.x, self.y), batch_size=batch_size)

    def loss(self, x: torch.Tensor, y: torch.Tensor, reduction: str = "mean") -> torch.Tensor:
        return torch.nn.functional.mse_loss(self.model(x), y, reduction=reduction)

    def plain_step(
        self, x: torch.Tensor, y: torch.Tensor, clip_norm: float | None = None, reduction: str = "mean"
    ) -> None:
        """One step as a script without autotune writes it."""
        self.loss(x, y, reduction).backward()
        if clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), clip_norm)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def weights(self) -> torch.Tensor:
        return torch.cat([parameter.detach().flatten() for parameter in self.model.parameters()])


def assert_same_weights(one: Job, other: Job, tolerance: float = 1e-6) -> None:
    torch.testing.assert_close(one.weights(), other.weights(), rtol=tolerance, atol=tolerance)
