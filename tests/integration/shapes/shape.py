"""One shape that training scripts have: its files, how it is started, and what must come of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

FINDS, OVERRIDES, SAMPLES = "finds the loader", "overrides it", "samples per step"
PRECISION, ACCUMULATION = "precision", "accumulation"
STOP, MEMORY, IN_FORCE = "stop", "memory", "settings in force"
FEATURES = (FINDS, OVERRIDES, SAMPLES, PRECISION, ACCUMULATION, STOP, MEMORY, IN_FORCE)

TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--max-restarts=0")


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A script as somebody would write it.

    Attributes:
        name: What is special about it.
        sources: Files by their names in the shape's folder: a text, or the file to copy.
        script: The file that is started, or the module after -m.
        arguments: Of the script.
        launcher: What stands between the interpreter and the script.
        num_processes: That train together.
        num_samples: Of the dataset that it trains on; None where that has no length.
        samples_per_step: Of one optimizer step of all processes, under its own settings; 1 where steps are counted.
        num_read_ahead: Batches that a queue of its own holds; how full it is may change while a trial measures.
        refused: By feature, words of the reason that must be given before the first trial; all others must pass.
        changes: Values to ask for, other than the usual ones.
        wishes: Of the user: fields of SearchSpec.
        is_core: Run with the fast tests.
        needs: Libraries that it needs, which are not among the package's own.
        needs_a_cold_start: Its processes, or what it does to its interpreter, want one of their own.
    """

    name: str
    sources: Mapping[str, str | Path]
    script: str = "train.py"
    arguments: tuple[str, ...] = ()
    launcher: tuple[str, ...] = ()
    num_processes: int = 1
    num_samples: int | None = 96
    samples_per_step: float = 8.0
    num_read_ahead: int = 0
    refused: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    changes: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    wishes: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    is_core: bool = False
    needs: tuple[str, ...] = ()
    needs_a_cold_start: bool = False

    @property
    def folder(self) -> str:
        """Name of its folder."""
        return "".join(letter if letter.isalnum() else "_" for letter in self.name)

    def texts(self) -> dict[str, str]:
        """Its files."""
        return {
            name: source if isinstance(source, str) else source.read_text() for name, source in self.sources.items()
        }

    def command(self) -> tuple[str, ...]:
        """What follows the interpreter."""
        return (*self.launcher, self.script, *self.arguments)
