"""Finds the DataLoader for training and reads its settings, in the probe, by the place of construction."""

from __future__ import annotations

import functools
import gc
import itertools
import statistics
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any, TypeVar

from torch.utils.data import BatchSampler, IterableDataset, RandomSampler, SubsetRandomSampler, WeightedRandomSampler
from torch.utils.data.distributed import DistributedSampler

from autotune.model.facts import BatchSamplerKind, LoaderFacts
from autotune.model.storage_traps import StorageTrap
from autotune.settings import LOADER_FIELDS
from autotune.settings.worker_start import pinned_cpus
from autotune.trial.apply.observed import settings_of_loader
from autotune.trial.loader.loaders import LoaderRecord, Loaders
from autotune.trial.probe.batch_uses import BatchUses
from autotune.trial.probe.main_module import inherited_start, start_method, why_not_spawned
from autotune.trial.probe.storage_detector import num_shards, splits_among_workers, survives_fork, traps_of
from autotune.trial.step.steps import Steps
from autotune.trial.torch.batch_structure import batch_bytes, known_length, leading_size, length_of, tensors_of

_Answer = TypeVar("_Answer")
LOADER_FACTS = frozenset(field.name for field in fields(LoaderFacts))
UNEVEN_BATCHES = 0.01
"""Relative difference in bytes from which batches count as different: their cost differs as much, and the finals can
tell 1 % apart."""
STEPS_ON_KEPT_DATA = 24
"""Optimizer steps on the same batch that a script is not expected to take on purpose: inner loops are shorter."""


