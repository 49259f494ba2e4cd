"""Batches of an unedited loop that come copied: which, in what order, and what stays as the loader made it."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from autotune.trial.loader import copies_ahead
from autotune.trial.loader.copies_ahead import CopiesAhead
from autotune.trial.loader.loaders import Loaders
from autotune.trial.torch.patching import recorded, unwrap
from autotune.trial.torch.side_stream import Copied
from tests.unit.trial.streams import FakeStreams


class Numbers(Dataset[Any]):
    """Samples with their number; reading beyond `broken` fails once."""

    def __init__(self, broken: int | None = None) -> None:
        self.broken, self.num_read = broken, 0

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> Any:
        self.num_read += 1
        if index == self.broken:
            raise OSError("truncated")
        return torch.full((2,), float(index)), index


class Job:
    """A script's loop over a loader, with copies ahead in force; a copy on the host counts as one to the device."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, dataset: Dataset[Any], *, looks_ahead: bool = True) -> None:
        monkeypatch.setattr(copies_ahead, "_is_on_device", lambda made: True)
        self.streams = FakeStreams(monkeypatch)
        self.num_steps = 0
        self.copies = CopiesAhead(lambda: self.num_steps, looks_ahead=looks_ahead)
        loaders = Loaders()
        loaders.taker = lambda _: self.copies.taking(lambda iterator, original: original(iterator))
        loaders.install()
        self.copies.install()
        self.loader = DataLoader(dataset, batch_size=1)

    def step(self, tensor: torch.Tensor) -> torch.Tensor:
        """The script's own copy of a tensor, and a step."""
        self.num_steps += 1
        self.streams.said.append(f"step on {tensor.flatten()[0].item():.0f}")
        return tensor.to("cpu", copy=self.copies.in_force is None)


