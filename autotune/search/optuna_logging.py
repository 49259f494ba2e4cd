"""Optuna's log messages, silenced for our own calls only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import optuna


@contextmanager
def quiet() -> Iterator[None]:
    """Silences Optuna's messages below errors, and restores its verbosity afterwards."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(max(before, optuna.logging.ERROR))
    try:
        yield
    finally:
        optuna.logging.set_verbosity(before)
