"""Scripts and machines, for a setting's decision whether a search tries the setting.

Trials never decide, so the files of the settings import this file for annotations alone.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from autotune.settings.setting import Group

if TYPE_CHECKING:
    from autotune.settings.data_type import Settings


class Device(Protocol):
    """The device that trains; `host.DeviceInfo` is an example."""

    @property
    def name(self) -> str:
        """Name for people."""

    @property
    def capability(self) -> tuple[int, int] | None:
        """CUDA compute capability, major and minor; None where unknown."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False, repr=False)
class ScriptCase:
    """A script, unedited, with the permissions of its user.

    `facts` are a `model.facts.ScriptFacts`, by shape alone: the room `model` lies above this room.
    """

    facts: Any
    is_cpu: bool
    """The training has no accelerator."""
    mapped: Collection[str] = ()
    """Settings that reach the script as arguments."""
    splits_batch_norm: bool = False
    """The user allows BatchNorm to see smaller batches."""

    def is_claimed(self, group: Group) -> bool:
        """Whether the script applies a group by itself, through `autotune.load`."""
        return group in self.facts.claims


@dataclass(frozen=True, kw_only=True, slots=True, eq=False, repr=False)
class SearchCase(ScriptCase):
    """A script on a machine, in a search."""

    own: Settings
    """The script's own settings."""
    asked: Collection[str]
    """Settings that the user names."""
    device: Device
    cpus: float
    """Usable cores of one rank."""
    is_linux: bool
    is_batch_free: bool = False
    """The search may change the samples of an optimizer step."""
