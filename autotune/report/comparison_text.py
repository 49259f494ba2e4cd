"""Two searches side by side, in words and as a document. Pure."""

from __future__ import annotations

from typing import Any

from autotune.measure.apart import Estimate
from autotune.model.study_comparison import Contrast, Side, Yardstick
from autotune.report.status_text import table_text
from autotune.report.words import clean, ratio_text, value_text
from autotune.units import format_bytes, format_interval, format_rate

SCHEMA = 1


def contrast_text(contrast: Contrast) -> str:
    """The answer in one sentence, both sides beside each other, and what the comparison rests on."""
    return "\n".join([_answer(contrast), "", _table(contrast), _basis(contrast), ""])


def contrast_document(contrast: Contrast) -> dict[str, Any]:
    """The comparison as plain values for `--json`."""
    return {
        "schema": SCHEMA,
        "ratio": _plain(contrast.ratio),
        "is_beyond_noise": contrast.is_beyond_noise,
        "by": contrast.by.value,
        "first": _side(contrast.first),
        "second": _side(contrast.second),
    }


def _answer(contrast: Contrast) -> str:
    first, second = clean(contrast.first.name), clean(contrast.second.name)
    if not contrast.is_beyond_noise:
        ratio = ratio_text((contrast.ratio.value, contrast.ratio.low, contrast.ratio.high))
        return f"No difference beyond the noise: {second} trains {ratio} as fast as {first}."
    faster, slower, ratio_of = (second, first, contrast.ratio)
    if contrast.ratio.value < 1:
        inverse = Estimate(value=1 / ratio_of.value, low=1 / ratio_of.high, high=1 / ratio_of.low)
        faster, slower, ratio_of = first, second, inverse
    ratio = ratio_text((ratio_of.value, ratio_of.low, ratio_of.high))
    return f"{faster} trains {ratio} as many {contrast.first.samples_unit} per second as {slower}."


def _table(contrast: Contrast) -> str:
    sides = (contrast.first, contrast.second)
    rows = [
        (f"{contrast.first.samples_unit} per second", *(_estimate(side.rate) for side in sides)),
        ("against its baseline", *(_gain(side.gain) for side in sides)),
        ("peak memory", *(_memory(side) for side in sides)),
    ]
    differences = contrast.first.settings.differences(contrast.second.settings)
    rows += [(name, value_text(here), value_text(there)) for name, (here, there) in differences.items()]
    return table_text(("", contrast.first.name, contrast.second.name), rows)


def _basis(contrast: Contrast) -> str:
    if contrast.by is Yardstick.GAIN:
        return "By their gains over the same baseline, which was measured in turns with each."
    return "By their rates, of two different moments: what the machine did in between is not in the interval."


def _estimate(rate: Estimate) -> str:
    return f"{format_rate(rate.value)} {format_interval(rate.low, rate.high)}"


def _gain(gain: Estimate | None) -> str:
    if gain is None:
        return "-"
    return "it is the baseline" if gain.low == gain.high == 1.0 else ratio_text((gain.value, gain.low, gain.high))


def _memory(side: Side) -> str:
    peak = format_bytes(side.peak_memory_bytes) if side.peak_memory_bytes is not None else "-"
    return f"{peak} of {format_bytes(side.memory_cap_bytes)}"


def _plain(estimate: Estimate) -> dict[str, float]:
    return {"value": estimate.value, "low": estimate.low, "high": estimate.high}


def _side(side: Side) -> dict[str, Any]:
    return {
        "name": side.name,
        "settings": side.settings.to_dict(),
        "samples_per_second": _plain(side.rate),
        "gain": _plain(side.gain) if side.gain is not None else None,
        "samples_unit": side.samples_unit,
        "peak_memory_bytes": side.peak_memory_bytes,
        "memory_cap_bytes": side.memory_cap_bytes,
    }
