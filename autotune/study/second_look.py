"""Goes back to trials after finals without a gain, while time is left, and measures further finals."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from autotune.model.trial_records import FinalRecord
from autotune.search.study_search import Search
from autotune.study.finals import FinalsResult
from autotune.study.stop import StopRequest
from autotune.study.trial_loop import LoopEnd, TrialLoop

MAX_FINALS = 4
"""Most finals of one search: each is a chance to find a gain by luck."""


def finals_with_second_looks(
    search: Search,
    loop: TrialLoop,
    end: LoopEnd,
    stop: StopRequest,
    *,
    finals: Callable[[LoopEnd], FinalsResult | None],
    records: Callable[[], Iterable[FinalRecord]],
) -> tuple[LoopEnd, FinalsResult | None]:
    """The end of the trials and the result of the finals; after finals without a gain, of the finals after more trials.

    On a noisy machine the luckiest trial looks better than all others, and nothing more seems to be worth a trial. The
    finals show the luck; with their rates other settings may be worth a trial again.

    Args:
        search: Learns the rates of the finals.
        loop: Runs the trials.
        end: The end of the trials so far.
        stop: Ends the search early.
        finals: Runs finals of the best trials after the given end of the trials.
        records: Gives all runs of finals so far.
    """
    result = finals(end)
    for _ in range(MAX_FINALS - 1):
        if stop.level or not _is_without_gain(result) or loop.has_spent_its_time:
            break
        num_before = search.num_finished
        search.learn(_rates(records()))
        later_end = loop.run()
        if stop.level or search.num_finished == num_before:
            break
        later = finals(later_end)
        if later is None or not later.is_compared:
            break
        end, result = later_end, later
    return end, result


def _is_without_gain(result: FinalsResult | None) -> bool:
    """Whether the script's own settings were compared with others, and won."""
    if result is None or result.baseline is None or not result.is_compared:
        return False
    numbers = {record.number for record in result.records}
    return result.winner.number == result.baseline.number and len(numbers) > 1


def _rates(records: Iterable[FinalRecord]) -> dict[int, list[float]]:
    """Samples per second of the runs, by the number of the trial."""
    rates: dict[int, list[float]] = {}
    for record in records:
        if record.result.measurement is not None:
            rates.setdefault(record.number, []).append(record.result.measurement.samples_per_second)
    return rates
