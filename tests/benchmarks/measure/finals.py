"""How often the finals' interval holds the truth and finds a gain, on simulated runs, in Markdown.

    python -m tests.benchmarks.measure.finals [--finals 1000] [--kinds "paced by the device"] [--ratios]

A cell is the noise of one run (the standard deviation of its rate's logarithm) and a kind of disturbance: none, one run
in ten loses 10 to 50 % of its rate, whole rounds are 30 % faster or slower, the baseline's runs are three times as
noisy as the others', or the device alone sets the pace and one run in twenty loses 3 to 12 %, or every other run 8 %.
Finals go on while the answer is open, or end after a number of rounds for want of time.

With `--ratios`, instead: how far the ratio of a found gain is from the truth, as a mean over all rounds and as
published.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
from collections.abc import Sequence

from autotune.measure.paired import Comparison, Final, choose_winner, compare, expected_gain, unselected
from autotune.study.budget import MAX_ROUNDS, NUM_ROUNDS
from autotune.study.final_standing import WORTH_A_ROUND
from autotune.study.finals import is_look

NOISES = (0.005, 0.01, 0.03, 0.1, 0.3)
PACED, TWO_SPEEDS = "paced by the device", "paced, of two speeds"
KINDS = ("quiet", "disturbed runs", "drifting rounds", "uneven runs", PACED, TWO_SPEEDS)
SHARE_DISTURBED, SHARE_LOST, DRIFT, UNEVEN, SLOW = 0.1, 0.05, 0.3, 3.0, 0.08
LAST_ROUNDS = (2, 4, 12)
"""Numbers of rounds after which the time ends."""
RATIO_NOISES = (0.03, 0.1, 0.2)
RATIO_GAINS = ((1.3,), (1.3, 1.3, 1.3), (1.5, 1.4, 1.3), (2.0, 2.0, 2.0))
NUM_AFFORDABLE = 6
"""Rounds for which there is time where ratios are compared."""
GAIN = 1.05
CLEAR_GAIN = 1.5


def rounds(rng: random.Random, gains: Sequence[float], noise: float, kind: str, num: int) -> list[Final]:
    """Runs of the baseline, candidate 0, and of candidates that are truly faster by the given ratios."""
    finals = []
    for index in range(num):
        drift = rng.gauss(0.0, DRIFT) if kind == "drifting rounds" else 0.0
        for candidate, gain in enumerate((1.0, *gains)):
            uneven = UNEVEN if kind == "uneven runs" and candidate == 0 else 1.0
            lost = rng.uniform(0.1, 0.7) if kind == "disturbed runs" and rng.random() < SHARE_DISTURBED else 0.0
            lost = rng.uniform(0.03, 0.12) if kind == PACED and rng.random() < SHARE_LOST else lost
            lost = SLOW if kind == TWO_SPEEDS and rng.random() < 0.5 else lost
            rate = 100.0 * gain * math.exp(rng.gauss(0.0, uneven * noise) + drift - lost)
            finals.append(
                Final(
                    candidate=candidate,
                    round=index,
                    samples_per_second=rate,
                    peak_memory_bytes=1,
                    feasible=True,
                    is_device_bound=kind in (PACED, TWO_SPEEDS),
                )
            )
    return finals


def searched(finals: Sequence[Final], num_affordable: int | None = None) -> tuple[int, dict[int, Comparison]]:
    """The winner and the comparisons, with more rounds while the best looks faster but not beyond doubt.

    Args:
        finals: Runs of all rounds.
        num_affordable: Rounds for which there is time; the last look uses what earlier looks left. None = all rounds.
    """
    for num in range(min(NUM_ROUNDS, num_affordable or NUM_ROUNDS), (num_affordable or MAX_ROUNDS) + 1):
        is_last = num == num_affordable
        if not is_last and not is_look(num):
            continue
        seen = [final for final in finals if final.round < num]
        winner, comparisons = choose_winner(seen, 0, lambda _: (0.0,), is_last=is_last)
        best = max(comparisons.values(), key=lambda comparison: comparison.ratio)
        open_gains = [expected_gain(one, num_candidates=len(comparisons)) for one in comparisons.values()]
        if best.is_gain or max(open_gains) < WORTH_A_ROUND:
            break
    return winner, comparisons


def cell(noise: float, kind: str, num: int) -> list[float]:
    """Shares of so many finals: held in 2 rounds, in 3, in all; false gains of one, of three, by a last look; found."""
    rng = random.Random(f"{noise}:{kind}")

    def share(outcomes: Sequence[bool]) -> float:
        return sum(outcomes) / len(outcomes)

    def holds(num_rounds: int) -> bool:
        comparison = compare(rounds(rng, [1.0], noise, kind, num_rounds), 1, 0)
        return comparison.low <= 1.0 <= comparison.high

    def is_gain(*gains: float) -> bool:
        return searched(rounds(rng, gains, noise, kind, MAX_ROUNDS))[0] != 0

    def is_gain_at_the_end(num_rounds: int) -> bool:
        return searched(rounds(rng, [1.0, 1.0, 1.0], noise, kind, num_rounds), num_rounds)[0] != 0

    def holds_in_search() -> bool:
        comparison = searched(rounds(rng, [1.0], noise, kind, MAX_ROUNDS))[1][1]
        return comparison.low <= 1.0 <= comparison.high

    return [
        share([holds(2) for _ in range(num)]),
        share([holds(3) for _ in range(num)]),
        share([holds_in_search() for _ in range(num)]),
        share([is_gain(1.0) for _ in range(num)]),
        share([is_gain(1.0, 1.0, 1.0) for _ in range(num)]),
        *(share([is_gain_at_the_end(last) for _ in range(num)]) for last in LAST_ROUNDS),
        share([is_gain(GAIN) for _ in range(num)]),
        share([is_gain(CLEAR_GAIN) for _ in range(num)]),
    ]


def ratio_errors(gains: Sequence[float], noise: float, kind: str, num: int) -> tuple[list[float], list[float]]:
    """Logarithms of the found gain's ratio over the truth: of the mean over all rounds, and as published."""
    rng = random.Random(f"{noise}:{kind}:{gains}")
    plain, published = [], []
    for _ in range(num):
        finals = rounds(rng, gains, noise, kind, MAX_ROUNDS)
        winner, comparisons = searched(finals, NUM_AFFORDABLE)
        if winner != 0:
            found = comparisons[winner]
            seen = [final for final in finals if final.round < found.num_rounds]
            plain.append(math.log(found.ratio / gains[winner - 1]))
            free = unselected(found, seen, winner, 0, lambda _: (0.0,))
            published.append(math.log(free.ratio / gains[winner - 1]))
    return plain, published


