"""The winner of the finals, by the ratios of rates within each round: a disturbance of a whole round cancels."""

import math
import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from autotune.measure.pair_interval import DEVICE_PAIR_SPREAD, TYPICAL_PAIR_SPREAD, pair_half_width

TIE_RATIO = 0.99
"""Candidates within 1 % of the best rate tie: three rounds cannot resolve 1 %, and less memory is worth more."""
LEAST_TIE_RATIO = 0.97
"""Share of the best rate below which no candidate ties, however noisy the rounds. Above, candidates tie within one
standard error of their difference."""

FALSE_GAINS_OF_TWO, FALSE_GAINS_OF_THREE, FALSE_GAINS_LATER = 0.02, 0.014, 0.0025
FALSE_GAINS_LAST = 0.02
"""Two-sided error of one look at the comparisons of all candidates, by the number of rounds. Each candidate gets its
share of the error. The finals look after three rounds, and again after further rounds while the answer is open or wide;
finals of two rounds have a single look. A look without time for another has what earlier looks left.

`python -m tests.benchmarks.measure.finals` simulates how often the interval holds the truth, and how often one of three
settings is called faster than itself: over noise of a run from 0.5 to 30 %, with and without disturbed runs and rounds
that drift."""

SHARED_ERROR = 0.08
"""Difference of the logarithm of a ratio in one process from the ratio of new processes, at 95 %. Of 25 changes of a
script on an H200, one was 0.10 off, one 0.07, and the rest no more than the noise: `python -m tests.benchmarks.live`.
"""

OTHER_TIME_ERROR = 0.08
"""Difference of the logarithm of a ratio at another time from the ratio of the finals, at 95 %, beside the finals' own
noise. Rounds lie minutes apart, and a machine changes more within hours. With this part, 63 of 70 gains on a GPU and 37
of 41 on a CPU were within the range in later real runs, without it 58 and 33 (docs/claims.md of 2026-11-29).
"""

LEAST_DEVICE_ROUNDS = 3
"""Fewest common rounds for the smaller typical spread of runs paced by the device. Two rounds agree by chance too often
where runs have two speeds, as with kernels chosen anew by every process."""

MIN_COMMON_ROUNDS = 2
"""A comparison needs two common rounds: the error follows from the spread of at least two pairs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Final:
    """The measurement of a candidate in a round of the finals; impossible values raise `ValueError`."""

    candidate: int
    round: int
    """Rounds follow each other in time; each round measures every candidate at most once."""
    samples_per_second: float
    """Finite and >= 0; 0 when there was nothing to measure, allowed only for an infeasible final."""
    peak_memory_bytes: int
    feasible: bool
    """True when the run was valid and stayed under the cap."""
    is_shared: bool = False
    """True when the run had the process of earlier runs, and its rate may differ from that of a new process."""
    is_device_bound: bool = False
    """True when the device alone set the pace of the run: such runs differ less than runs that wait for the host."""

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

    The interval also holds for the winner of several true gains. Of three equal candidates the luckiest is chosen, and
    its ratio is too high by half a run's noise (simulated: 0.8 % of 1.5 %), well within an interval of so few rounds.
    """

    ratio: float
    """Geometric mean over the rounds of the ratio of the rates."""
    low: float
    high: float
    num_rounds: int
    shared_error: float = 0.0
    """Part of half the interval, as a logarithm, for rounds in the process of earlier runs."""

    def __post_init__(self) -> None:
        if not 0 <= self.low <= self.ratio <= self.high < math.inf:
            raise ValueError(
                f"a comparison needs low <= ratio <= high, not {self.low!r}, {self.ratio!r}, {self.high!r}"
            )
        if self.num_rounds < MIN_COMMON_ROUNDS:
            raise ValueError(f"a comparison needs at least {MIN_COMMON_ROUNDS} rounds, not {self.num_rounds!r}")

    @property
    def is_gain(self) -> bool:
        """True when the candidate is faster beyond the noise: the whole interval lies above 1."""
        return self.low > 1.0

    @property
    def noise_half(self) -> float:
        """Half of the interval, as a logarithm, without the part for rounds in the process of earlier runs."""
        return math.log(self.high / self.low) / 2 - self.shared_error if self.low else math.inf


def range_at_another_time(ratio: float, low: float, high: float) -> tuple[float, float]:
    """The range in which a real run at another time is expected, from a ratio and its interval.

    Args:
        ratio: Ratio of the finals, > 0.
        low: Lower end of the interval, > 0.
        high: Upper end of the interval.

    Raises:
        ValueError: When the three are not in this order, or not above 0.
    """
    if not 0 < low <= ratio <= high:
        raise ValueError(f"a range needs 0 < low <= ratio <= high, not {low!r}, {ratio!r}, {high!r}")
    below, above = (math.hypot(math.log(end / ratio), OTHER_TIME_ERROR) for end in (low, high))
    return ratio * math.exp(-below), ratio * math.exp(above)


