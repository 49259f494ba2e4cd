"""The pictures of a study: history, memory, settings, importance, stalls and time. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import Element

from autotune.measure.bottleneck import Bottleneck
from autotune.model.outcome import Outcome
from autotune.model.study_view import StudyView
from autotune.model.trial_records import TrialRecord
from autotune.report.effects import values_of, varied
from autotune.report.parts import MEASURING, seconds_by_part
from autotune.report.svg import RIGHT, WIDTH, Chart, Point, bars
from autotune.report.words import OUTCOME_WORDS, changes_text
from autotune.settings import Settings
from autotune.units import GIB, MIB, format_bytes, format_rate, format_seconds

HEADROOM = 1.08
"""Height of a picture over its highest value."""
MOST_CAP_RATIO = 2.5
"""Largest ratio of cap to peak memory for a drawn cap; a larger cap would squeeze the marks together."""
SMALL = (340.0, 190.0)
"""Width and height of the picture of one setting."""
MOST_MARKS, MOST_SMALL_MARKS = 2000, 300
"""Most marks in a large and in a small picture. More marks hide each other, and make the page too large for a mail."""
MARKS = {
    "ok": "measured",
    "bound": "too slow (upper bound)",
    "memory": "too much memory",
    "failed": "failed",
    "training": "training at full speed",
    "waiting": "waiting for data",
    "losing": "otherwise slower",
}
"""Meanings of marks and of parts of bars."""
ENDINGS = ("ok", "bound", "memory", "failed")


@dataclass(frozen=True, slots=True)
class Picture:
    """One picture with its words."""

    title: str
    caption: str
    drawing: Element
    kinds: tuple[str, ...] = ()
    """Kinds of marks explained in the legend."""


def pictures(view: StudyView) -> Iterator[Picture]:
    """The pictures with something to show."""
    measured = [trial for trial in view.trials if trial.result.measurement is not None]
    if measured:
        yield _history(view, measured)
        if any(trial.result.peak_memory_bytes for trial in measured):
            yield _memory(view, measured)
    stalls = [pair for pair in (("yours", view.before), (_best_name(view), view.after)) if pair[1] is not None]
    if stalls:
        yield _stalls({name: found for name, found in stalls if found is not None})
    if view.importances:
        yield _importance(view)
    if seconds_by_part(view.results):
        yield _time(view)


def setting_pictures(view: StudyView) -> Iterator[Picture]:
    """One small picture per setting with several measured values: the rate of each trial by value."""
    measured = [trial for trial in view.trials if trial.result.measurement is not None]
    for name, values in varied(measured).items():
        chart = Chart(f"Throughput by {name}", (-0.5, len(values) - 0.5), (0.0, _top(view, measured)), *SMALL)
        chart.y_axis("", tick_words)
        chart.x_ticks("", list(enumerate(values)))
        for trial in _drawn(view, measured, MOST_SMALL_MARKS):
            place = values.index(values_of(trial.settings)[name])
            _mark(chart, view, trial, place + _spread(trial.number))
        yield Picture(name, "", chart.root)


def tick_words(value: float) -> str:
    """A round rate, as written on an axis."""
    return f"{value:,.0f}" if value >= 100 else f"{value:g}"


def kind_of(outcome: Outcome) -> str:
    """The mark of an outcome."""
    if outcome is Outcome.OK:
        return "ok"
    if outcome is Outcome.RACED_OUT:
        return "bound"
    return "memory" if outcome.is_infeasible else "failed"


def _history(view: StudyView, measured: Sequence[TrialRecord]) -> Picture:
    last = max(trial.number for trial in view.trials)
    finals = _final_rates(view)
    end = last + 1.0 + (len(finals) + 1.0) * max(1.0, last / 16) if finals else last + 0.5
    chart = Chart("Throughput of every trial, in order", (-0.5, end), (0.0, _top(view, measured)))
    chart.y_axis(f"{view.result.samples_unit} per second", tick_words)
    chart.x_ticks("trial", [(value, f"{value:g}") for value in chart.across.ticks() if value == int(value) <= last])
    if view.baseline_rate is not None:
        chart.level(view.baseline_rate, "yours", "baseline", until=last + 0.5)
    chart.steps(_best_so_far(measured, last), "line")
    for trial in _drawn(view, view.trials, MOST_MARKS):
        _mark(chart, view, trial, trial.number)
    for index, (number, rate, interval) in enumerate(finals):
        place = last + 1.0 + (index + 1.0) * max(1.0, last / 16)
        class_ = "final own" if number == view.baseline_number else "final"
        chart.whisker(place, *interval, class_)
        chart.mark(place, rate, class_, f"finals, trial {number}: {format_rate(rate)} per second")
    if finals:
        chart.plumb(last + 1.0, "finals", "split")
    caption = "The line is the best so far." + _left_out(view.trials)
    if finals:
        caption += " On the right the finals with 95 % intervals: your settings and the best, in turns."
    return Picture("How the search went", caption, chart.root, _kinds(view.trials))


def _memory(view: StudyView, measured: Sequence[TrialRecord]) -> Picture:
    sized = [trial for trial in view.trials if trial.result.peak_memory_bytes]
    peaks = [trial.result.peak_memory_bytes or 0 for trial in sized]
    cap = view.memory_cap_bytes or 0
    shows_cap = 0 < cap <= MOST_CAP_RATIO * max(peaks)
    low, high = min(peaks), max([*peaks, cap] if shows_cap else peaks)
    margin = 0.06 * (high - low) or 0.05 * high
    unit = GIB if high >= GIB else MIB
    chart = Chart("Throughput against memory", (low - margin, high + margin), (0.0, _top(view, measured)))
    chart.y_axis(f"{view.result.samples_unit} per second", tick_words)
    chart.x_axis("peak memory", lambda peak: format_bytes(peak).replace(".0 ", " "), unit=unit)
    if shows_cap:
        chart.plumb(cap, f"cap {format_bytes(cap)}", "cap")
    elif cap:
        chart.text(WIDTH - RIGHT - 2, 22.0, f"cap {format_bytes(cap)}, far to the right", anchor="end", class_="note")
    chart.steps([(float(t.result.peak_memory_bytes or 0), _rate(t)) for t in pareto(sized)], "front")
    for trial in _drawn(view, sized, MOST_MARKS):
        _mark(chart, view, trial, float(trial.result.peak_memory_bytes or 0))
    caption = "The line joins the trials that no other trial beats in both memory and rate." + _left_out(sized)
    return Picture("Throughput against memory", caption, chart.root, _kinds(sized))


def pareto(trials: Sequence[TrialRecord]) -> list[TrialRecord]:
    """Complete trials not beaten in both memory and rate by another, in the order of their memory."""
    measured = [t for t in trials if t.result.outcome is Outcome.OK and t.result.peak_memory_bytes]
    front: list[TrialRecord] = []
    for trial in sorted(measured, key=lambda trial: (trial.result.peak_memory_bytes or 0, -_rate(trial))):
        if not front or _rate(trial) > _rate(front[-1]):
            front.append(trial)
    return front


def _stalls(found: Mapping[str, Bottleneck]) -> Picture:
    rows = []
    for name, bottleneck in found.items():
        waiting = bottleneck.data_wait_fraction
        ceiling = min(1.0, bottleneck.ceiling_fraction) if bottleneck.ceiling_fraction is not None else 1.0 - waiting
        training = min(ceiling, 1.0 - waiting)
        rest = max(0.0, 1.0 - training - waiting)
        parts = [
            (training, "part training", f"training at full speed: {training:.0%}"),
            (waiting, "part waiting", f"waiting for data: {waiting:.0%}"),
            (rest, "part losing", f"slower than without a loader: {rest:.0%}"),
        ]
        rows.append((name, parts, f"{training:.0%} training"))
    caption = (
        "Shares of a step's time: training as fast as without a loader, waiting for a batch, and other losses while "
        "the loader works, to shared processors or copies."
    )
    drawing = bars("Stalls before and after", rows, total=1.0)
    return Picture("Stalls, before and after", caption, drawing, ("training", "waiting", "losing"))


def _importance(view: StudyView) -> Picture:
    shares = list(view.importances.items())
    rows = [(name, [(share, "part training", f"{name}: {share:.1%}")], f"{share:.0%}") for name, share in shares]
    caption = (
        f"Which settings decide whether a trial is among the fastest: Optuna's estimate (PED-ANOVA) from "
        f"{len(view.trials)} trials. A share says how much a setting matters, not in which direction."
    )
    return Picture("What matters", caption, bars("Importance of settings", rows, total=max(dict(shares).values())))


def _time(view: StudyView) -> Picture:
    parts = seconds_by_part(view.results)
    other = view.spent_s - sum(parts.values())
    rows = [
        (name, [(spent_s, f"part {'training' if name in MEASURING else 'losing'}", name)], format_seconds(spent_s))
        for name, spent_s in parts.items()
    ]
    if other > 0:
        tip = "the probe, waiting for a quiet machine, deciding, and writing"
        rows.append(("probe and between", [(other, "part losing", tip)], format_seconds(other)))
    longest = max(spent_s for _, ((spent_s, _, _),), _ in rows)
    caption = "All trials and finals together. Warm-up and windows measure; the other parts start and end the trials."
    return Picture("Where the time went", caption, bars("Time spent by part", rows, total=longest))


def _drawn(view: StudyView, trials: Sequence[TrialRecord], most: int) -> Sequence[TrialRecord]:
    """The marked trials: all, or `most` evenly spaced ones with the best and the baseline."""
    if len(trials) <= most:
        return trials
    named = (view.best_number, view.baseline_number)
    step = len(trials) / most
    spaced = {trials[int(index * step)].number for index in range(most)}
    return [trial for trial in trials if trial.number in spaced or trial.number in named]


def _left_out(trials: Sequence[TrialRecord]) -> str:
    """The words for a picture without a mark for every trial."""
    return f" Of {len(trials):,} trials {MOST_MARKS:,} are drawn." if len(trials) > MOST_MARKS else ""


def _mark(chart: Chart, view: StudyView, trial: TrialRecord, x: float) -> None:
    is_best = trial.number == view.best_number
    chart.mark(x, _rate(trial), kind_of(trial.result.outcome), trial_tip(view, trial), is_best=is_best)


def trial_tip(view: StudyView, trial: TrialRecord) -> str:
    """The words shown when the pointer rests on a trial."""
    rate, peak = trial.result.rate_or_bound, trial.result.peak_memory_bytes
    words = [f"trial {trial.number}, {OUTCOME_WORDS[trial.result.outcome]}"]
    if rate is not None:
        bound = "at most " if trial.result.outcome is Outcome.RACED_OUT else ""
        words.append(f"{bound}{format_rate(rate)} per second")
    if peak:
        words.append(format_bytes(peak))
    baseline = view.baseline.settings if view.baseline is not None else view.script_settings or Settings()
    return f"{', '.join(words)}: {changes_text(trial.settings, baseline) or 'your settings'}"


def _best_so_far(measured: Sequence[TrialRecord], last: int) -> list[Point]:
    best, points = 0.0, []
    for trial in measured:
        if trial.result.outcome is Outcome.OK and _rate(trial) > best:
            best = _rate(trial)
            points.append((float(trial.number), best))
    return [*points, (last + 0.5, best)] if points else []


def _rate(trial: TrialRecord) -> float:
    return trial.result.rate_or_bound or 0.0


def _final_rates(view: StudyView) -> list[tuple[int, float, tuple[float, float]]]:
    """Trial, rate and interval of the baseline and the best, from the finals."""
    if not view.is_final:
        return []
    found = {}
    for contender in (view.result.baseline, view.result.best):
        if contender is not None and contender.trial is not None and contender.interval is not None:
            found[contender.trial] = (contender.trial, contender.samples_per_second or 0.0, contender.interval)
    return list(found.values())


def _top(view: StudyView, measured: Sequence[TrialRecord]) -> float:
    return HEADROOM * max([*map(_rate, measured), *(rate for _, rate, _ in _final_rates(view))])


def _kinds(trials: Sequence[TrialRecord]) -> tuple[str, ...]:
    kinds = {kind_of(trial.result.outcome) for trial in trials}
    return tuple(kind for kind in ENDINGS if kind in kinds)


def _best_name(view: StudyView) -> str:
    return "yours" if view.best_number == view.baseline_number else f"trial {view.best_number}"


def _spread(number: int) -> float:
    """A small sideways shift that keeps trials of the same value apart."""
    return ((number * 7) % 11 - 5) / 20
