"""Steps of a loop of the script's own, out of reach of the frameworks' seams."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from autotune.errors import ConfigError
from autotune.protocol.environment import TRIAL


def step(num_samples: float) -> AbstractContextManager[Any]:
    """A context around an optimizer step of a loop of the script's own; without effect outside a search.

    For loops without torch's optimizers and without `keras.Model.fit`: a `tf.GradientTape`, `jax.grad`. The time
    between two steps counts. A search tries the script's knobs, mapped arguments and the environment.

    Args:
        num_samples: Samples of the step; above 0.

    Raises:
        ConfigError: The number of samples is not above 0.

    Example:
        ```python
        for x, y in dataset:
            with autotune.step(len(x)):
                train_step(x, y)
        ```
    """
    if not num_samples > 0:
        raise ConfigError(f"A step of {num_samples!r} samples trains nothing.", "Give the samples of the batch.")
    if TRIAL not in os.environ:
        return nullcontext()
    from autotune.trial.keras.attach import session_of_process

    session = session_of_process()
    return nullcontext() if session is None else session.own_step(num_samples)
