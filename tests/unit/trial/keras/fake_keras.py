"""A stand-in for Keras 3 without an engine: a model with `compile`, `fit` and `train_on_batch`."""

from __future__ import annotations

import math
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import pytest


class Callback:
    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None: ...
    def on_epoch_end(self, epoch: int, logs: Any = None) -> None: ...
    def on_test_begin(self, logs: Any = None) -> None: ...
    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None: ...
    def on_train_batch_end(self, batch: int, logs: Any = None) -> None: ...


class CallbackList:
    def __init__(self, callbacks: list[Any]) -> None:
        self.callbacks = callbacks

    def append(self, callback: Any) -> None:
        self.callbacks.append(callback)


class Optimizer:
    gradient_accumulation_steps: int | None = None


class Variable:
    def __init__(self, value: Any) -> None:
        self.value, self.shape = value, value.shape


class Layer:
    def __init__(self, compute_dtype: str = "float32") -> None:
        self.compute_dtype = compute_dtype
        self.weights = [1]
        self.dtype_policy = types.SimpleNamespace(name=compute_dtype)


class Model:
    """Trains by adding the number of samples to its weight."""

    layers: list[Layer]

    def __init__(self) -> None:
        self.layers = [Layer(policy["compute"])]
        self.trainable_variables = [Variable(numpy.zeros((2, 2)))]
        self.train_function: Callable[..., Any] | None = None
        self.batches: list[Any] = []
        self.loss = "mse"

    def compile(
        self, optimizer: Any = "rmsprop", loss: Any = None, steps_per_execution: int = 1, jit_compile: Any = "auto"
    ) -> None:
        self.optimizer = optimizers.get(optimizer)
        self.loss = loss
        self.steps_per_execution, self.jit_compile, self.run_eagerly = steps_per_execution, jit_compile is True, False
        self.train_function = None

    def train_step(self, batch: Any) -> Any: ...

    def make_train_function(self) -> None:
        if self.train_function is not None:
            return

        def train(iterator: Iterator[Any]) -> Any:
            for _ in range(self.steps_per_execution):
                batch = next(iterator)
                self.batches.append(batch)
                self.trainable_variables[0].value = self.trainable_variables[0].value + len(batch[0])
            return {"loss": 1.0}

        self.train_function = train

    def fit(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        epochs: int = 1,
        callbacks: Any = None,
        validation_data: Any = None,
        validation_split: float = 0.0,
        initial_epoch: int = 0,
        steps_per_epoch: int | None = None,
        validation_steps: int | None = None,
    ) -> int:
        """The number of epochs asked for."""
        self.make_train_function()
        size = batch_size or 32
        listed = getattr(callbacks, "callbacks", callbacks) or []
        assert self.train_function is not None
        for epoch in range(initial_epoch, epochs):
            for each in listed:
                each.on_epoch_begin(epoch)
            iterator = iter([(x[at : at + size], y[at : at + size]) for at in range(0, len(x), size)])
            for _ in range(math.ceil(len(x) / size / self.steps_per_execution)):
                self.train_function(iterator)
            if validation_data is not None:
                for each in listed:
                    each.on_test_begin()
            for each in listed:
                each.on_epoch_end(epoch)
        return epochs

    def train_on_batch(self, x: Any, y: Any) -> Any:
        self.make_train_function()
        assert self.train_function is not None
        return self.train_function(iter([(x, y)]))


Model.train_step.__module__ = "keras.src.trainer"
policy = {"name": "float32", "compute": "float32"}
optimizers = types.SimpleNamespace(get=lambda given: Optimizer() if isinstance(given, str) else given)


def set_dtype_policy(name: str) -> None:
    policy.update(name=name, compute=name.removeprefix("mixed_"))


def install(monkeypatch: pytest.MonkeyPatch, engine: str = "numpy") -> types.ModuleType:
    """The stand-in as the imported `keras`, with a fresh class of models."""
    monkeypatch.setitem(policy, "name", "float32")
    monkeypatch.setitem(policy, "compute", "float32")
    module = types.ModuleType("keras")
    parts = {
        "__version__": "3.0",
        "Model": type("Model", (Model,), {}),
        "backend": types.SimpleNamespace(backend=lambda: engine),
        "callbacks": types.SimpleNamespace(Callback=Callback, CallbackList=CallbackList),
        "config": types.SimpleNamespace(set_dtype_policy=set_dtype_policy),
        "mixed_precision": types.SimpleNamespace(),
        "optimizers": optimizers,
        "utils": types.SimpleNamespace(set_random_seed=lambda seed: None),
    }
    for name, value in parts.items():
        setattr(module, name, value)
    monkeypatch.setitem(sys.modules, "keras", module)
    return module
