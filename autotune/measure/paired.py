"""The winner of the finals: rates of the same round compared in pairs, so that what slows a whole round cancels."""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from autotune.measure.interval import mean_and_half_width

TIE_RATIO = 0.99
"""At this share of the best rate or above it is a tie: three rounds cannot tell 1 % apart, and less memory is worth
more."""

COMPARISON_CONFIDENCE = 0.98
"""Two-sided level of one look at a comparison. The finals look after three rounds and, while the best seems faster but
not beyond doubt, after each of three more: so many looks at 95 % called settings faster than themselves in 6 of 100
simulated finals, at 98 % in 2.6, which is what one look at 95 % promises.

That is of one candidate. Of three that are all as fast as the baseline one is called a gain in 7 of 100 finals. A level
that makes it 3 makes the interval of three rounds nearly twice as wide: with a noise of 3 % and no time for more, a
gain of 15 % is found in 46 of 100 finals with it, and in 80 without."""

MIN_COMMON_ROUNDS = 2
"""One pair has no spread, so nothing is known of its error."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Final:
    """One measurement of one candidate in one round of the finals; impossible values raise `ValueError`."""

    candidate: int
    round: int
    """Rounds follow each other in time, and every candidate is measured at most once in each."""
    samples_per_second: float
    """Finite and >= 0; 0 when there was nothing to measure, which only an infeasible final may say."""
    peak_memory_bytes: int
    feasible: bool
    """Whether it ran validly and under the cap."""

    def __post_init__(self) -> None:
        if not 0 <= self.samples_per_second < math.inf:
            raise ValueError(f"samples_per_second must be finite and not negative, not {self.samples_per_second!r}")
        if self.feasible and self.samples_per_second == 0:
            raise ValueError(f"candidate {self.candidate} cannot be feasible at 0 samples per second")
        if self.peak_memory_bytes < 0:
            raise ValueError(f"peak_memory_bytes must not be negative, not {self.peak_memory_bytes!r}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """How many times faster one candidate is than another, with an interval that holds at 95 % over all looks.

    It holds for the winner of several true gains, too: of three equal ones the luckiest is chosen, which makes
    its ratio half a run's noise too high (simulated: 0.8 % of 1.5 %) and is well within an interval of so few rounds.
    """

    ratio: float
    """Geometric mean over the rounds of the ratio of the rates."""
    low: float
    high: float
    num_rounds: int

    def __post_init__(self) -> None:
        if not 0 <= self.low <= self.ratio <= self.high < math.inf:
            raise ValueError(
                f"a comparison needs low <= ratio <= high, not {self.low!r}, {self.ratio!r}, {self.high!r}"
            )
        if self.num_rounds < MIN_COMMON_ROUNDS:
            raise ValueError(f"a comparison needs at least {MIN_COMMON_ROUNDS} rounds, not {self.num_rounds!r}")

    @property
    def is_gain(self) -> bool:
        """Whether it is faster beyond the noise: the whole interval lies above 1."""
        return self.low > 1.0


def compare(finals: Sequence[Final], candidate: int, against: int) -> Comparison:
    """How many times faster `candidate` is than `against`, by a t-interval on the mean of the paired log-ratios.

    Args:
        finals: Of any candidates; those of these two that share a round and have a rate above 0 make the pairs.
        candidate: The one whose rate is in the numerator.
        against: The one whose rate is in the denominator.

    Raises:
        ValueError: When they share fewer than 2 rounds, or a candidate occurs twice in a round.
    """
    ours, theirs = _log_rate_by_round(finals, candidate), _log_rate_by_round(finals, against)
    log_ratios = [ours[number] - theirs[number] for number in sorted(ours.keys() & theirs.keys())]
    num = len(log_ratios)
    if num < MIN_COMMON_ROUNDS:
        raise ValueError(
            f"candidates {candidate} and {against} share {num} rounds; a comparison needs {MIN_COMMON_ROUNDS}"
        )
    mean, half_width = mean_and_half_width(log_ratios, COMPARISON_CONFIDENCE)
    return Comparison(
        ratio=math.exp(mean), low=math.exp(mean - half_width), high=math.exp(mean + half_width), num_rounds=num
    )


def choose_winner(
    finals: Sequence[Final], baseline: int, tie_key: Callable[[int], tuple[float, ...]]
) -> tuple[int, dict[int, Comparison]]:
    """The winner of the finals, and how each feasible candidate compares with the baseline.

    With a feasible baseline only what is a gain over it can win, so the baseline wins when nothing is. Otherwise all
    feasible candidates can. Among these the best is the one with the highest mean log rate; who comes within 1 % of
    it ties with it, and of the tied the one with the smallest key wins. Rates are averaged over the rounds that all
    contenders share; where they share none, each over its own.

    Args:
        finals: All finals, the baseline's among them. A candidate with an infeasible final cannot win.
        baseline: Candidate that stands for the user's own settings.
        tie_key: What is preferred at equal rates, smaller first, e.g. (memory, workers).

    Returns:
        The winner, and the comparisons with the baseline by candidate. The baseline itself has none, nor has a
        candidate with fewer than 2 rounds in common with it; with an infeasible baseline there are none at all.

    Raises:
        ValueError: When the baseline has no final, no candidate is feasible, or a candidate occurs twice in a round.
    """
    candidates = {final.candidate for final in finals}
    if baseline not in candidates:
        raise ValueError(f"the finals lack the baseline, candidate {baseline}")
    feasible = sorted(candidates - {final.candidate for final in finals if not final.feasible})
    if not feasible:
        raise ValueError("no candidate of the finals is feasible")
    if baseline not in feasible:
        return _best(finals, feasible, tie_key), {}
    comparisons = _compare_with_baseline(finals, feasible, baseline)
    gains = [candidate for candidate, comparison in comparisons.items() if comparison.is_gain]
    if not gains:
        return baseline, comparisons
    return _best(finals, [baseline, *gains], tie_key), comparisons


def round_order(candidates: Sequence[int], round_index: int, seed: int) -> list[int]:
    """The candidates in the random order in which to measure them in this round.

    The same for the same seed and round, whatever order the candidates come in, so a resumed study goes on as it began.
    """
    order = sorted(candidates)
    # A string is hashed by Random itself, alike in every process and version of Python; a tuple's hash is not.
    random.Random(f"{seed}:{round_index}").shuffle(order)
    return order


def _compare_with_baseline(finals: Sequence[Final], candidates: Sequence[int], baseline: int) -> dict[int, Comparison]:
    baseline_rounds = _log_rate_by_round(finals, baseline).keys()
    comparisons = {}
    for candidate in candidates:
        num_common = len(_log_rate_by_round(finals, candidate).keys() & baseline_rounds)
        if candidate != baseline and num_common >= MIN_COMMON_ROUNDS:
            comparisons[candidate] = compare(finals, candidate, baseline)
    return comparisons


def _best(finals: Sequence[Final], contenders: Sequence[int], tie_key: Callable[[int], tuple[float, ...]]) -> int:
    log_rates = {contender: _log_rate_by_round(finals, contender) for contender in contenders}
    common = set.intersection(*(set(by_round) for by_round in log_rates.values()))
    mean_log_rate = {}
    for contender, by_round in log_rates.items():
        rounds = common or by_round.keys()
        mean_log_rate[contender] = sum(by_round[number] for number in rounds) / len(rounds)
    threshold = max(mean_log_rate.values()) + math.log(TIE_RATIO)
    tied = [contender for contender in contenders if mean_log_rate[contender] >= threshold]
    return min(tied, key=lambda contender: (tie_key(contender), -mean_log_rate[contender]))


def _log_rate_by_round(finals: Sequence[Final], candidate: int) -> dict[int, float]:
    log_rates: dict[int, float] = {}
    for final in finals:
        if final.candidate != candidate or final.samples_per_second == 0:
            continue
        if final.round in log_rates:
            raise ValueError(f"candidate {candidate} has two finals in round {final.round}")
        log_rates[final.round] = math.log(final.samples_per_second)
    return log_rates
