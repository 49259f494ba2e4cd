"""Compares the results of two searches, and refuses results measured under different circumstances."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from autotune.emit.tuned_config import TunedConfig
from autotune.errors import UsageError
from autotune.host import HostFingerprint
from autotune.measure.apart import Estimate, compare_apart
from autotune.measure.student_t import student_t_quantile
from autotune.model.search_result import Contender, SearchResult
from autotune.model.study_comparison import Side, StudyComparison, Yardstick
from autotune.protocol.codec import from_plain
from autotune.settings import Settings
from autotune.store.records import StudyRecord
from autotune.study.status import is_final

NOTHING_GAINED = Estimate(value=1.0, low=1.0, high=1.0)
"""Gain of the baseline over itself."""
LEAST_MINUTES = 2
"""Fewest minutes of a watched run with an interval."""
STORED_FIELDS = {
    "script": "script",
    "arguments": "arguments",
    "--map": "maps",
    "--samples-per-step": "samples_per_step",
    "modules": "modules",
}
"""Fields of a study's fingerprint, by names for the user."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """One side of a comparison with the circumstances of the search."""

    side: Side
    host: HostFingerprint | None
    script_settings: Settings | None
    """The script's own settings, the baseline of every gain."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """Values to be equal on both sides, by names for the user; unknown values are missing."""


def found_by_study(name: str, record: StudyRecord) -> Found:
    """The result of a study, as one side of a comparison.

    Raises:
        UsageError: The study has not ended, or has no measured result.
    """
    result = SearchResult.from_document(record.result) if record.result is not None else None
    if result is None or not is_final(record):
        hint = f"Go on with it: autotune resume {record.name}"
        raise UsageError(
            f"Study {record.name!r} ({record.status}) has no finals yet, so there is no figure of it.", hint
        )
    best = result.best
    rate = _rate(best) if best is not None else None
    if best is None or rate is None:
        hint = f"Why each of its trials ended: autotune studies show {record.name}"
        raise UsageError(f"Study {record.name!r} ({record.status}) found nothing that could be measured.", hint)
    is_own = result.baseline is not None and best.settings == result.baseline.settings
    stored = record.fingerprint
    world_size = record.facts.world_size if record.facts is not None else 1
    host = from_plain(HostFingerprint, stored["host"]) if stored.get("host") else None
    return Found(
        side=Side(
            name=name,
            settings=best.settings,
            rate=rate,
            gain=NOTHING_GAINED if is_own else _estimate(*result.speedup) if result.speedup is not None else None,
            samples_unit=result.samples_unit,
            peak_memory_bytes=best.peak_memory_bytes,
            memory_cap_bytes=result.memory_cap_bytes,
        ),
        host=host,
        script_settings=record.script_settings,
        fields={
            **{name: stored[key] for name, key in STORED_FIELDS.items() if stored.get(key, "") != ""},
            **stored.get("versions", {}),
            "unit": result.samples_unit,
            **_batch(best.settings, world_size),
        },
    )


def found_by_config(name: str, config: TunedConfig) -> Found:
    """The result in a tuned config, as one side of a comparison; a config has fewer circumstances than a study.

    Raises:
        UsageError: The rate lies outside the interval.
    """
    low, high = config.interval
    rate = _estimate(config.samples_per_second, low, high)
    if rate is None:
        raise UsageError(
            f"{name} has no figure to compare: {config.samples_per_second} is not within [{low}, {high}].",
            "Compare its study by name, or search again: the file is not as a search writes it.",
        )
    is_own = config.settings == config.script.natural
    gain = _estimate(*config.speedup) if config.speedup is not None else None
    return Found(
        side=Side(
            name=name,
            settings=config.settings,
            rate=rate,
            gain=NOTHING_GAINED if is_own else gain,
            samples_unit=config.samples_unit,
            peak_memory_bytes=config.peak_memory_bytes,
            memory_cap_bytes=config.memory_cap_bytes,
        ),
        host=config.provenance.host,
        script_settings=config.script.natural,
        fields={
            **({"script": config.script.digest} if config.script.digest else {}),
            "autotune": config.provenance.autotune,
            "unit": config.samples_unit,
            **_batch(config.settings, config.provenance.world_size),
        },
    )


def found_by_log(name: str, text: str, read: Callable[[str], TunedConfig]) -> Found:
    """The last run in a log of `autotune run --watch`, as one side of a comparison.

    Args:
        name: Name of the log.
        text: The log.
        read: Reads the tuned config at a path.

    Raises:
        UsageError: The log has fewer than two minutes of a run.
        ConfigError: The config of the run cannot be read.
    """
    config, rates = "", list[float]()
    for line in text.splitlines():
        try:
            values = json.loads(line)
        except ValueError:
            continue  # The last line of a killed run may be a part.
        if not isinstance(values, dict):
            continue
        if values.get("autotune") == "watch":
            config, rates = str(values.get("config", "")), []
        elif "data_wait_fraction" in values and isinstance(values.get("samples_per_second"), (int, float)):
            rates.append(float(values["samples_per_second"]))
    if not config or len(rates) < LEAST_MINUTES or min(rates) <= 0:
        raise UsageError(f"{name} has fewer than {LEAST_MINUTES} minutes of a run.", "autotune run --watch writes it.")
    found = found_by_config(name, read(config))
    logarithms = [math.log(rate) for rate in rates]
    middle = statistics.fmean(logarithms)
    half = student_t_quantile(0.975, len(rates) - 1) * statistics.stdev(logarithms) / math.sqrt(len(rates))
    rate = Estimate(value=math.exp(middle), low=math.exp(middle - half), high=math.exp(middle + half))
    return replace(found, side=replace(found.side, rate=rate, gain=None, peak_memory_bytes=None))


def comparison(first: Found, second: Found) -> StudyComparison:
    """The ratio of the second result to the first.

    The ratio is one of gains when both have a gain over the same baseline: a slow machine slows the baseline too.
    Otherwise the ratio is one of rates.

    Raises:
        UsageError: The circumstances differ; the message names the fields.
    """
    differences = tuple(why_not(first, second))
    if differences:
        raise UsageError(
            f"{first.side.name} and {second.side.name} cannot be compared: {'; '.join(differences)}.",
            "A figure holds for one script, machine and effective batch; search again where they are the same.",
        )
    gains = (second.side.gain, first.side.gain)
    by = Yardstick.GAIN if all(gains) and first.script_settings == second.script_settings else Yardstick.RATE
    ours, theirs = gains if by is Yardstick.GAIN else (second.side.rate, first.side.rate)
    assert ours is not None and theirs is not None
    return StudyComparison(first=first.side, second=second.side, ratio=compare_apart(ours, theirs), by=by)


def why_not(first: Found, second: Found) -> Iterator[str]:
    """Differences between the circumstances, as `field: here, there`; values unknown to one side are not compared."""
    if first.host is not None and second.host is not None:
        yield from (line.replace(", was ", ", not ") for line in first.host.differences(second.host))
        pythons = (first.host.python, second.host.python)
        if all(pythons) and pythons[0] != pythons[1]:
            yield f"python: {pythons[0]}, not {pythons[1]}"
    for name, here in first.fields.items():
        if name in second.fields and here != second.fields[name]:
            yield f"{name}: {_WORDS.get(name, _plain)(here, second.fields[name])}"


def _plain(here: Any, there: Any) -> str:
    return f"{here}, not {there}"


def _modules(here: Mapping[str, str], there: Mapping[str, str]) -> str:
    changed = sorted(name for name in here.keys() | there.keys() if here.get(name) != there.get(name))
    return f"{', '.join(changed)}, which the script imports, changed between them"


_WORDS: Mapping[str, Callable[[Any, Any], str]] = {
    "script": lambda here, there: "its file changed between them, or it is another",
    "arguments": lambda here, there: "the command changed between them",
    "modules": _modules,
}
"""Words for fields with digests as values."""


def _batch(settings: Settings, world_size: int) -> dict[str, Any]:
    return {"processes": world_size, "effective batch": settings.effective_batch(world_size)}


def _rate(contender: Contender) -> Estimate | None:
    if contender.samples_per_second is None or contender.interval is None:
        return None
    return _estimate(contender.samples_per_second, *contender.interval)


def _estimate(value: float, low: float, high: float) -> Estimate | None:
    """The estimate; None for impossible figures, as in an edited document or file."""
    return Estimate(value=value, low=low, high=high) if 0 < low <= value <= high < math.inf else None
