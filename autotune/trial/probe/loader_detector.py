"""Which DataLoader trains, and what it is: watched in the probe, by the place where loaders are built."""

from __future__ import annotations

import functools
import gc
import itertools
import statistics
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from torch.utils.data import BatchSampler, IterableDataset

from autotune.model.facts import BatchSamplerKind, LoaderFacts
from autotune.trial.apply.observed import settings_of_loader
from autotune.trial.loader.loaders import LoaderRecord, Loaders
from autotune.trial.probe.main_module import start_method
from autotune.trial.step.steps import Steps
from autotune.trial.torch.batch_structure import batch_bytes, leading_size, length_of, tensors_of

UNEVEN_BATCHES = 0.01
"""Relative difference of batches in their bytes from which they count as different: what they cost differs as much, and
the finals tell 1 % apart."""


class _Seen:
    """What was seen of the loaders that were built at one place over one dataset."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.dataset: Any = None
        self.attributes: dict[str, Any] = {}
        self.num_passes = 0
        self.num_passes_before_training = 0
        self.num_delivered = 0
        self.num_trained = 0
        """Backward passes that batches were taken for."""
        self.num_taken = 0
        """Batches that were taken for them: more than one for each where the script puts some together."""
        self.num_taken_at_steps: list[int] = []
        """The same, at the end of each optimizer step."""
        self.num_pending = 0
        """Batches since the last backward pass."""
        self.thread = 0
        """The one that takes the batches."""
        self.iterator: Callable[[], Any] = lambda: None
        """The one that they come from, as a weak reference."""
        self.is_replayed = False
        """Whether `itertools.cycle` keeps them: then the loader is asked for one epoch and never again."""
        self.last_delivery = 0
        self.is_read_before_training = False
        self.is_length_asked_first = False
        self.start_method = ""
        self.batch_bytes = 0
        self.least_batch_bytes: int | None = None
        """Of the batches that are not smaller for want of samples."""
        self.leading_size: int | None = None

    @property
    def batches_vary(self) -> bool:
        """Whether whole batches differ in their bytes."""
        return self.least_batch_bytes is not None and self.batch_bytes > (1 + UNEVEN_BATCHES) * self.least_batch_bytes


class LoaderDetector:
    """Watches all loaders of the script; the one whose batches are followed by backward passes trains."""

    def __init__(self, loaders: Loaders, steps: Steps) -> None:
        self._loaders, self._steps = loaders, steps
        self._seen: dict[str, _Seen] = {}
        self._num_deliveries = 0

    def attach(self, also_built: Callable[[str], None]) -> None:
        """Attaches to the loaders' seam, before that is installed.

        Args:
            also_built: Called with the key of each loader while that is built.
        """
        self._loaders.built = self._built
        self._also_built = also_built
        self._loaders.iterates = self._iterates
        self._loaders.taker = lambda record: functools.partial(self._next_batch, self._of(record))
        self._loaders.length_asked = self._length_asked

    def backward(self) -> None:
        """Notes a backward pass: it used the batches that were taken since the one before."""
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
        """Whether the script reads its training loader in another thread than the one that trains."""
        training = self._training()
        return training is not None and training.thread != self._steps.thread

    @property
    def is_replayed(self) -> bool:
        """Whether the script trains on the training loader's first epoch again and again, kept by `itertools.cycle`."""
        training = self._training()
        return training is not None and training.is_replayed

    @property
    def is_length_asked_first(self) -> bool:
        """Whether the training loader's length was asked for before anything was trained."""
        training = self._training()
        return training is not None and training.is_length_asked_first

    @property
    def start_method(self) -> str:
        """How the training loader's workers are, or would be, started; empty without such a loader."""
        training = self._training()
        return training.start_method if training is not None else ""

    def num_training(self) -> int:
        """Loaders that take part in training alike: above 1, which one to tune is not ours to guess."""
        trained = [seen.num_trained for seen in self._seen.values()]
        most = max(trained, default=0)
        return sum(count * 2 >= most for count in trained) if most > 1 else most

    def empty(self) -> tuple[str, ...]:
        """Places where loaders were built that the script iterated, and that gave no batch."""
        seen = (seen for seen in self._seen.values() if seen.num_passes and not seen.num_delivered)
        return tuple(seen.key.partition("~")[0] for seen in seen)

    def batches_per_step(self) -> int:
        """Batches that the script takes per optimizer step, at least 1.

        Those of a script that reads ahead cannot be told apart: it is taken to use one.
        """
        training = self._training()
        return 1 if training is None or self.is_read_ahead else usual_growth(training.num_taken_at_steps)

    def facts(self) -> LoaderFacts | None:
        """What was learned of the training loader; None where none trains."""
        training = self._training()
        if training is None:
            return None
        # A framework builds its own loader from the script's, over the same dataset: both have to be changed.
        sources = [
            other.key for other in self._seen.values() if other.dataset is training.dataset and other.num_delivered == 0
        ]
        return LoaderFacts(
            keys=(training.key, *sources),
            batch_bytes=training.batch_bytes,
            batches_vary=training.batches_vary,
            is_read_before_training=training.is_read_before_training,
            num_passes_before_training=training.num_passes_before_training,
            **training.attributes,
        )

    def _training(self) -> _Seen | None:
        best = max(self._seen.values(), key=lambda seen: (seen.num_trained, seen.last_delivery), default=None)
        return best if best is not None and best.num_trained else None

    def _of(self, record: LoaderRecord) -> _Seen:
        return self._seen.setdefault(record.key, _Seen(record.key))

    def _built(self, record: LoaderRecord, loader: Any) -> None:
        self._of(record).dataset = loader.dataset
        self._also_built(record.key)

    def _iterates(self, record: LoaderRecord, loader: Any) -> None:
        seen = self._of(record)
        seen.num_passes += 1
        seen.num_pending = 0
        seen.attributes = seen.attributes or _attributes(loader)
        seen.start_method = start_method(loader)

    def _length_asked(self, record: LoaderRecord) -> None:
        if not self._steps.num_backwards:
            self._of(record).is_length_asked_first = True

    def _next_batch(self, seen: _Seen, iterator: Any, original: Callable[[Any], Any]) -> Any:
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
        return batch

    def _note_size(self, seen: _Seen, batch: Any) -> None:
        num_bytes, batch_size = batch_bytes(batch), seen.attributes.get("batch_size")
        seen.batch_bytes = max(seen.batch_bytes, num_bytes)
        if batch_size is None or any(batch_size in tensor.shape for tensor in tensors_of(batch)):
            seen.least_batch_bytes = min(seen.least_batch_bytes or num_bytes, num_bytes)