def confidence_of(num_rounds: int, num_candidates: int, *, is_last: bool = False) -> float:
    """Two-sided confidence of a candidate's comparison, given the numbers of rounds and of candidates; both at least 1.

    Args:
        num_rounds: Common rounds.
        num_candidates: Candidates beside the baseline.
        is_last: Whether the time, and not the comparison, ended the rounds.
    """
    if is_last:
        return 1 - FALSE_GAINS_LAST / num_candidates
    by_rounds = {2: FALSE_GAINS_OF_TWO, 3: FALSE_GAINS_OF_THREE}
    return 1 - by_rounds.get(num_rounds, FALSE_GAINS_LATER) / num_candidates


def compare(
    finals: Sequence[Final],
    candidate: int,
    against: int,
    *,
    num_candidates: int = 1,
    is_last: bool = False,
    confidence: float | None = None,
) -> Comparison:
    """How many times faster `candidate` is than `against`, by the mean of the log-ratios of common rounds.

    The interval knows more than the few ratios: `autotune.measure.pair_interval`. Each end of the
    interval moves by SHARED_ERROR times the share of rounds in the process of earlier runs.

    Args:
        finals: Finals of any candidates. A round with a rate above 0 for both candidates makes a pair; the other
            candidates tell the noise of the machine.
        candidate: Candidate in the numerator.
        against: Candidate in the denominator.
        num_candidates: Number of candidates, beside the baseline, of which any may be called faster.
        is_last: Whether the time ended the rounds, so that no further look can follow.
        confidence: Two-sided confidence of a comparison that calls no candidate faster; None = that of `confidence_of`.

    Raises:
        ValueError: When the two share fewer than 2 rounds, or a candidate occurs twice in a round.
    """
    ours, theirs = _log_rate_by_round(finals, candidate), _log_rate_by_round(finals, against)
    common = sorted(ours.keys() & theirs.keys())
    log_ratios = [ours[number] - theirs[number] for number in common]
    num = len(common)
    if num < MIN_COMMON_ROUNDS:
        raise ValueError(
            f"candidates {candidate} and {against} share {num} rounds; a comparison needs {MIN_COMMON_ROUNDS}"
        )
    mean = math.fsum(log_ratios) / num
    others = {final.candidate for final in finals} - {candidate, against}
    by_round = [_log_rate_by_round(finals, other) for other in sorted(others)]
    pair = [final for final in finals if final.candidate in (candidate, against) and final.round in common]
    is_device_bound = num >= LEAST_DEVICE_ROUNDS and all(final.is_device_bound for final in pair)
    half_width = pair_half_width(
        [ours[number] for number in common],
        [theirs[number] for number in common],
        confidence or confidence_of(num, num_candidates, is_last=is_last),
        [[row[number] for number in takewhile(row.__contains__, common)] for row in by_round],
        least_typical=DEVICE_PAIR_SPREAD if is_device_bound else TYPICAL_PAIR_SPREAD,
    )
    shared_error = SHARED_ERROR * len({final.round for final in pair if final.is_shared}) / num
    half_width += shared_error
    return Comparison(
        ratio=math.exp(mean),
        low=math.exp(mean - half_width),
        high=math.exp(mean + half_width),
        num_rounds=num,
        shared_error=shared_error,
    )


def expected_gain(comparison: Comparison, *, num_candidates: int = 1) -> float:
    """Expected gain of choosing the candidate if it is truly faster, as a share; a slower candidate counts 0.

    The gain that further rounds could bring to finals without a decision for the candidate.

    Args:
        comparison: The candidate against the present choice.
        num_candidates: Number of candidates, as in `compare`.
    """
    middle, width = math.log(comparison.ratio), math.log(comparison.high / comparison.low) if comparison.low else 0.0
    normal = statistics.NormalDist()
    tail = (1 - confidence_of(comparison.num_rounds, num_candidates)) / 2
    spread = width / 2 / normal.inv_cdf(1 - tail)
    if spread <= 0:
        return max(0.0, middle)
    return spread * normal.pdf(middle / spread) + middle * normal.cdf(middle / spread)


