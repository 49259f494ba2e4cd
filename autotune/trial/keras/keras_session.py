"""Base of the sessions of a Keras script: finds the trained model, and hears of every training call."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

from autotune.trial.keras import keras_names
from autotune.trial.keras.engines import engine_in_use
from autotune.trial.keras.fit_data import BatchFeed
from autotune.trial.keras.fit_seams import Arguments, FitSeams


class KerasSession:
    """Seams of a process for one model: the latest model of a `fit`, or the first model trained on single batches."""

    def __init__(self) -> None:
        self.seams, self.feed = FitSeams(), BatchFeed()
        self.model: Any = None
        self.fit: Arguments = {}
        """Arguments of the running `fit`, as given to the engine; empty for single batches."""
        self.engine = ""
        self._has_model = False
        self._is_inside = False
        """Whether a call of the training function is running."""

    def install(self) -> None:
        """Attaches to the process."""
        self.engine = engine_in_use()

    def imported(self, name: str) -> None:
        """Attaches to Keras after the import; a loop of the script's own needs no seams.

        Args:
            name: The module imported just now: `keras`, or an engine.
        """
        if name != "keras":
            return
        self.engine = engine_in_use()
        self.seams.before_compile = self.before_compile
        self.seams.before_fit = self.before_fit
        self.seams.train = self._train
        self.seams.epoch_begins = self._epoch_begins
        self.seams.epoch_ends = self.epoch_ends
        self.seams.install()
        self.attached()
        if self.engine == "torch":
            keras_names.watch_batches(self.feed, lambda: self.seams.depth == 1 and self._is_training)

    # To be overridden -------------------------------------------------------------------------------------------

    def attached(self) -> None:
        """Hears of the seams' attachment, before the script has built a model."""

    def before_compile(self, arguments: Arguments) -> None:
        """May change the arguments of `compile`."""

    def before_fit(self, model: Any, arguments: Arguments) -> None:
        """May change the arguments of `fit`, and keeps the result."""
        self.fit = arguments
        self._is_training = True
        self.model, self._has_model = model, True

    def epoch_begins(self) -> None:
        """Hears of an epoch."""

    def epoch_ends(self) -> None:
        """Hears of the end of an epoch's training; may come twice."""
        self._is_training = False

    def arrives(self) -> None:
        """Hears of the beginning of a training call; the call before is done."""

    def trained(self, outputs: Any, began: float) -> None:
        """Hears of the end of a call.

        Args:
            outputs: Result of the training function.
            began: Beginning of the call, in seconds of `time.perf_counter`.
        """

    # ------------------------------------------------------------------------------------------------------------

    _is_training = True
    """Whether the loop of `fit` is between the beginning and the end of an epoch's training."""

    def _epoch_begins(self) -> None:
        self._is_training = True
        self.feed.epoch_begins()
        self.epoch_begins()

    def _train(self, model: Any, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        if not self._has_model:
            self.model, self._has_model = model, True
        if self._is_inside or model is not self.model:
            return function(*args)
        self.arrives()
        given = self.feed.given(args)
        began = perf_counter()
        self._is_inside = True
        try:
            outputs = function(*given)
        finally:
            self._is_inside = False
        self.trained(outputs, began)
        return outputs

    def own_step(self, num_samples: float) -> OwnStep:
        """A step of a loop of the script's own."""
        return OwnStep(self, num_samples)


class OwnStep:
    """The context of `autotune.step`: one optimizer step of a loop of the script's own."""

    __slots__ = ("_began", "_num_samples", "_session")

    def __init__(self, session: KerasSession, num_samples: float) -> None:
        self._session, self._num_samples = session, num_samples
        self._began = 0.0

    def __enter__(self) -> None:
        """Begins the step."""
        session = self._session
        session.engine = session.engine or engine_in_use()
        session.arrives()
        self._began = perf_counter()

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Ends the step, unless an exception ends the script."""
        if error is not None:
            return
        taken = self._session.feed.taken
        taken.num_batches, taken.num_samples, taken.wait_s = 1, self._num_samples, 0.0
        self._session.trained(None, self._began)
