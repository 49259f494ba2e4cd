"""Two searches side by side, in words and as a document. Pure."""

from __future__ import annotations

from typing import Any

from autotune.measure.apart import Estimate
from autotune.model.study_comparison import Side, StudyComparison, Yardstick
from autotune.report.status_text import table_text
from autotune.report.words import clean, ratio_text, value_text
from autotune.units import format_bytes, format_interval, format_rate

SCHEMA = 1


def comparison_text(comparison: StudyComparison) -> str:
    """The answer as a sentence, a table of both sides, and the basis of the comparison."""
    answer, rows, basis = comparison_lines(comparison)
    table = table_text(("", comparison.first.name, comparison.second.name), rows)
    return "\n".join([answer, "", table, basis, ""])


def comparison_lines(comparison: StudyComparison) -> tuple[str, list[tuple[str, str, str]], str]:
    """The answer as a sentence, the rows of the table, and the basis of the comparison."""
    return _answer(comparison), _rows(comparison), _basis(comparison)


def comparison_document(comparison: StudyComparison) -> dict[str, Any]:
    """The comparison as plain values for `--json`."""
    return {
        "schema": SCHEMA,
        "ratio": _plain(comparison.ratio),
        "is_beyond_noise": comparison.is_beyond_noise,
        "by": comparison.by.value,
        "first": _side(comparison.first),
        "second": _side(comparison.second),
    }


def _answer(comparison: StudyComparison) -> str:
    first, second = clean(comparison.first.name), clean(comparison.second.name)
    if not comparison.is_beyond_noise:
        ratio = ratio_text((comparison.ratio.value, comparison.ratio.low, comparison.ratio.high))
        return f"No difference beyond the noise: {second} trains {ratio} as fast as {first}."
    faster, slower, ratio_of = (second, first, comparison.ratio)
    if comparison.ratio.value < 1:
        inverse = Estimate(value=1 / ratio_of.value, low=1 / ratio_of.high, high=1 / ratio_of.low)
        faster, slower, ratio_of = first, second, inverse
    ratio = ratio_text((ratio_of.value, ratio_of.low, ratio_of.high))
    return f"{faster} trains {ratio} as many {comparison.first.samples_unit} per second as {slower}."


def _rows(comparison: StudyComparison) -> list[tuple[str, str, str]]:
    first, second = comparison.first, comparison.second
    rows = [
        (f"{first.samples_unit} per second", _estimate(first.rate), _estimate(second.rate)),
        ("against its baseline", _gain(first.gain), _gain(second.gain)),
        ("peak memory", _memory(first), _memory(second)),
    ]
    differences = comparison.first.settings.differences(comparison.second.settings)
    rows += [(name, value_text(here), value_text(there)) for name, (here, there) in differences.items()]
    return rows


def _basis(comparison: StudyComparison) -> str:
    if comparison.by is Yardstick.GAIN:
        return "By their gains over the same baseline, which was measured in turns with each."
    return "By their rates, measured at different times: the interval leaves out changes of the machine in between."


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