def choose_winner(
    finals: Sequence[Final],
    baseline: int,
    tie_key: Callable[[int], tuple[float, ...]],
    *,
    num_candidates: int | None = None,
    is_last: bool = False,
) -> tuple[int, dict[int, Comparison]]:
    """The winner of the finals, and how each feasible candidate compares with the baseline.

    With a feasible baseline, only gains over the baseline can win, and without a gain the baseline wins. With an
    infeasible baseline, every feasible candidate can win. The best contender has the highest mean log rate. Contenders
    within 1 to 3 % of the best, by the noise, tie with the best, and the smallest key wins the tie. Rates are averaged
    over the rounds shared by all contenders; without a shared round, each contender is averaged over its own rounds.

    Args:
        finals: All finals, including the baseline's. A candidate with an infeasible final cannot win.
        baseline: Candidate with the user's own settings.
        tie_key: Preference at equal rates, smaller first, e.g. (memory, workers).
        num_candidates: Number of candidates that any of the finals had, without the baseline; None = all of `finals`.
        is_last: Whether the time ended the rounds, as in `compare`.

    Returns:
        The winner, and the comparisons with the baseline by candidate. The baseline itself, and a candidate with fewer
        than 2 rounds in common with it, have none. With an infeasible baseline there are none.

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
    num = max(1, len(candidates) - 1) if num_candidates is None else num_candidates
    comparisons = _compare_with_baseline(finals, feasible, baseline, num, is_last=is_last)
    gains = [candidate for candidate, comparison in comparisons.items() if comparison.is_gain]
    if not gains:
        return baseline, comparisons
    return _best(finals, [baseline, *gains], tie_key), comparisons


def unselected(
    comparison: Comparison,
    finals: Sequence[Final],
    winner: int,
    baseline: int,
    tie_key: Callable[[int], tuple[float, ...]],
) -> Comparison:
    """The winner's comparison with a ratio free of the luck by which the winner was chosen; the interval stays.

    Each round counts for the candidate that the other rounds choose. Of equal candidates the luckiest wins, and a mean
    over all rounds is too high: by 5 % for three equal candidates with a noise of 10 %. A clear winner keeps the ratio,
    because any one round may be left out. The method is cross-validation; Stone, "Cross-validatory choice and
    assessment of statistical predictions", 1974.

    Args:
        comparison: The winner against the baseline.
        finals: All finals.
        winner: Candidate chosen by `choose_winner`.
        baseline: Candidate with the user's own settings.
        tie_key: Preference at equal rates, as in `choose_winner`.
    """
    feasible = {final.candidate for final in finals} - {final.candidate for final in finals if not final.feasible}
    rates = {candidate: _log_rate_by_round(finals, candidate) for candidate in feasible}
    log_ratios = []
    for number in sorted(rates[winner].keys() & rates[baseline].keys()):
        rest = [final for final in finals if final.round != number]
        running = [one for one in sorted(feasible - {baseline}) if number in rates[one] and len(rates[one]) > 1]
        chosen = _best(rest, running, tie_key)
        log_ratios.append(rates[chosen][number] - rates[baseline][number])
    ratio = math.exp(math.fsum(log_ratios) / len(log_ratios))
    return replace(comparison, ratio=min(max(ratio, comparison.low), comparison.high))


def round_order(candidates: Sequence[int], round_index: int, seed: int) -> list[int]:
    """The candidates in the random order in which to measure them in this round.

    The order depends on seed and round alone, not on the order of `candidates`, so a resumed study keeps it.
    """
    order = sorted(candidates)
    # Random hashes a string itself, alike in every process and version of Python; a tuple's hash differs.
    random.Random(f"{seed}:{round_index}").shuffle(order)
    return order


def _compare_with_baseline(
    finals: Sequence[Final], candidates: Sequence[int], baseline: int, num_candidates: int, *, is_last: bool
) -> dict[int, Comparison]:
    baseline_rounds = _log_rate_by_round(finals, baseline).keys()
    comparisons = {}
    for candidate in candidates:
        num_common = len(_log_rate_by_round(finals, candidate).keys() & baseline_rounds)
        if candidate != baseline and num_common >= MIN_COMMON_ROUNDS:
            comparisons[candidate] = compare(
                finals, candidate, baseline, num_candidates=num_candidates, is_last=is_last
            )
    return comparisons


def _best(finals: Sequence[Final], contenders: Sequence[int], tie_key: Callable[[int], tuple[float, ...]]) -> int:
    log_rates = {contender: _log_rate_by_round(finals, contender) for contender in contenders}
    common = set.intersection(*(set(by_round) for by_round in log_rates.values()))
    mean_log_rate = {}
    for contender, by_round in log_rates.items():
        rounds = common or by_round.keys()
        mean_log_rate[contender] = sum(by_round[number] for number in rounds) / len(rounds)
    best = max(contenders, key=lambda contender: mean_log_rate[contender])
    tied = []
    for contender in contenders:
        allowed = _standard_error([log_rates[best][number] - log_rates[contender][number] for number in sorted(common)])
        allowed = max(-math.log(TIE_RATIO), min(-math.log(LEAST_TIE_RATIO), allowed))
        if mean_log_rate[contender] >= mean_log_rate[best] - allowed:
            tied.append(contender)
    return min(tied, key=lambda contender: (tie_key(contender), -mean_log_rate[contender]))


def _standard_error(differences: Sequence[float]) -> float:
    """Standard error of the mean; 0 for fewer than 2 differences."""
    return statistics.stdev(differences) / math.sqrt(len(differences)) if len(differences) > 1 else 0.0


def _log_rate_by_round(finals: Sequence[Final], candidate: int) -> dict[int, float]:
    log_rates: dict[int, float] = {}
    for final in finals:
        if final.candidate != candidate or final.samples_per_second == 0:
            continue
        if final.round in log_rates:
            raise ValueError(f"candidate {candidate} has two finals in round {final.round}")
        log_rates[final.round] = math.log(final.samples_per_second)
    return log_rates
