"""Finds the fastest safe settings for your own PyTorch training script, under a memory cap.

Importing this package loads neither torch nor anything that only a search needs: a training job must not pay for the
tuner.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autotune.api import Config, load, micro_batches

    __version__: str

__all__ = ["Config", "__version__", "load", "micro_batches"]

DISTRIBUTION = "torch-autotune"


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import PackageNotFoundError, version

        try:
            value: Any = version(DISTRIBUTION)
        except PackageNotFoundError:
            value = "0+unknown"
    elif name in __all__:
        from autotune import api

        value = getattr(api, name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
