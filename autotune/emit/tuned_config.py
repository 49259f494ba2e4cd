"""The tuned config as plain data, read from and written to a file.

A file may come from anywhere. Files are therefore parsed as data only, within bounds on size and depth, and every field
is checked.
"""

from __future__ import annotations

import dataclasses
import math
import os
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from autotune.emit import formats
from autotune.emit.headline import headline
from autotune.errors import AutotuneError, ConfigError
from autotune.host import HostFingerprint
from autotune.model.facts import ScriptFacts
from autotune.model.maps import check_map
from autotune.model.usage import Usage
from autotune.model.verification import Finding
from autotune.protocol.codec import from_plain, to_plain
from autotune.settings import Settings
from autotune.settings.unused_blocks import UnusedBlocks
from autotune.units import MIB, format_bytes

SCHEMA = 1
MAX_FILE_BYTES = 4 * MIB
NAME_ONE = "`autotune search` writes a tuned config."


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryShares:
    """Shares of the device's memory for the caching allocator; all None on a CPU."""

    fraction: float | None = None
    """The guard: the cap's share of the measured device's memory, above 0, at most 1."""
    shared_memory_fraction: float | None = None
    """Smallest share with full throughput, plus headroom: for people who share the device."""
    shared_memory_bytes: int | None = None
    """The same in bytes, for devices of any size."""
    expandable_memory_bytes: int | None = None
    """The same with growing segments of the allocator, if notably less; None otherwise."""
    unused_blocks: str = ""
    """Value of the setting with a notably smaller share; empty without."""
    blocks_memory_bytes: int | None = None
    """The same under this value."""

    def __post_init__(self) -> None:
        """Refuses shares outside (0, 1], and a number of bytes below 1."""
        for name in ("fraction", "shared_memory_fraction"):
            share = getattr(self, name)
            if share is not None and not 0 < share <= 1:
                raise ValueError(f"{name} {share!r} is not above 0 and at most 1")
        if self.unused_blocks not in ("", *UnusedBlocks):
            raise ValueError(f"unused_blocks {self.unused_blocks!r} is no value of the setting")
        for name in ("shared_memory_bytes", "expandable_memory_bytes", "blocks_memory_bytes"):
            amount = getattr(self, name)
            if amount is not None and amount < 1:
                raise ValueError(f"{name} {amount!r} is not positive")

    def in_force(self, asked: float, *, total_bytes: int, share: bool, has_options: bool = False) -> float:
        """Share of a device's memory for this training: the smallest of the asked share, the guard, and sharing.

        Args:
            asked: memory_fraction of the settings.
            total_bytes: Memory of the present device.
            share: Leave memory to programs beside this training.
            has_options: Whether the allocator has the options of the smallest share.
        """
        fraction = min(asked, self.fraction or 1.0)
        if not share:
            return fraction
        frugal_bytes = self.expandable_memory_bytes or self.blocks_memory_bytes
        if has_options and frugal_bytes is not None:
            return min(fraction, frugal_bytes / total_bytes)
        if self.shared_memory_bytes is not None:
            return min(fraction, self.shared_memory_bytes / total_bytes)
        return min(fraction, self.shared_memory_fraction or 1.0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Verified:
    """A later comparison of the script with the settings, by real runs in turns."""

    real: tuple[float, float, float]
    """Real ratio with its low and high end."""
    finding: Finding
    """Whether the published ratio held."""
    num_pairs: int
    window_s: float
    """Counted seconds of each run."""
    at: str
    """ISO date and time, in UTC."""

    def __post_init__(self) -> None:
        """Refuses impossible figures."""
        _check_interval("real", self.real[1:])
        _check_moment("at", self.at)
        if self.num_pairs < 1 or not 0 < self.window_s < math.inf:
            raise ValueError(f"num_pairs {self.num_pairs!r} or window_s {self.window_s!r} is impossible")


@dataclass(frozen=True, kw_only=True, slots=True)
class Provenance:
    """Origin of the figures."""

    study: str
    trial: int
    """Number of the winning trial; 0 is the baseline."""
    host: HostFingerprint
    """The measured machine."""
    world_size: int = 1
    """Number of processes in the training."""
    created_at: str
    """ISO date, or date and time, in UTC."""
    autotune: str
    """Version of the writing release."""
    verified: Verified | None = None
    """The newest verification; None before `autotune verify`."""

    def __post_init__(self) -> None:
        """Refuses values outside every search's result."""
        if self.trial < 0 or self.world_size < 1:
            raise ValueError(f"trial {self.trial} or world_size {self.world_size} is impossible")
        _check_moment("created_at", self.created_at)


@dataclass(frozen=True, kw_only=True, slots=True)
class TunedScript:
    """The tuned script, and all facts for applying the settings without an edit."""

    path: str
    """Path as typed by the user; the module's name after `-m`."""
    digest: str
    """SHA-256 of the file in hexadecimal digits; empty without a file."""
    natural: Settings
    """The script's own settings."""
    maps: Mapping[str, str] = field(default_factory=dict)
    """Setting -> template of the script's own argument, such as `--batch-size={}`; see `autotune.model.maps`."""
    facts: ScriptFacts | None = None
    """Facts from the probe; None after a search without injection."""
    splits_batch_norm: bool = False
    """Whether the user allowed smaller batches for BatchNorm."""
    num_processes_per_node: int = 0
    """Processes started by the launcher; a script may start more by itself. 0 = as many as trained."""

    def __post_init__(self) -> None:
        """Refuses malformed templates."""
        for name, template in self.maps.items():
            try:
                check_map(name, template)
            except AutotuneError as error:
                raise ValueError(f"maps.{name} {error.message}".rstrip(".")) from error


@dataclass(frozen=True, kw_only=True, slots=True)
class TunedConfig:
    """The answer of a search: settings and figures, with the script and the machine."""

    schema: int = SCHEMA
    settings: Settings
    samples_per_second: float
    """Throughput of the settings, in the finals."""
    interval: tuple[float, float]
    """Low and high end of the throughput at 95 %."""
    baseline_samples_per_second: float | None = None
    """Throughput of the script's own settings; None if above the memory cap."""
    speedup: tuple[float, float, float] | None = None
    """Ratio to the baseline with its low and high end; None without a real gain or without a baseline."""
    samples_unit: str = "samples"
    """Unit of the rates: `samples`, or `steps` if the number of samples in a step is unknown."""
    peak_memory_bytes: int | None = None
    """Peak memory as compared with the cap."""
    memory_cap_bytes: int
    bottleneck: str = ""
    """Kind of the baseline's bottleneck; empty if unknown."""
    memory: MemoryShares = field(default_factory=MemoryShares)
    usage: Usage | None = None
    """Use of the machine by the settings; None in files of older releases."""
    baseline_usage: Usage | None = None
    """Use of the machine by the script's own settings."""
    provenance: Provenance
    script: TunedScript

    def __post_init__(self) -> None:
        """Refuses impossible figures."""
        if self.schema != SCHEMA:
            raise ValueError(f"schema {self.schema!r} is not {SCHEMA}")
        _check_interval("interval", self.interval)
        if self.speedup is not None:
            _check_interval("speedup", self.speedup[1:])
        rates = (self.samples_per_second, self.baseline_samples_per_second or 1.0)
        if not all(0 < rate < math.inf for rate in rates):
            raise ValueError(f"samples_per_second {rates[0]!r} or the baseline's is not finite and positive")
        if self.samples_unit not in ("samples", "steps"):
            raise ValueError(f"samples_unit {self.samples_unit!r} is neither samples nor steps")
        if self.memory_cap_bytes < 1 or (self.peak_memory_bytes is not None and self.peak_memory_bytes < 0):
            cap, peak = self.memory_cap_bytes, self.peak_memory_bytes
            raise ValueError(f"memory_cap_bytes {cap!r} or peak_memory_bytes {peak!r} is wrong; both must be positive")

    def mismatches(self, host: HostFingerprint) -> tuple[str, ...]:
        """Differences between a machine and the measured machine, one sentence each; empty = the figures hold here.

        Fields are compared if known on both sides: neither empty nor 0. The memory must be known.
        """
        differences = host.differences(self.provenance.host)
        return tuple(f"This machine differs in {difference} when it was measured." for difference in differences)


def _check_interval(name: str, ends: tuple[float, ...]) -> None:
    low, high = ends
    if not 0 <= low <= high < math.inf:
        raise ValueError(f"{name} [{low!r}, {high!r}] is not finite, positive and in order")


def _check_moment(name: str, text: str) -> None:
    try:
        datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError(f"{name} {text!r}: {error}") from error


def read_config(path: str | os.PathLike[str]) -> TunedConfig:
    """The tuned config in a file; YAML, TOML or JSON by the suffix. Nothing in the file is ever executed.

    Raises:
        ConfigError: The file is missing, unreadable, larger than 4 MiB, malformed, from a newer release, or holds an
            impossible value.
    """
    file = Path(path)
    kind = formats.kind_of(file)
    text = _read_text(file)
    try:
        values = formats.FORMATS[kind].parse(text)
        if not isinstance(values, Mapping) or "schema" not in values:
            raise ValueError("it has no `schema`")
    except AutotuneError as error:
        raise ConfigError(f"{file} is not a tuned config: {error.message}", error.hint) from error
    except (ValueError, RecursionError) as error:
        hint = "Run `autotune search` again to write it."
        raise ConfigError(f"{file} is not a tuned config: {error}.", hint) from error
    return _built(values, file)


def _read_text(file: Path) -> str:
    try:
        if not file.is_file():
            reason = "is not a regular file" if file.exists() else "does not exist"
            raise ConfigError(f"{file} {reason}.", NAME_ONE)
        with file.open("rb") as stream:
            content = stream.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}.", "See who may read it.") from error
    if len(content) > MAX_FILE_BYTES:
        raise ConfigError(f"{file} is larger than {format_bytes(MAX_FILE_BYTES)}, so it is no tuned config.", NAME_ONE)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file} is not UTF-8 text, so it is no tuned config.", NAME_ONE) from error


