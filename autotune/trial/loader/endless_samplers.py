"""Tells samplers that go on for ever although they have a length.

A script over such a sampler, as YOLOX, takes `len(loader)` batches for an epoch and the next epoch from the same
iteration. An iteration that ends after `len(loader)` batches would end the script.
"""

from __future__ import annotations

import copy
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

import torch

from autotune.trial.torch.batch_structure import known_length

MOST_COUNTED = 100_000
"""Longest sampler to count, in batches: takes less than a second, and no trial comes to the end of a longer one."""
TORCH = "torch.utils.data"
"""Package of the samplers known to end."""


def is_endless(sampler: Any) -> bool:
    """Whether a batch sampler gives more batches than its length says.

    Args:
        sampler: The script's own batch sampler. A copy is counted, and random generators keep their states. A copy
            shares a generator of the sampler's own with the sampler, which then gives another order.

    Returns:
        False also where the sampler has no length, a length over `MOST_COUNTED`, or fails.
    """
    length = known_length(sampler)
    if length is None or length > MOST_COUNTED or _is_of_torch(sampler):
        return False
    try:
        with _kept_random_states():
            return sum(1 for _ in islice(iter(copy.copy(sampler)), length + 1)) > length
    except Exception:  # a sampler of the user's own may need what a copy lacks
        return False


def _is_of_torch(sampler: Any) -> bool:
    """Whether torch's own classes draw the samples and batch them."""
    parts = (sampler, getattr(sampler, "sampler", None))
    return all(part is None or type(part).__module__.startswith(TORCH) for part in parts)


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
