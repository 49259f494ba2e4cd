"""How much sooner a forked trial is there, and whether it is the same trial then."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator

from autotune.measure.block import Phase
from autotune.model.result import TrialResult
from tests.benchmarks.startup.trials import Trials

KINDS = ("forked", "cold")
SECOND_START_SHARE = 0.1
"""Longest first step of a forked trial, as a share of a cold one's."""
T_95 = {2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262, 10: 2.228}
"""Student's two-sided 95 % by degrees of freedom."""


def in_turns(num_pairs: int) -> Iterator[str]:
    """Both kinds in every pair; which is first changes, so that a drift of the machine hits both."""
    for pair in range(num_pairs):
        yield from KINDS if pair % 2 == 0 else reversed(KINDS)


def first_steps(trials: Trials, num_pairs: int) -> str:
    """The section on seconds to the end of the first step."""
    seconds: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for kind in in_turns(num_pairs):
        seconds[kind].append(trials.first_step_s(kind))
    medians = {kind: statistics.median(values) for kind, values in seconds.items()}
    ratios = [forked / cold for forked, cold in zip(seconds["forked"], seconds["cold"], strict=True)]
    rows = [
        f"| {kind} | {medians[kind]:.3f} | {min(values):.3f} | {max(values):.3f} |" for kind, values in seconds.items()
    ]
    return "\n".join(
        [
            "## Seconds to the end of the first step\n",
            f"{num_pairs} pairs in turns, of `job.py 1`: torch, torch._dynamo, sympy, numpy and PIL are imported.\n",
            "| start | median | least | most |",
            "|---|---|---|---|",
            *rows,
            "",
            f"Ratio of the medians {medians['forked'] / medians['cold']:.3f}, median of the pairs' ratios "
            f"{statistics.median(ratios):.3f}; at most {SECOND_START_SHARE} is wanted.",
        ]
    )


def same_training(trials: Trials, num_pairs: int) -> str:
    """The section on throughput and losses of whole trials."""
    rates: dict[str, list[float]] = {kind: [] for kind in KINDS}
    quick: dict[str, list[float]] = {kind: [] for kind in KINDS}
    losses: dict[str, set[tuple[str, ...]]] = {kind: set() for kind in KINDS}
    for kind in in_turns(num_pairs):
        result = trials.measured(kind)
        assert result.measurement is not None
        rates[kind].append(result.measurement.samples_per_second)
        quick[kind].append(_undisturbed_rate(result))
        losses[kind].add(tuple(loss.hex() for loss in result.ranks[0].first_losses))
    num_losses = {len(sequence) for kind in KINDS for sequence in losses[kind]}
    is_same = losses["forked"] == losses["cold"] and len(losses["cold"]) == 1 and min(num_losses) > 0
    words = "equal bit for bit in all of them" if is_same else "NOT equal"
    return "\n".join(
        [
            "## The same training\n",
            f"{num_pairs} pairs of whole trials in turns, of `job.py forever`.\n",
            f"* Throughput, forked against cold: {_ratio_text(rates)}, of what the trials report.",
            f"* The same of each trial's quickest tenth of blocks, the least disturbed: {_ratio_text(quick)}.",
            f"* The first {min(num_losses)} losses: {words}.",
        ]
    )


def _undisturbed_rate(result: TrialResult) -> float:
    """Samples per second that a tenth of the window's blocks reach."""
    window = [block for block in result.ranks[0].blocks if block.phase is Phase.WINDOW]
    rates = sorted(block.num_samples / block.duration_s for block in window)
    return rates[int(0.9 * (len(rates) - 1))]


def _ratio_text(rates: dict[str, list[float]]) -> str:
    """The geometric mean of the pairs' ratios, with its interval."""
    logs = [math.log(forked / cold) for forked, cold in zip(rates["forked"], rates["cold"], strict=True)]
    half = T_95[len(logs) - 1] * statistics.stdev(logs) / math.sqrt(len(logs))
    ratio, low, high = (math.exp(statistics.fmean(logs) + shift) for shift in (0.0, -half, half))
    cold = statistics.median(rates["cold"])
    return f"{ratio:.3f} [{low:.3f}, {high:.3f}] (95 %, Student's t on the pairs; cold {cold:,.0f} samples/s)"