def ratios(num: int) -> None:
    """Prints the errors of ratios."""
    print("| noise of a run | kind | true gains | found | mean error, all rounds | published | rms error | published |")
    print("| --- " * 8 + "|")
    for kind in KINDS[:3]:
        for noise in RATIO_NOISES:
            for gains in RATIO_GAINS:
                plain, published = ratio_errors(gains, noise, kind, num)
                means = [f"{statistics.fmean(errors):+.1%}" for errors in (plain, published)]
                sizes = [f"{math.sqrt(statistics.fmean(e * e for e in errors)):.1%}" for errors in (plain, published)]
                names = ", ".join(f"{gain:g}" for gain in gains)
                columns = " | ".join([f"{len(plain) / num:.0%}", *means, *sizes])
                print(f"| {noise:.0%} | {kind} | {names} | {columns} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--finals", type=int, default=1000, help="of each cell and column")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS, help="of disturbance")
    parser.add_argument("--ratios", action="store_true", help="errors of ratios instead")
    asked = parser.parse_args()
    num = asked.finals
    if asked.ratios:
        ratios(num)
        return
    print(
        "| noise of a run | kind | 2 rounds hold | 3 | 3 to 40 | false gain of 1 | of 3 "
        "| of 3 where the time ends after 2 rounds | 4 | 12 | 5 % found | 50 % |"
    )
    print("| --- " * 12 + "|")
    for kind in asked.kinds:
        for noise in NOISES:
            shares = " | ".join(f"{share:.1%}" for share in cell(noise, kind, num))
            print(f"| {noise:.1%} | {kind} | {shares} |", flush=True)


if __name__ == "__main__":
    main()
