"""Takes the place of wandb, which logs to a service: what scripts of the corpus call of it, without effect."""

from __future__ import annotations

from typing import Any


class _Config(dict[str, Any]):
    """A run's configuration."""


class Run:
    """A run that nobody sees."""

    def __init__(self) -> None:
        self.config = _Config()

    def log(self, *_: Any, **__: Any) -> None:
        """Logs nothing."""

    def finish(self) -> None:
        """Ends nothing."""


class Histogram:
    """A histogram that nobody draws."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass


class Image(Histogram):
    """A picture that nobody sees."""


def init(*_: Any, **__: Any) -> Run:
    """A run."""
    return Run()
