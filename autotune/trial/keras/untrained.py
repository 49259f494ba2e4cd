"""Ways of training out of reach of all seams, each with the lines that let a trial count steps."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from autotune.trial.torch.patching import wrap

STEP_LINES = "import autotune, and put each step into: with autotune.step(num_samples): ..."
TAPE = f"it trains in a loop of its own with tf.GradientTape; {STEP_LINES}"
JAX_LOOP = f"it trains in a loop of its own with jax.grad; {STEP_LINES}"
SESSION = f"it trains by a session of TensorFlow 1; {STEP_LINES}"
ESTIMATOR = (
    "it trains by an Estimator, which TensorFlow has given up; train by keras.Model.fit, or count steps of a loop"
)
STRATEGY = (
    "it trains under tf.distribute with several workers, and a trial measures one process; tune a form of the script "
    "with one worker: strategy = tf.distribute.get_strategy()"
)
LEAST_GRADIENTS = 3
"""Fewest gradients of a loop that counts as a training."""


class RawLoops:
    """Watches for training outside `Model.fit` and `train_on_batch`; counts nothing."""

    def __init__(self) -> None:
        self._num: dict[str, int] = {}

    def watch(self, name: str) -> None:
        """Attaches to an engine after the import: `tensorflow` or `jax`."""
        if name == "tensorflow":
            tf = sys.modules[name]
            self._count(tf.GradientTape, "gradient", TAPE)
            self._count(tf.compat.v1.Session, "run", SESSION)
            self._strategies(tf)
        elif name == "jax":
            for function in ("grad", "value_and_grad"):
                self._count(sys.modules[name], function, JAX_LOOP, least=LEAST_GRADIENTS)

    @property
    def has_trained(self) -> bool:
        """Whether a training without a seam was seen."""
        return bool(self.advice())

    def advice(self) -> str:
        """The way of training and the line to add; empty when nothing was seen."""
        if "tensorflow_estimator" in sys.modules:
            return ESTIMATOR
        order = (STRATEGY, SESSION, TAPE, JAX_LOOP)
        return next((text for text in order if self._num.get(text, 0) >= LEAST_GRADIENTS), "")

    def _count(self, owner: Any, name: str, text: str, *, least: int = 1) -> None:
        def make(original: Callable[..., Any]) -> Callable[..., Any]:
            def call(*args: Any, **kwargs: Any) -> Any:
                self._num[text] = self._num.get(text, 0) + least
                return original(*args, **kwargs)

            return call

        wrap(owner, name, make)

    def _strategies(self, tf: Any) -> None:
        for name in ("MultiWorkerMirroredStrategy", "ParameterServerStrategy"):
            for owner in (tf.distribute, tf.distribute.experimental):
                if hasattr(owner, name):
                    self._count(getattr(owner, name), "__init__", STRATEGY, least=LEAST_GRADIENTS)