@pytest.fixture(autouse=True)
def seams(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Puts torch back as it was, after the last batch is dropped."""
    with recorded() as made:
        yield
    unwrap(made)
    gc.collect()


def test_each_batch_is_copied_during_the_step_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(monkeypatch, Numbers())
    seen = [job.step(x)[0, 0].item() for x, _ in job.loader]
    assert seen == [0, 1, 2, 3, 4, 5]
    assert job.copies.in_force and job.copies.num_copies == 5
    assert job.streams.said[:9] == [
        "step on 0",
        "side waits for steps",
        "copy 1",
        "side waits for steps",
        "copy 2",
        "step waits for copy 1",
        "step on 1",
        "side waits for steps",
        "copy 3",
    ]


def test_a_copied_tensor_is_found_on_the_device_and_any_other_stays_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(monkeypatch, Numbers())
    made: list[torch.Tensor] = []

    def collate(_: Any) -> tuple[torch.Tensor, ...]:
        made.extend((torch.ones(2), torch.ones(2)))
        return tuple(made[-2:])

    job.loader.collate_fn = collate
    for number, (x, y) in enumerate(job.loader):
        assert job.step(x) is not x if number == 0 else job.step(x) is x
        assert y is made[2 * number + 1], "the script copies it nowhere"
        assert (x is made[2 * number]) is (number == 0)


def test_the_end_of_an_epoch_and_the_next_epoch_come_in_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(monkeypatch, Numbers())
    seen = [[int(job.step(x)[0, 0]) for x, _ in job.loader] for _ in range(3)]
    assert seen == [[0, 1, 2, 3, 4, 5]] * 3


def test_the_end_of_an_epoch_leaves_no_copied_batch_to_the_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(monkeypatch, Numbers())
    for x, _ in job.loader:
        job.step(x)
    gc.collect()
    gc.disable()
    try:
        for _ in range(2):
            for x, _ in job.loader:
                job.step(x)
        del x
        assert [left for left in gc.get_objects() if type(left) is Copied] == []
    finally:
        gc.enable()


def test_a_forked_process_ends_with_no_event_destroyed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own collector finds a batch that the parent left in a cycle; CUDA has no part in a forked process."""
    job = Job(monkeypatch, Numbers())
    iterator = iter(job.loader)
    for _ in range(2):
        job.step(next(iterator)[0])
    ended: list[Event] = []
    cycle: list[Any] = [Copied(None, Event(ended), None, [torch.ones(1)])]
    cycle.append(cycle)
    gc.disable()
    try:
        del cycle
        seen = in_child(lambda: [job.streams.said.count("memory waits for side"), len(ended)])
    finally:
        gc.enable()
    assert seen == [0, 0]
    gc.collect()
    assert len(ended) == 1 and "memory waits for side" in job.streams.said


class Event:
    """Tells of its own end."""

    def __init__(self, ended: list[Event]) -> None:
        self.ended = ended

    def __del__(self) -> None:
        self.ended.append(self)


def in_child(look: Callable[[], list[int]]) -> list[int]:
    """What a forked process sees after its collector went over all that the parent left."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            gc.collect()
            os.write(writer, bytes(look()))
        finally:
            os._exit(0)
    os.close(writer)
    seen = os.read(reader, 100)
    os.close(reader)
    assert os.waitpid(child, 0)[1] == 0
    return list(seen)


def test_a_broken_batch_is_raised_when_it_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(monkeypatch, Numbers(broken=3))
    iterator = iter(job.loader)
    seen = [int(job.step(next(iterator)[0])[0, 0]) for _ in range(3)]
    with pytest.raises(OSError, match="truncated"):
        next(iterator)
    assert seen == [0, 1, 2]
    assert int(job.step(next(iterator)[0])[0, 0]) == 4


def test_while_workers_are_held_back_the_loader_is_asked_for_no_batch_early(monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = Numbers()
    job = Job(monkeypatch, dataset, looks_ahead=False)
    for number, (x, _) in enumerate(job.loader, start=1):
        job.step(x)
        assert dataset.num_read == number
    assert job.copies.num_copies == 5


def test_a_batch_in_place_of_the_loaders_comes_the_same_way(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(monkeypatch, Numbers())
    for _ in range(3):
        (x,) = job.copies.of_cached(lambda: [torch.ones(2)])
        job.step(x)
    assert job.copies.num_copies == 3, "two were given, and one is on its way"
    iterator = iter(job.loader)
    job.copies.looks_ahead = False
    next(iterator)
    assert "memory waits for side" not in job.streams.said
    job.copies.looks_ahead = True
    next(iterator)
    assert job.streams.said.count("memory waits for side") == 1, "the cached batch on its way is dropped"


def test_a_script_without_copies_gets_its_batches_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    before = torch.Tensor.to
    job = Job(monkeypatch, Numbers())
    for _x, _ in job.loader:
        job.num_steps += 1
    assert job.copies.in_force is False and job.copies.num_copies == 0
    assert torch.Tensor.to is before and not job.streams.said


def test_memory_of_a_batch_left_behind_is_kept_until_its_copy_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(monkeypatch, Numbers())
    iterator = iter(job.loader)
    for _ in range(2):
        job.step(next(iterator)[0])
    del iterator
    gc.collect()
    assert job.streams.said.count("memory waits for side") == 1
    iterator = iter(job.loader)
    job.step(next(iterator)[0])
    job.copies.close()
    assert job.streams.said.count("memory waits for side") == 2


def test_items_of_lists_of_any_length_are_copied_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(monkeypatch, Numbers())
    lengths = iter((2, 3, 1, 2, 2, 2))
    job.loader.collate_fn = lambda _: (
        [torch.ones(1) for _ in range(next(lengths))],
        [{"boxes": torch.ones(1), "number": torch.ones(1)}],
    )
    for images, targets in job.loader:
        for tensor in (*images, *(target["boxes"] for target in targets)):
            job.step(tensor)
    (places,) = {job.copies._places}
    assert places == {(0, "*"), (1, "*", "boxes")}


class Words(dict[str, torch.Tensor]):
    """A batch of a class of its own, with a method `to`."""

    def to(self, device: Any, non_blocking: bool = False) -> Words:
        self.update({name: value.to(device, copy=True) for name, value in self.items()})
        self.is_moved = non_blocking
        return self


def test_an_object_that_copies_itself_is_copied_by_its_own_method(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(monkeypatch, Numbers())
    job.loader.collate_fn = lambda _: Words(ids=torch.ones(2))
    moved = []
    for words in job.loader:
        moved.append(hasattr(words, "is_moved"))
        words.to("cpu")
        job.num_steps += 1
    assert moved == [False, *[True] * 5]
