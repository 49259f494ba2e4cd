"""Estimates the time for compiling a model, and the number of steps after which compiling pays."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter

from autotune.measure.block import Phase
from autotune.model.facts import LoaderFacts
from autotune.model.outcome import Outcome
from autotune.model.result import SWITCH, TrialResult
from autotune.model.trial_records import FinalRecord, TrialRecord
from autotune.search.history import FinishedTrial
from autotune.settings import SETTINGS, Settings
from autotune.units import format_seconds

BUILDING_PARTS = ("preparation", "warm_up")
"""Parts of a trial with compilations: the first step, and the warm-up with a possible second compilation."""
LIVE_BUILDING_PARTS = (SWITCH, "warm_up")
"""Parts of a live trial with compilations: the process made its first step long before, and compiles at the switch."""
GRAPH_SETTINGS = tuple(setting.name for setting in SETTINGS if setting.changes_graph)
"""Settings of a graph. Only the first trial of a graph compiles on a device, like a run with an empty cache; later
trials find the graph in the cache."""

SECOND_BUILD = "The model is compiled a second time for the smaller last batch, at the end of the first epoch."


def compile_note(
    winner: FinishedTrial | None,
    baseline: FinishedTrial | None,
    trials: Sequence[TrialRecord],
    records: Sequence[FinalRecord],
    *,
    loader: LoaderFacts | None = None,
) -> str:
    """What the winner's compilation costs, in words; empty when the winner adds no compilation to the baseline.

    The cost is relative to the same settings without compilation if measured, and otherwise to the baseline.

    Args:
        winner: Winner of the finals, or the best trial without finals.
        baseline: The script's own settings.
        trials: All trials, as recorded.
        records: All runs of the finals.
        loader: The script's loader; None without one, or if batches differ in size: then a single graph serves all.
    """
    if winner is None or baseline is None or not winner.settings.compile or baseline.settings.compile:
        return ""
    ours = _of(winner.settings, trials, records)
    uncompiled = replace(winner.settings, compile=False)
    uncompiled = replace(uncompiled, **uncompiled.inert)
    of_baseline = _of(baseline.settings, trials, records)
    others = _of(uncompiled, trials, records) or of_baseline
    if not ours or not others:
        return ""
    build_s = max(_build_s(each, (others, of_baseline)) for each in _of_graph(winner.settings, trials, records))
    if build_s <= 0:
        return "Compiling the model takes no time that could be seen."
    num_samples = samples_to_pay(build_s, rate=_rate(ours), rate_before=_rate(others))
    if math.isinf(num_samples):
        return f"Compiling the model takes {format_seconds(build_s)} at the start of a run and does not pay by itself."
    num_steps = math.ceil(num_samples / _samples_per_step(ours))
    cost = f"Compiling the model takes {format_seconds(build_s)} at the start of a run"
    pays = f"{cost}, and pays after {num_steps} steps."
    builds_twice = loader is not None and loader.ends_with_smaller_batch(winner.settings.batch_size)
    return f"{pays} {SECOND_BUILD}" if builds_twice else pays


def _of(settings: Settings, trials: Sequence[TrialRecord], records: Sequence[FinalRecord]) -> list[TrialResult]:
    """Measurements of the settings: of the finals if any, and otherwise of the trials."""
    finals = [record.result for record in records if record.settings == settings]
    found = finals or [record.result for record in trials if record.settings == settings]
    return [result for result in found if result.outcome is Outcome.OK and result.ranks]


def _of_graph(settings: Settings, trials: Sequence[TrialRecord], records: Sequence[FinalRecord]) -> list[TrialResult]:
    """Measurements of all trials and finals with the graph of the settings."""
    graph = attrgetter(*GRAPH_SETTINGS)
    run = [(each.settings, each.result) for each in trials] + [(each.settings, each.result) for each in records]
    found = [result for tried, result in run if graph(tried) == graph(settings)]
    return [result for result in found if result.outcome is Outcome.OK and result.ranks]


def _build_s(compiled: TrialResult, uncompiled: Sequence[Sequence[TrialResult]]) -> float:
    """How much longer a compiled trial took to its steady state than uncompiled trials of the same kind, in seconds.

    Trials of the same kind are all live, or all in processes of their own. The first list with such trials counts.
    Without one, the warm-ups are compared, and the whole switch or the whole first step counts.
    """
    is_live = SWITCH in compiled.durations_s
    parts = LIVE_BUILDING_PARTS if is_live else BUILDING_PARTS
    alike = ([each for each in results if (SWITCH in each.durations_s) == is_live] for results in uncompiled)
    reference = next(filter(None, alike), uncompiled[0])
    return _sum_s(compiled, parts) - statistics.median(_sum_s(each, parts) for each in reference)


def _sum_s(result: TrialResult, parts: Sequence[str]) -> float:
    return sum(result.durations_s.get(part, 0.0) for part in parts)


def _rate(results: Sequence[TrialResult]) -> float:
    return statistics.geometric_mean(r.measurement.samples_per_second for r in results if r.measurement is not None)


def _samples_per_step(results: Sequence[TrialResult]) -> float:
    """Samples of one optimizer step over all ranks; at least 1."""
    total = 0.0
    for rank in results[0].ranks:
        window = [block for block in rank.blocks if block.phase is Phase.WINDOW]
        total += sum(block.num_samples for block in window) / max(1, sum(block.num_steps for block in window))
    return total or 1.0


def samples_to_pay(extra_start_s: float, *, rate: float, rate_before: float) -> float:
    """Samples after which a start that takes longer, but leads to a higher rate, is ahead.

    Args:
        extra_start_s: How much longer the start takes.
        rate: Samples per second after the longer start.
        rate_before: Samples per second after the shorter start.

    Returns:
        0 when the start takes no longer; infinity when the rate is not higher, because it never pays.

    Raises:
        ValueError: When a rate is not finite and positive.
    """
    for value in (rate, rate_before):
        if not 0 < value < math.inf:
            raise ValueError(f"a rate must be finite and positive, not {value!r}")
    if extra_start_s <= 0:
        return 0.0
    return extra_start_s / (1 / rate_before - 1 / rate) if rate > rate_before else math.inf
