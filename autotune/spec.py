"""A search as plain data, resolved from flags, environment and files."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

TRIALS_OF_ALL_TIME = 100_000
"""Limit of the trials when the time alone limits a search."""
DEFAULT_BUDGET_S = 900.0
DEFAULT_STORAGE = "sqlite:///studies/autotune.db"
DEFAULT_CONFIG = "autotune.yaml"


STARTS = ("auto", "live", "fresh")
"""Values of `SearchSpec.start`."""
PREFIX = "AUTOTUNE_"
KNOB_PREFIX = f"{PREFIX}KNOB_"


def without_ours(environ: Mapping[str, str], settings: Collection[str]) -> dict[str, str]:
    """The variables for a script: all except variables for autotune alone, such as the storage.

    Args:
        environ: Variables of this process.
        settings: Names of settings. `autotune export --to env` writes variables of settings for scripts.
    """
    of_scripts = {f"{PREFIX}{name.upper()}" for name in settings}
    return {
        name: value
        for name, value in environ.items()
        if not name.startswith(PREFIX) or name in of_scripts or name.startswith(KNOB_PREFIX)
    }


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchSpec:
    """The options of a search; stored with the study and used again by a resume."""

    command: tuple[str, ...]
    """Command that starts the script: `python train.py args`, `python -m pkg.train args`, `torchrun ... train.py
    args`."""
    script: str
    """Absolute path of the script, or the module's name after `-m`."""
    cwd: str
    study: str
    storage: str = DEFAULT_STORAGE
    memory_cap: str | None = None
    """As typed: `16GiB` or `80%`; None = 90 % of free memory (CPU: 80 % of available memory)."""
    max_trials: int | None = None
    """None = no limit, and the search ends when little is left to gain; a number is spent in full, within the time."""
    spend_all: bool = False
    """Spend all the time, whatever gain is still expected."""
    budget_s: float = DEFAULT_BUDGET_S
    """Longest wall time, probe and finals included."""
    effective_batch: str = "fixed"
    """`fixed`, `free`, or a range such as `64..1024`."""
    ranges: tuple[tuple[str, str], ...] = ()
    """--set: setting and range, as written."""
    fixed: tuple[tuple[str, str], ...] = ()
    """--fix: setting and value, as written."""
    maps: tuple[tuple[str, str], ...] = ()
    """--map: setting and the template of the script's own argument, with `{}` for the value."""
    samples_per_step: float | None = None
    take_over: str = ""
    """A study of the same script and machine in the same database, with trials that count if they fit; empty = no
    study."""
    out: str = DEFAULT_CONFIG
    """Path of the tuned config, relative to cwd."""
    force: bool = False
    seed: int = 0
    device: str = "auto"
    """`auto`, `cpu`, `cuda` or `cuda:N`."""
    num_processes_per_node: int = 1
    start: str = "auto"
    """`live` measures several settings in one process, `fresh` starts a process for each trial, `auto` is live on a
    GPU."""
    require_gain: bool = False
    share_gpu: bool = False
    allow_batchnorm_accumulation: bool = False
    protection: str = "auto"
    """Protection of the user's files from trials: `auto`, `layers`, `landlock` or `none`."""
    unprotected: bool = False
    """With `auto`: search even if the system permits neither layers nor Landlock."""
    writable: tuple[str, ...] = ()
    """Absolute paths of files and folders that trials write for real."""
    network: bool = False
    """Whether trials have the machine's network after the probe as well."""

    @property
    def asked_names(self) -> frozenset[str]:
        """Names of the settings that the user gave a range or a value, as typed."""
        return frozenset(name for name, _ in (*self.ranges, *self.fixed))

    @property
    def trials_limit(self) -> int:
        """Most trials of the search, baseline included."""
        return self.max_trials if self.max_trials is not None else TRIALS_OF_ALL_TIME

    @property
    def is_spent_in_full(self) -> bool:
        """Whether the search spends its trials or its time although no gain is expected."""
        return self.spend_all or self.max_trials is not None