class _Seen:
    """Observations of the loaders built at the same place over the same dataset."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.dataset: Any = None
        self.built_batch_size = 0
        """Largest batch size of the constructions; 0 when unknown."""
        self.attributes: dict[str, Any] = {}
        self.num_passes = 0
        self.num_passes_before_training = 0
        self.num_delivered = 0
        self.num_trained = 0
        """Backward passes with new batches."""
        self.num_taken = 0
        """Batches taken for these backward passes: several per pass when the script joins batches."""
        self.num_taken_at_steps: list[int] = []
        """`num_taken` at the end of each optimizer step."""
        self.num_pending = 0
        """Batches since the last backward pass."""
        self.thread = 0
        """Identifier of the thread that takes the batches."""
        self.iterator: Callable[[], Any] = lambda: None
        """Weak reference to the current iterator."""
        self.is_replayed = False
        """True when `itertools.cycle` keeps the batches, and asks the loader for a single epoch."""
        self.last_delivery = 0
        self.is_read_before_training = False
        self.is_rebuilt = False
        self.is_length_asked_first = False
        self.start_method = ""
        self.is_pinned = False
        self.batch_bytes = 0
        self.least_batch_bytes: int | None = None
        """Smallest whole batch."""
        self.leading_size: int | None = None

    @property
    def batches_vary(self) -> bool:
        """Whether whole batches differ in their bytes."""
        return self.least_batch_bytes is not None and self.batch_bytes > (1 + UNEVEN_BATCHES) * self.least_batch_bytes

    @property
    def num_steps_on_first(self) -> int:
        """Optimizer steps so far when no step had a newer batch than the first step; 0 otherwise."""
        counts = self.num_taken_at_steps
        return len(counts) if counts and counts[0] == self.num_taken > 0 else 0


class LoaderDetector:
    """Watches all loaders of the script; batches of the training loader are followed by backward passes."""

    def __init__(self, loaders: Loaders, steps: Steps, batch_uses: BatchUses) -> None:
        self._loaders, self._steps, self._batch_uses = loaders, steps, batch_uses
        self._seen: dict[str, _Seen] = {}
        self._num_deliveries = 0

    def attach(self, also_built: Callable[[str], None]) -> None:
        """Attaches to the loaders' seam, before the seam is installed.

        Args:
            also_built: Called with the key of each loader during construction.
        """
        self._loaders.built = self._built
        self._loaders.looks_at_source = True
        self._also_built = also_built
        self._loaders.iterates = self._iterates
        self._loaders.taker = lambda record: functools.partial(self._next_batch, self._of(record))
        self._loaders.length_asked = self._length_asked

    def backward(self) -> None:
        """Notes a backward pass, which used the batches taken since the previous pass."""
        for seen in self._seen.values():
            if seen.num_pending:
                seen.num_taken += seen.num_pending
                seen.num_pending = 0
                seen.num_trained += 1
                if seen.num_trained == 1:
                    seen.num_passes_before_training = seen.num_passes - 1
                    seen.is_replayed = _is_kept_by_cycle(seen.iterator())

    def stepped(self) -> None:
        """Notes an optimizer step."""
        for seen in self._seen.values():
            seen.num_taken_at_steps.append(seen.num_taken)

    @property
    def leading_size(self) -> int | None:
        """First dimension of the training loader's tensors."""
        training = self._training()
        return training.leading_size if training is not None else None

    @property
    def is_read_ahead(self) -> bool:
        """Whether the script reads its training loader outside of the training thread."""
        training = self._training()
        return training is not None and training.thread != self._steps.thread

    @property
    def is_replayed(self) -> bool:
        """Whether the script trains on the training loader's first epoch again and again, kept by `itertools.cycle`."""
        training = self._training()
        return training is not None and training.is_replayed

    @property
    def is_length_asked_first(self) -> bool:
        """Whether the script asked for the training loader's length before the first backward pass."""
        training = self._training()
        return training is not None and training.is_length_asked_first

    @property
    def start_method(self) -> str:
        """Start method of the training loader's workers; empty without a training loader."""
        training = self._training()
        return training.start_method if training is not None else ""

    @property
    def is_pinned(self) -> bool:
        """Whether some loader was iterated in a process pinned to a part of its cores."""
        return any(seen.is_pinned for seen in self._seen.values())

    @property
    def has_larger_batches(self) -> bool:
        """Whether another loader of the script has larger batches than the training loader."""
        training = self._training()
        size = training.built_batch_size if training is not None else 0
        return 0 < size < max(seen.built_batch_size for seen in self._seen.values())

    @property
    def may_keep_first_batch(self) -> bool:
        """Whether more steps would tell if the script trains on without new batches."""
        training = self._training()
        return training is not None and 0 < training.num_steps_on_first < STEPS_ON_KEPT_DATA

    def num_training(self) -> int:
        """Number of loaders with about equal parts in the training; above 1, the loader to tune is unclear."""
        return len(self._training_alike())

    def _training_alike(self) -> list[_Seen]:
        """The loaders with about equal parts in the training."""
        most = max((seen.num_trained for seen in self._seen.values()), default=0)
        if most <= 1:
            training = self._training()
            return [training] if training is not None else []
        return [seen for seen in self._seen.values() if seen.num_trained * 2 >= most]

    def empty(self) -> tuple[str, ...]:
        """Places of construction of loaders that the script iterated without a batch."""
        seen = (seen for seen in self._seen.values() if seen.num_passes and not seen.num_delivered)
        return tuple(seen.key.partition("~")[0] for seen in seen)

    def batches_per_step(self) -> int:
        """Batches taken per optimizer step, at least 1.

        1 for a script that reads ahead, because batches cannot be assigned to steps.
        """
        training = self._training()
        return 1 if training is None or self.is_read_ahead else usual_growth(training.num_taken_at_steps)

    def facts(self) -> LoaderFacts | None:
        """Facts of the training loader; None without a training loader, and for a script that keeps its first batch."""
        training = self._training()
        if training is None or training.num_steps_on_first >= STEPS_ON_KEPT_DATA:
            return None
        beside = self._beside(training)
        attributes = dict(training.attributes)
        for other in beside:
            attributes["traps"] = (*attributes["traps"], *other.attributes["traps"])
            attributes["spawn_refusal"] = attributes["spawn_refusal"] or other.attributes["spawn_refusal"]
            attributes["is_shuffled"] &= other.attributes["is_shuffled"]
        return LoaderFacts(
            keys=self._keys(training),
            beside=tuple(map(self._keys, beside)),
            batch_bytes=sum(seen.batch_bytes for seen in (training, *beside)),
            batches_vary=training.batches_vary,
            is_read_before_training=training.is_read_before_training,
            num_passes_before_training=training.num_passes_before_training,
            is_rebuilt=training.is_rebuilt,
            **attributes,
        )

    def _keys(self, seen: _Seen) -> tuple[str, ...]:
        """The places of a loader: a framework builds it from the script's loader, and trials change both."""
        others = (one for one in self._seen.values() if one.dataset is seen.dataset and one.num_delivered == 0)
        return (seen.key, *(other.key for other in others))

    def _beside(self, training: _Seen) -> list[_Seen]:
        """Loaders that train side by side with the training loader; empty when their settings or kinds differ."""
        others = [seen for seen in self._training_alike() if seen is not training]
        return others if all(_is_alike(other, training) for other in others) else []

    def _training(self) -> _Seen | None:
        best = max(self._seen.values(), key=lambda seen: (seen.num_trained, seen.last_delivery), default=None)
        return best if best is not None and best.num_trained else None

    def _of(self, record: LoaderRecord) -> _Seen:
        return self._seen.setdefault(record.key, _Seen(record.key))

    def _built(self, record: LoaderRecord, loader: Any) -> None:
        seen = self._of(record)
        seen.dataset = loader.dataset
        seen.built_batch_size = max(seen.built_batch_size, loader.batch_size or 0)
        self._also_built(record.key)

    def _iterates(self, record: LoaderRecord, loader: Any) -> None:
        seen = self._of(record)
        seen.num_passes += 1
        seen.num_pending = 0
        seen.is_rebuilt = record.is_rebuilt
        seen.attributes = seen.attributes or _attributes(loader, record.key.partition("~")[0])
        seen.start_method = start_method(loader)
        seen.is_pinned |= pinned_cpus() is not None

    def _length_asked(self, record: LoaderRecord) -> None:
        if not self._steps.num_backwards:
            self._of(record).is_length_asked_first = True

    def _next_batch(self, seen: _Seen, iterator: Any, original: Callable[[Any], Any]) -> Any:
        self._batch_uses.end_looking()
        try:
            batch = original(iterator)
        except StopIteration:
            seen.num_pending = 0
            seen.is_read_before_training |= not self._steps.num_backwards and seen.num_delivered > 0
            raise
        seen.thread, seen.iterator = threading.get_ident(), weakref.ref(iterator)
        self._num_deliveries += 1
        seen.last_delivery = self._num_deliveries
        seen.num_delivered += 1
        seen.num_pending += 1
        seen.leading_size = leading_size(batch)
        self._note_size(seen, batch)
        self._batch_uses.delivered(seen.key, batch)
        return batch

    def _note_size(self, seen: _Seen, batch: Any) -> None:
        num_bytes, batch_size = batch_bytes(batch), seen.attributes.get("batch_size")
        seen.batch_bytes = max(seen.batch_bytes, num_bytes)
        if batch_size is None or any(batch_size in tensor.shape for tensor in tensors_of(batch)):
            seen.least_batch_bytes = min(seen.least_batch_bytes or num_bytes, num_bytes)


