"""Finds the fastest safe settings for your own PyTorch training script, under a memory cap.

The import loads neither torch nor the packages of a search: a training job must not pay for the tuner.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autotune import integrations, storage
    from autotune.api import Config, load, micro_batches, step
    from autotune.model.search_result import SearchResult
    from autotune.study.public import resume, search

    __version__: str

__all__ = [
    "Config",
    "SearchResult",
    "__version__",
    "integrations",
    "load",
    "micro_batches",
    "resume",
    "search",
    "step",
    "storage",
]

DISTRIBUTION = "torch-autotune"
_HOMES = {"SearchResult": "model.search_result", "resume": "study.public", "search": "study.public"}
"""Modules of the public names; names without an entry are in `api`."""


class _Package(ModuleType):
    """The package with the function `search`, which an import of the room `search` would otherwise replace."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "search" and isinstance(value, ModuleType):
            return
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import PackageNotFoundError, version

        try:
            value: Any = version(DISTRIBUTION)
        except PackageNotFoundError:
            value = "0+unknown"
    elif name in ("integrations", "storage"):
        value = import_module(f"{__name__}.{name}")
    elif name in __all__:
        value = getattr(import_module(f"{__name__}.{_HOMES.get(name, 'api')}"), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
