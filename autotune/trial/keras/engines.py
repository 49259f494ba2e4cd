"""The engine below Keras: device, waits for queued work, and weights. An unused engine is never imported."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from typing import Any

from autotune.settings.fit_arrays import leaves

ENGINES = ("tensorflow", "jax", "torch")
NUM_WATCHED, MAX_WATCHED_VALUES = 4, 4096
"""Number of the smallest weights, and of the smallest matrices, to compare between two steps; most values of each."""


def engine_in_use() -> str:
    """The engine of an imported Keras; of a loop without Keras, the imported engine. Empty without any."""
    keras = sys.modules.get("keras")
    if keras is not None and hasattr(keras, "Model"):  # still missing in the middle of the import
        return str(keras.backend.backend())
    return next((engine for engine in ENGINES if engine in sys.modules), "")


def installed_engines() -> tuple[str, ...]:
    """Engines with a package for this Python."""
    return tuple(name for name in ENGINES if name in sys.modules or importlib.util.find_spec(name) is not None)


def device_of(engine: str) -> str:
    """Type of the engine's default device: `cpu`, `cuda` or the engine's own word."""
    if engine == "tensorflow":
        return "cuda" if sys.modules["tensorflow"].config.list_logical_devices("GPU") else "cpu"
    if engine == "jax":
        platform = str(sys.modules["jax"].default_backend())
        return "cuda" if platform == "gpu" else platform
    if engine == "torch":
        return "cuda" if sys.modules["torch"].cuda.is_available() else "cpu"
    return "cpu"


def engine_version(engine: str) -> str:
    """Version of the engine; empty before the import."""
    return str(getattr(sys.modules.get(engine), "__version__", ""))


def num_bytes(batch: Any) -> int:
    """Bytes of the arrays in a batch; arrays that do not tell count as 0."""
    return sum(_bytes(leaf) for leaf in leaves(batch))


def _bytes(array: Any) -> int:
    """Bytes of an array; a tensor of TensorFlow has no `nbytes`, a ragged one no size, a sparse one few values."""
    if getattr(array, "nbytes", None) is not None:
        return int(array.nbytes)
    value_bytes = int(getattr(getattr(array, "dtype", None), "size", 0))
    if not value_bytes or hasattr(array, "dense_shape") or None in tuple(array.shape):
        return 0
    return value_bytes * _size(array)


def logs_of(engine: str, outputs: Any) -> Any:
    """The logs in the outputs of a training function; on JAX the state follows the logs."""
    return outputs[0] if engine == "jax" and isinstance(outputs, tuple) else outputs


def waiter(engine: str, device: str) -> Callable[[Any], None] | None:
    """Waits until the engine has computed the logs of a call; None when calls return with all work done."""
    if engine == "jax":
        return _wait_for_jax
    if device == "cpu":
        return None
    return _wait_for_value


def _wait_for_jax(logs: Any) -> None:
    for leaf in leaves(logs):
        if hasattr(leaf, "block_until_ready"):
            leaf.block_until_ready()
            return


def _wait_for_value(logs: Any) -> None:
    for leaf in leaves(logs):
        if hasattr(leaf, "shape"):
            float(leaf)
            return


def small_weights(engine: str, model: Any, state: Any) -> list[Any]:
    """Copies of a model's smallest trainable weights and matrices, in a fixed order.

    Args:
        engine: The engine.
        model: The trained model; None for a loop of the script's own, whose weights are out of sight.
        state: On JAX the state of the training, because the model holds no weights meanwhile.
    """
    if model is None:
        return []
    weights: Sequence[Any]
    if engine == "jax" and state is not None:
        weights = state[0]
    else:
        weights = [variable.value for variable in model.trainable_variables]
    smallest = sorted((w for w in weights if 0 < _size(w) <= MAX_WATCHED_VALUES), key=_size)
    matrices = [weight for weight in smallest if len(weight.shape) > 1]
    chosen = {id(w): w for w in (*smallest[:NUM_WATCHED], *matrices[:NUM_WATCHED])}
    return [_copied(weight) for weight in chosen.values()]


def _size(weight: Any) -> int:
    size = 1
    for length in weight.shape:
        size *= int(length)
    return size


def _copied(weight: Any) -> Any:
    if hasattr(weight, "detach"):
        return weight.detach().float().cpu().clone().numpy()
    return sys.modules["numpy"].array(weight).astype("float32")


def has_changed(before: Sequence[Any], after: Sequence[Any]) -> bool:
    """Whether a watched weight has another value; True when nothing was compared."""
    if not before or len(before) != len(after):
        return True
    return any(one.shape != other.shape or bool((one != other).any()) for one, other in zip(before, after, strict=True))
