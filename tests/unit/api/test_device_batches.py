import copy
from typing import Any, NamedTuple

import pytest
import torch

import autotune
from autotune.api.device_batches import DeviceBatches
from autotune.settings import Group, Settings

from ..trial.streams import FakeStreams
from .scripts import Job, config_of, in_search

META = torch.device("meta")
CPU = torch.device("cpu")


class Pair(NamedTuple):
    x: torch.Tensor
    name: str


class Movable:
    def to(self, device: torch.device) -> str:
        return f"on {device}"


def on(device: torch.device, *batches: Any, stream_prefetch: bool = False) -> DeviceBatches[Any]:
    return DeviceBatches(batches, device, non_blocking=False, stream_prefetch=stream_prefetch)


@pytest.mark.parametrize("stream_prefetch", [False, True])
def test_every_tensor_of_a_batch_is_copied_and_its_structure_stays(
    monkeypatch: pytest.MonkeyPatch, stream_prefetch: bool
) -> None:
    FakeStreams(monkeypatch)
    x = torch.ones(2)
    batch = {"pair": Pair(x, "first"), "list": [x, (x, 3)], "other": Movable(), "sparse": x.to_sparse()}
    (made,) = on(META, batch, stream_prefetch=stream_prefetch)
    assert isinstance(made["pair"], Pair) and made["pair"].name == "first"
    assert made["list"][1][1] == 3 and made["other"] == "on meta"
    tensors = [made["pair"].x, made["list"][0], made["list"][1][0], made["sparse"]]
    assert [tensor.device for tensor in tensors] == [META] * 4


def test_it_is_as_long_as_the_loader() -> None:
    assert len(on(CPU, 1, 2, 3)) == 3
    endless: DeviceBatches[int] = DeviceBatches(iter([1]), CPU, non_blocking=False, stream_prefetch=False)
    with pytest.raises(TypeError, match="no length"):
        len(endless)


def test_what_a_script_asks_of_its_loader_it_still_finds() -> None:
    loader = Job().loader(8)
    batches = config_of(Settings(batch_size=8)).on_device(loader, "cpu")
    assert batches.dataset is loader.dataset and batches.sampler is loader.sampler and batches.batch_size == 8
    assert len(copy.copy(batches)) == len(loader)
    with pytest.raises(AttributeError, match="epochs"):
        _ = batches.epochs


def test_the_next_batch_is_on_its_way_before_this_one_is_handed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    streams = FakeStreams(monkeypatch)
    taken = []
    for batch in on(CPU, torch.zeros(3), torch.ones(3), stream_prefetch=True):
        streams.said.append(f"step on {batch[0].item():.0f}")
        taken.append(batch.tolist())
    assert taken == [[0, 0, 0], [1, 1, 1]]
    assert streams.said == [
        "side waits for steps",
        "copy 1",
        "side waits for steps",
        "copy 2",
        "step waits for copy 1",
        "step on 0",
        "step waits for copy 2",
        "step on 1",
    ]


def test_memory_of_a_batch_that_nobody_takes_is_kept_until_the_copy_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    streams = FakeStreams(monkeypatch)
    for _batch in on(CPU, torch.zeros(3), torch.ones(3), torch.ones(3), stream_prefetch=True):
        break
    assert streams.said[-2:] == ["step waits for copy 1", "memory waits for side"]


def test_what_needs_gradients_is_copied_where_they_flow(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeStreams(monkeypatch)
    x = torch.ones(3, requires_grad=True)
    (made,) = on(CPU, x * 2, stream_prefetch=True)
    made.sum().backward()
    assert x.grad is not None


@pytest.mark.parametrize(
    ("settings", "device", "observed"),
    [
        (Settings(stream_prefetch=True), "cuda", {"stream_prefetch": True}),
        (Settings(non_blocking=True), "cuda", {"stream_prefetch": False, "non_blocking": True}),
        (Settings(), "cuda", {"stream_prefetch": False, "non_blocking": False}),
        (
            Settings(stream_prefetch=True, non_blocking=True),
            "cpu",
            {"stream_prefetch": False, "non_blocking": False},
        ),
    ],
)
def test_a_trial_is_told_how_batches_are_copied(
    monkeypatch: pytest.MonkeyPatch, settings: Settings, device: str, observed: dict[str, bool]
) -> None:
    session = in_search(monkeypatch, settings)
    cfg = autotune.load("autotune.yaml")
    cfg.on_device([], device)
    assert session.claims == [Group.TRANSFER]
    assert session.observed == observed
    assert cfg.in_force() == observed


def test_the_last_step_is_made_after_the_last_batch() -> None:
    cfg, job = config_of(Settings(batch_size=8, grad_accum_steps=3)), Job()
    steps = []
    for x, y in autotune.micro_batches(cfg.on_device(job.loader(8), "cpu")):
        steps.append(cfg.backward(job.loss(x, y), job.optimizer))
    weight = job.model[0].weight.detach().clone()
    other = Job()
    cfg = config_of(Settings(batch_size=8, grad_accum_steps=3))
    for x, y in autotune.micro_batches(other.loader(8)):
        cfg.backward(other.loss(x, y), other.optimizer)
    assert steps == [False, False, True, False]
    assert torch.equal(weight, other.model[0].weight)
