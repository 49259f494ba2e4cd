"""How a script's use of its batches decides whether they may come copied; a copy to `meta` counts as one to CUDA."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from autotune.model.facts import BatchCopy
from autotune.trial.probe import batch_uses
from autotune.trial.probe.batch_uses import BatchUses
from autotune.trial.torch import torch_names
from autotune.trial.torch.patching import recorded, unwrap

Batch = list[torch.Tensor]
KEPT: list[Any] = []
BUFFERS = [torch.zeros(4), torch.zeros(4)]


@pytest.fixture(autouse=True)
def seams(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A device, and torch as it was afterwards."""
    monkeypatch.setattr(batch_uses, "is_cuda_on", lambda: True)
    monkeypatch.setattr(batch_uses, "is_on_device", lambda made: made.is_meta)
    monkeypatch.setattr(batch_uses, "is_page_locked", lambda tensor: True)
    monkeypatch.setattr(batch_uses, "is_on_side_stream", lambda: False)
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: True)
    KEPT.clear()
    with recorded() as made:
        yield
    unwrap(made)
    assert torch_names.function_mode() is None


def found(use: Callable[[Batch], None], make: Callable[[int], Any] | None = None, *, num_steps: int = 6) -> BatchCopy:
    """What the probe says of a script that uses each batch so."""
    uses = BatchUses(lambda: False)
    uses.install()
    for number in range(num_steps):
        batch = make(number) if make is not None else [torch.ones(4), torch.ones(4)]
        uses.delivered("here", batch)
        use(batch)
        del batch
        uses.stepped()
    return uses.found({"here"})


def plain(batch: Batch) -> None:
    x, y = batch
    assert x.shape == (4,) and len(y) == x.size(0) and x.dtype is torch.float32
    x, y = x.to("meta"), y.to("meta", non_blocking=True)
    (x * y).sum()


def labels_stay(batch: Batch) -> None:
    batch[0].to("meta")
    batch[1].tolist()


def read_before(batch: Batch) -> None:
    batch[0].mean().item()
    batch[0].to("meta")


def changed_before(batch: Batch) -> None:
    batch[0].mul_(2.0)
    batch[0].to("meta")


def asked_for_its_device(batch: Batch) -> None:
    torch.zeros(2, device=batch[0].device)
    batch[0].to("meta")


def read_after(batch: Batch) -> None:
    batch[0].to("meta")
    batch[0].numpy()


def written_after(batch: Batch) -> None:
    batch[0].to("meta")
    batch[0][0] = 7.0


def derived(batch: Batch) -> None:
    (batch[0] / 255.0).to("meta")


def kept(batch: Batch) -> None:
    batch[0].to("meta")
    KEPT.append(batch[0])


def kept_once(batch: Batch) -> None:
    batch[0].to("meta")
    if not KEPT:
        KEPT.append(batch[0])


def within_a_context(batch: Batch) -> None:
    with torch.device("cpu"):
        batch[0].to("meta")


class Holder:
    """An object with tensors, and no way to move them."""

    def __init__(self) -> None:
        self.x = torch.ones(2)


@pytest.mark.parametrize(
    ("use", "copy"),
    [
        (plain, BatchCopy.DIRECT),
        (labels_stay, BatchCopy.DIRECT),
        (kept_once, BatchCopy.DIRECT),
        (within_a_context, BatchCopy.DIRECT),
        (read_before, BatchCopy.USED),
        (changed_before, BatchCopy.USED),
        (asked_for_its_device, BatchCopy.USED),
        (read_after, BatchCopy.USED),
        (written_after, BatchCopy.WRITTEN),
        (derived, BatchCopy.NONE),
        (lambda batch: None, BatchCopy.NONE),
        (kept, BatchCopy.KEPT),
    ],
)
def test_the_way_of_a_script_with_its_batches_is_told(use: Callable[[Batch], None], copy: BatchCopy) -> None:
    assert found(use) is copy


def test_a_loader_that_fills_the_same_memory_again_is_told() -> None:
    assert found(lambda batch: [x.to("meta") for x in batch] and None, lambda _: BUFFERS[:1]) is BatchCopy.REUSED
    two_in_turns = found(lambda batch: [x.to("meta") for x in batch] and None, lambda n: [BUFFERS[n % 2]])
    assert two_in_turns is BatchCopy.REUSED


def test_tensors_in_objects_that_cannot_move_are_told() -> None:
    def use(holder: Any) -> None:
        holder.x.to("meta")

    assert found(use, lambda _: Holder()) is BatchCopy.OWN_TYPE


def test_a_prefetcher_of_the_scripts_own_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_uses, "is_on_side_stream", lambda: True)
    assert found(plain) is BatchCopy.OWN_STREAM


def test_batches_of_other_loaders_and_of_compiled_scripts_tell_nothing() -> None:
    uses = BatchUses(lambda: False)
    uses.delivered("validation", [torch.ones(2)])
    assert uses.found({"here"}) is BatchCopy.UNSEEN
    blind = BatchUses(lambda: True)
    blind.delivered("here", [torch.ones(2)])
    assert torch_names.function_mode() is not blind._watch or blind._watch is None
    assert blind.found({"here"}) is BatchCopy.UNSEEN


def test_a_module_ends_the_looking_and_later_copies_still_count() -> None:
    uses = BatchUses(lambda: False)
    uses.install()
    x, y = torch.ones(2), torch.ones(2)
    uses.delivered("here", [x, y])
    x.to("meta")
    uses.end_looking()
    assert torch_names.function_mode() is None
    y.to("meta")
    assert uses._batches[0].places == {(0,), (1,)}