def _is_alike(seen: _Seen, training: _Seen) -> bool:
    """Whether a trial can change two loaders alike: the same settings, and map-style datasets.

    Batches of varying size are looked for in the training loader alone, and reasons against a start method in loaders
    with traps alone.
    """
    one, other = seen.attributes, training.attributes
    names = [name for name in (*LOADER_FIELDS, "inherited_start") if name in other]
    return (
        all(one.get(name) == other[name] for name in names)
        and not (one["is_iterable"] or other["is_iterable"])
        and not (seen.is_replayed or seen.is_read_before_training or seen.batches_vary)
        and bool(one["traps"]) == bool(other["traps"])
        and (seen.is_rebuilt, seen.thread) == (training.is_rebuilt, training.thread)
    )


def _is_kept_by_cycle(iterator: Any) -> bool:
    """Whether `itertools.cycle` keeps the batches of an iterator; walks all referrers of what the script holds."""
    if iterator is None:
        return False
    return any(isinstance(holder, itertools.cycle) for holder in gc.get_referrers(iterator._autotune_outer()))


def usual_growth(counts: Sequence[int]) -> int:
    """Median growth of a count from step to step, at least 1; 1 without steps.

    An epoch's last step may have fewer batches, hence the median. The first step is left out if possible.
    """
    if len(counts) < 2:
        return max([1, *counts])
    return max(1, round(statistics.median(after - before for before, after in itertools.pairwise(counts))))


def _attributes(loader: Any, place: str) -> dict[str, Any]:
    """Attributes of a DataLoader built at a place, by field of `LoaderFacts`."""
    traps: tuple[StorageTrap, ...] = _told((), traps_of, loader, place)
    settings = settings_of_loader(loader)
    return {
        "dataset": type(loader.dataset).__name__,
        "is_iterable": isinstance(loader.dataset, IterableDataset),
        **{name: value for name, value in settings.items() if name in LOADER_FACTS},
        "drop_last": bool(loader.drop_last),
        "batch_sampler": _batch_sampler_kind(loader),
        "num_batches": known_length(loader.batch_sampler if loader.batch_sampler is not None else loader.sampler),
        "num_samples": length_of(loader.dataset),
        "splits_among_workers": _told(False, splits_among_workers, loader),
        "num_shards": _told(None, num_shards, loader.dataset),
        "is_shuffled": _is_shuffled(loader),
        "spawn_refusal": why_not_spawned(loader) if traps else "",
        "inherited_start": _told("", _inherited_start, loader),
        "traps": traps,
    }


def _is_shuffled(loader: Any) -> bool:
    """Whether one of torch's samplers, or a class derived from one, draws the samples in random order."""
    sampler = loader.sampler if loader.batch_size is not None else getattr(loader.batch_sampler, "sampler", None)
    if isinstance(sampler, DistributedSampler):
        return bool(sampler.shuffle)
    return isinstance(sampler, RandomSampler | WeightedRandomSampler | SubsetRandomSampler)


def _told(default: _Answer, question: Callable[..., _Answer], *arguments: Any) -> _Answer:
    """The answer to a question about the script's own objects; the default where an attribute fails to answer."""
    try:
        return question(*arguments)
    except Exception:  # an attribute of the user's own class
        return default


def _inherited_start(loader: Any) -> str:
    """As `inherited_start` says; empty for a dataset that forked workers may break."""
    method = inherited_start(loader)
    return method if method and survives_fork(loader.dataset) else ""


def _batch_sampler_kind(loader: Any) -> BatchSamplerKind:
    if loader.batch_size is not None:
        return BatchSamplerKind.DEFAULT
    if loader.batch_sampler is None:
        return BatchSamplerKind.NONE
    return BatchSamplerKind.STANDARD if type(loader.batch_sampler) is BatchSampler else BatchSamplerKind.CUSTOM
