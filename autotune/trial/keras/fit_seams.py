"""Wraps Keras' `Model.compile`, `fit` and `make_train_function` for a session."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from autotune.settings.jit_compile import MARK as GIVEN_JIT_COMPILE
from autotune.trial.torch.patching import wrap

COUNTED = "_autotune_counted"
"""Attribute of a training function with a seam."""
BATCH_HOOKS = ("on_train_batch_begin", "on_train_batch_end", "on_batch_begin", "on_batch_end")

Train = Callable[[Any, Callable[..., Any], tuple[Any, ...]], Any]
"""Calls a training function, given the model and the arguments."""
Arguments = dict[str, Any]
"""Arguments of a call by name, without the model."""


class FitSeams:
    """The calls by which a Keras script trains; a session fills the attributes.

    `fit` and `train_on_batch` both train by the function that `make_train_function` leaves in the model.
    """

    def __init__(self) -> None:
        self.before_compile: Callable[[Arguments], None] = lambda arguments: None
        """May change the arguments of `compile`."""
        self.before_fit: Callable[[Any, Arguments], None] = lambda model, arguments: None
        """May change the arguments of `fit`, given the model."""
        self.train: Train = lambda model, function, args: function(*args)
        """Calls the training function of a model for one batch, or for `steps_per_execution` batches."""
        self.epoch_begins: Callable[[], None] = lambda: None
        self.epoch_ends: Callable[[], None] = lambda: None
        """Called before the validation, and at the end of an epoch without validation."""
        self.depth = 0
        """1 within `fit`."""
        self.compile_arguments: Arguments = {}
        """Arguments of the last `compile`, as given by the script."""

    def install(self) -> None:
        """Attaches to Keras."""
        import keras

        wrap(keras.Model, "compile", self._wrap_compile)
        wrap(keras.Model, "fit", self._wrap_fit)
        wrap(keras.Model, "make_train_function", self._wrap_make)

    def _wrap_compile(self, original: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(original)

        def compile_model(model: Any, *args: Any, **kwargs: Any) -> Any:
            arguments = _by_name(signature, model, args, kwargs)
            self.compile_arguments = dict(arguments)
            self.before_compile(arguments)
            # Past Keras' own __setattr__: Keras tracks the attributes of a model.
            object.__setattr__(model, GIVEN_JIT_COMPILE, arguments.get("jit_compile", "auto"))
            return original(model, **arguments)

        return compile_model

    def _wrap_fit(self, original: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(original)

        def fit(model: Any, *args: Any, **kwargs: Any) -> Any:
            if self.depth:
                return original(model, *args, **kwargs)
            arguments = _by_name(signature, model, args, kwargs)
            self.before_fit(model, arguments)
            arguments["callbacks"] = self._with_ours(arguments.get("callbacks"))
            self.depth = 1
            try:
                return original(model, **arguments)
            finally:
                self.depth = 0

        return fit

    def _wrap_make(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def make_train_function(model: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(model, *args, **kwargs)
            function = model.train_function
            if function is not None and not hasattr(function, COUNTED):

                def train(*args: Any) -> Any:
                    return self.train(model, function, args)

                setattr(train, COUNTED, function)
                model.train_function = train
            return result

        return make_train_function

    def _with_ours(self, callbacks: Any) -> Any:
        """The callbacks of `fit`, ours first: a checkpoint at an epoch's end belongs to the pause."""
        import keras

        class Epochs(keras.callbacks.Callback):  # type: ignore[misc]
            """Tells a session of the ends of epochs, and of no batch: a hook for batches makes Keras read all logs."""

            def on_epoch_begin(_, epoch: int, logs: Any = None) -> None:  # noqa: N805
                self.epoch_begins()

            def on_test_begin(_, logs: Any = None) -> None:  # noqa: N805
                self.epoch_ends()

            def on_epoch_end(_, epoch: int, logs: Any = None) -> None:  # noqa: N805
                self.epoch_ends()

        if isinstance(callbacks, keras.callbacks.CallbackList):
            callbacks.append(Epochs())
            return callbacks
        return [Epochs(), *_flat(callbacks)]


def has_batch_callbacks(callbacks: Any) -> bool:
    """Whether a callback in the argument of `fit` acts before or after single batches."""
    import keras

    inner = getattr(callbacks, "callbacks", callbacks)
    return any(_acts_on_batches(each, keras.callbacks.Callback) for each in _flat(inner))


def _flat(callbacks: Any) -> list[Any]:
    if callbacks is None:
        return []
    if isinstance(callbacks, (list, tuple)):
        return [found for each in callbacks for found in _flat(each)]
    return [callbacks]


def _acts_on_batches(callback: Any, base: Any) -> bool:
    if type(callback).__module__.partition(".")[0] == "keras" and type(callback).__name__ != "LambdaCallback":
        own = {getattr(callback, name, "epoch") for name in ("save_freq", "update_freq")}
        return own != {"epoch"}
    return any(
        name in vars(callback) or getattr(type(callback), name, None) is not getattr(base, name, None)
        for name in BATCH_HOOKS
    )


def _by_name(signature: inspect.Signature, model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Arguments:
    """Arguments of a method by name, without the model."""
    bound = signature.bind(model, *args, **kwargs)
    named = dict(bound.arguments)
    named.pop(next(iter(signature.parameters)))
    for name, parameter in signature.parameters.items():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            named.update(named.pop(name, {}))
    return named
