"""Takes the place of wandb, a client of a logging service: the calls of the corpus' scripts, without effect."""

from __future__ import annotations

from typing import Any


class _Config(dict[str, Any]):
    """A run's configuration."""


class Run:
    """A run without readers."""

    def __init__(self) -> None:
        self.config = _Config()

    def log(self, *_: Any, **__: Any) -> None:
        """Logs nothing."""

    def finish(self) -> None:
        """Ends nothing."""


class Histogram:
    """A histogram, never drawn."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass


class Image(Histogram):
    """A picture, never shown."""


def init(*_: Any, **__: Any) -> Run:
    """A run."""
    return Run()
