"""Recognises samplers with a length and without an end.

YOLOX, for instance, takes `len(loader)` batches of an endless sampler for an epoch, and the batches of the next epoch
from the same iteration. If the iteration ended after `len(loader)` batches, YOLOX would end with an error.
"""

from __future__ import annotations

import copy
import itertools
import random
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import GeneratorType
from typing import Any

import torch

from autotune.trial.torch.batch_structure import known_length

LONGEST_COUNT_S = 1.0
"""Longest time to count a sampler's batches, in seconds; a million samples take a second."""
LEAST_LENGTHS = 2
"""An endless sampler gives more batches than this multiple of the length. A finite sampler may exceed the length, too,
by a small last batch."""
MOST_PARTS = 4
"""Most samplers within one another to look at."""
TORCH = "torch.utils.data"
"""Package of finite samplers."""
ITERATIONS = (GeneratorType, itertools.chain, itertools.cycle, itertools.islice)
"""Types of a stored iteration. A finite stored iteration would be over after the first epoch."""


def is_endless(sampler: Any) -> bool:
    """Whether a batch sampler goes on beyond its length.

    Args:
        sampler: The script's own batch sampler. A shallow copy is counted, and the common random generators get their
            states back. A generator of the sampler's own is shared with the copy, so its later order may differ.

    Returns:
        False also where the sampler has no length, fails, or takes too long to count.
    """
    length, parts = known_length(sampler), list(_parts(sampler))
    if length is None or all(type(part).__module__.startswith(TORCH) for part in parts):
        return False
    if any(isinstance(value, ITERATIONS) for part in parts for value in getattr(part, "__dict__", {}).values()):
        return True  # counting would use up the stored iteration
    try:
        with _kept_random_states():
            return _gives_more(iter(copy.copy(sampler)), LEAST_LENGTHS * length)
    except Exception:  # a sampler of the user's own may need what a copy lacks
        return False


def _parts(sampler: Any) -> Iterator[Any]:
    """A batch sampler and the samplers within."""
    for _ in range(MOST_PARTS):
        if sampler is None:
            return
        yield sampler
        within = getattr(sampler, "batch_sampler", None)
        sampler = within if within is not None else getattr(sampler, "sampler", None)


def _gives_more(batches: Iterator[Any], number: int) -> bool:
    """Whether there are more batches than this number; False after `LONGEST_COUNT_S`."""
    ends_at = time.perf_counter() + LONGEST_COUNT_S
    for index, _ in enumerate(batches):
        if index >= number or time.perf_counter() > ends_at:
            return index >= number
    return False


@contextmanager
def _kept_random_states() -> Iterator[None]:
    numpy: Any = sys.modules.get("numpy")
    of_torch, of_python = torch.get_rng_state(), random.getstate()
    of_numpy = numpy.random.get_state() if numpy is not None else None
    try:
        yield
    finally:
        torch.set_rng_state(of_torch)
        random.setstate(of_python)
        if numpy is not None:
            numpy.random.set_state(of_numpy)
