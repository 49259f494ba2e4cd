"""The first lines of a tuned config, for people: the writer, the script, and the measured gain."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from autotune.model.verification import VERIFIED_WORDS
from autotune.units import format_bytes, format_interval, format_rate, format_seconds

if TYPE_CHECKING:
    from autotune.emit.tuned_config import TunedConfig


def headline(config: TunedConfig) -> tuple[str, ...]:
    """Sentences about a tuned config, one line each; control characters in outside texts become `?`."""
    source = config.provenance
    lines = (
        f"Written by autotune {source.autotune} on {source.created_at} for {config.script.path}: "
        f"trial {source.trial} of study {source.study}, measured on {source.host.device}.",
        _gain(config),
        *_verified(config),
        _memory(config),
        "autotune.load in the training code reads this file; `autotune run` applies it to an unedited script.",
    )
    return tuple(map(one_line, lines))


def one_line(text: str) -> str:
    """The text with `?` for characters that end a comment or control a terminal."""
    return "".join(char if char.isprintable() else "?" for char in text)


def _gain(config: TunedConfig) -> str:
    rate = (
        f"{format_rate(config.samples_per_second)} {format_interval(*config.interval)} {config.samples_unit} per second"
    )
    if config.baseline_samples_per_second is None:
        return f"{rate}; the script's own settings need more memory than the cap."
    baseline = format_rate(config.baseline_samples_per_second)
    is_own = config.provenance.trial == 0 or config.settings == config.script.natural
    if config.speedup is None or is_own:
        return f"{rate}: no real gain over the script's own settings ({baseline})."
    ratio, least, most = config.speedup
    limit = f" The script was bound by: {config.bottleneck}." if config.bottleneck else ""
    return f"{ratio:.2f}x [{least:.2f}, {most:.2f}] the script's own settings: {rate}, {baseline} before.{limit}"


def _verified(config: TunedConfig) -> Iterator[str]:
    found = config.provenance.verified
    if found is not None:
        ratio, low, high = found.real
        yield (
            f"{VERIFIED_WORDS[found.finding]}: {ratio:.2f}x [{low:.2f}, {high:.2f}] on {found.at}, by {found.num_pairs}"
            f" pairs of runs of {format_seconds(found.window_s)}."
        )


def _memory(config: TunedConfig) -> str:
    cap = format_bytes(config.memory_cap_bytes)
    if config.peak_memory_bytes is None:
        return f"The memory cap was {cap}."
    peak = f"Peak memory {format_bytes(config.peak_memory_bytes)} of the cap of {cap}."
    shared = config.memory.shared_memory_bytes
    if shared is None:
        return peak
    return f"{peak} With `autotune run --share` the allocator reserves at most {format_bytes(shared)}."