def _built(values: Mapping[str, Any], file: Path) -> TunedConfig:
    """The tuned config of the values of a file.

    Raises:
        ConfigError: A newer release wrote the file, a value is impossible, or a key is missing or unknown; names the
            key and the value.
    """
    start, name = f"The tuned config {file} cannot be used:", TunedConfig.__name__
    schema = values["schema"]
    if isinstance(schema, int) and not isinstance(schema, bool) and schema > SCHEMA:
        message = f"{start} its schema {schema} is newer than this release reads ({SCHEMA})."
        raise ConfigError(message, "Install a newer torch-autotune.")
    try:
        _check_knobs(values.get("settings"))
        return from_plain(TunedConfig, _with_nulls(TunedConfig, values))
    except (ValueError, RecursionError) as error:
        words = str(error).removeprefix(f"{name}.").replace(f"{name} ", "it ").rstrip(".")
        hint = "Mend that value, or run `autotune search` again to write the file."
        raise ConfigError(f"{start} {words}.", hint) from error


def _check_knobs(settings: Any) -> None:
    knobs = settings.get("knobs", {}) if isinstance(settings, Mapping) else {}
    for name, value in knobs.items() if isinstance(knobs, Mapping) else ():
        if not isinstance(value, str):
            raise ValueError(f"the knob {name} is {value!r}, not text; write it in quotes")


def _with_nulls(kind: Any, value: Any) -> Any:
    """The values with None for missing optional fields, because TOML has no null."""
    options = [kind, *typing.get_args(kind)]
    kind = next((option for option in options if dataclasses.is_dataclass(option)), None)
    if kind is None or kind is Settings or not isinstance(value, Mapping):
        return value
    filled = dict(value)
    hints = typing.get_type_hints(kind)
    for member in dataclasses.fields(kind):
        if member.name in filled:
            filled[member.name] = _with_nulls(hints[member.name], filled[member.name])
        elif type(None) in typing.get_args(hints[member.name]):
            filled[member.name] = None
    return filled


def config_text(config: TunedConfig, kind: str) -> str:
    """The text of a tuned config as `yaml`, `toml` or `json`; the first two begin with comments for people.

    Raises:
        ConfigError: The format cannot express a text or a number of the config.
    """
    try:
        return formats.FORMATS[kind].render(to_plain(config), headline(config))
    except ValueError as error:
        hint = "Take another form: yaml, toml or json."
        raise ConfigError(f"The tuned config cannot be written as {kind}: {error}.", hint) from error