def _is_kept_by_cycle(iterator: Any) -> bool:
    """Whether what an iterator gives is kept by `itertools.cycle`; looks at all objects that there are."""
    if iterator is None:
        return False
    return any(isinstance(holder, itertools.cycle) for holder in gc.get_referrers(iterator))


def usual_growth(counts: Sequence[int]) -> int:
    """By how much a count grows from one step to the next, at least 1; 1 where there is no step.

    The median: where an epoch's last batches do not fill a step, that is made with fewer. The first step is left out
    where it can be.
    """
    if len(counts) < 2:
        return max([1, *counts])
    return max(1, round(statistics.median(after - before for before, after in itertools.pairwise(counts))))


def _attributes(loader: Any) -> dict[str, Any]:
    """What a DataLoader is, as far as it can be read from it."""
    return {
        "dataset": type(loader.dataset).__name__,
        "is_iterable": isinstance(loader.dataset, IterableDataset),
        **settings_of_loader(loader),
        "drop_last": bool(loader.drop_last),
        "batch_sampler": _batch_sampler_kind(loader),
        "num_batches": length_of(loader.batch_sampler if loader.batch_sampler is not None else loader.sampler),
        "num_samples": length_of(loader.dataset),
    }


def _batch_sampler_kind(loader: Any) -> BatchSamplerKind:
    if loader.batch_size is not None:
        return BatchSamplerKind.DEFAULT
    if loader.batch_sampler is None:
        return BatchSamplerKind.NONE
    return BatchSamplerKind.STANDARD if type(loader.batch_sampler) is BatchSampler else BatchSamplerKind.CUSTOM
