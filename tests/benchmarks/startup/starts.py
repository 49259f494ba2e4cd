"""How much sooner a forked or prepared trial is there, and whether it is the same trial then."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.benchmarks.startup.trials import Trials
from tests.benchmarks.startup.turns import FIRST_TURNS, NUM_TURNS, take_turns

KINDS = ("forked", "cold")
SHARES = {"forked": 0.1, "prepared": 0.05}
"""Longest first step of a trial that starts so, as a share of a cold one's."""
T_95 = {2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262, 10: 2.228}
"""Student's two-sided 95 % by degrees of freedom."""


def in_turns(kinds: Sequence[str], num_rounds: int) -> Iterator[str]:
    """Every kind in every round; which is first changes, so that a drift of the machine hits all of them."""
    for number in range(num_rounds):
        first = number % len(kinds)
        yield from (*kinds[first:], *kinds[:first])


def first_steps(trials: Trials, num_rounds: int, kind: str) -> str:
    """The section on seconds to the end of the first step: trials of that kind against cold ones."""
    kinds = ("prepared", "forked", "cold") if kind == "prepared" else KINDS
    for warm in kinds[:-1]:
        trials.first_step_s(warm)  # The first of each starts the process that the others are forked from.
    seconds: dict[str, list[float]] = {each: [] for each in kinds}
    for each in in_turns(kinds, num_rounds):
        seconds[each].append(trials.first_step_s(each))
    medians = {each: statistics.median(values) for each, values in seconds.items()}
    ratios = [quick / cold for quick, cold in zip(seconds[kind], seconds["cold"], strict=True)]
    rows = [
        f"| {each} | {medians[each]:.3f} | {min(values):.3f} | {max(values):.3f} |" for each, values in seconds.items()
    ]
    return "\n".join(
        [
            f"{num_rounds} rounds in turns, of `{Path(trials.job.command[1]).name} 1`.\n",
            "| start | median | least | most |",
            "|---|---|---|---|",
            *rows,
            "",
            f"Ratio of the medians, {kind} against cold, {medians[kind] / medians['cold']:.3f}, median of the rounds' "
            f"ratios {statistics.median(ratios):.3f}; at most {SHARES[kind]} is wanted.",
        ]
    )


def preparation(trials: Trials, num_rounds: int) -> str:
    """The section on a script that takes its time before it trains."""
    steps = first_steps(trials, num_rounds, "prepared")
    results = [trials.measured(kind) for kind in ("prepared", "forked", "cold", "prepared")]
    losses = [tuple(loss.hex() for loss in result.ranks[0].first_losses) for result in results]
    is_same = len(set(losses)) == 1 and len(losses[0]) > 0
    saved = " and ".join(f"{result.saved_s:.1f} s ({result.start})" for result in results[:2])
    return "\n".join(
        [
            "## The script's own beginning, run once\n",
            steps,
            "",
            f"The first {len(losses[0])} losses of whole trials, two prepared, one forked and one cold: "
            f"{'equal bit for bit' if is_same else 'NOT equal'}. By its record a trial saved {saved}.",
        ]
    )


def hugging_face(trials: Trials, num_rounds: int) -> str:
    """The section on a Hugging Face Trainer's script: trials of every kind that is sound for it, in turns."""
    # The first trial of each kind starts the process that the others are forked from, and may lose its trust.
    first = {kind: [trials.tried(kind, "1") for _ in range(2)][-1] for kind in ("prepared", "forked")}
    kinds = [kind for kind, result in first.items() if result.start == kind]
    seconds: dict[str, list[float]] = {kind: [] for kind in (*kinds, "cold")}
    for kind in in_turns(list(seconds), num_rounds):
        seconds[kind].append(trials.first_step_s(kind))
    cold_s = statistics.median(seconds["cold"])
    rows = [
        f"| {kind} | {statistics.median(values):.3f} | {min(values):.3f} | {max(values):.3f} | "
        f"{statistics.median(values) / cold_s:.3f} |"
        for kind, values in seconds.items()
    ]
    reasons = [f"Asked for {kind}, it was {result.start}: {result.start_reason}." for kind, result in first.items()]
    return "\n".join(
        [
            "## A Hugging Face Trainer's script\n",
            f"{num_rounds} rounds in turns, of `{' '.join(Path(word).name for word in trials.job.command[1:])}` with "
            f"one step, on {trials.job.device}: seconds to the end of the first step.\n",
            "| start | median | least | most | of a cold one |",
            "|---|---|---|---|---|",
            *rows,
            "",
            *reasons,
        ]
    )


def same_training(trials: Trials, num_pairs: int) -> str:
    """The section on the losses of whole trials."""
    losses: dict[str, set[tuple[str, ...]]] = {kind: set() for kind in KINDS}
    for kind in in_turns(KINDS, num_pairs):
        losses[kind].add(tuple(loss.hex() for loss in trials.measured(kind).ranks[0].first_losses))
    num_losses = {len(sequence) for kind in KINDS for sequence in losses[kind]}
    is_same = losses["forked"] == losses["cold"] and len(losses["cold"]) == 1 and min(num_losses) > 0
    words = "equal bit for bit in all of them" if is_same else "NOT equal"
    return "\n".join(
        [
            "## The same training\n",
            f"{num_pairs} pairs of whole trials in turns, forked and cold, of `job.py forever`: the first "
            f"{min(num_losses)} losses are {words}.",
        ]
    )


def side_by_side(trials: Trials, num_pairs: int) -> str:
    """The section on the cost of a step: forked against cold, and cold against cold, which shows the noise."""
    logs: dict[tuple[str, str], list[tuple[float, float]]] = {("forked", "cold"): [], ("cold", "cold"): []}
    for number in range(num_pairs):
        for kinds, found in logs.items():
            is_turned = number % 2 == 1
            pair = take_turns(trials, kinds[::-1] if is_turned else kinds)
            sign = -1 if is_turned else 1
            found.append((sign * pair.log_ratio("cpu_s"), sign * pair.log_ratio("wall_s")))
    rows = [
        f"| {first} against {second} | {_interval_text(cpu)} | {_interval_text(wall)} |"
        for (first, second), found in logs.items()
        for cpu, wall in [tuple(zip(*found, strict=True))]
    ]
    return "\n".join(
        [
            "## The same cost of a step\n",
            f"{num_pairs} pairs of trials of `job.py` that live side by side and train in turns, each forked one from "
            f"a server of its own; {NUM_TURNS} turns each are compared after {FIRST_TURNS} others. Ratios of a turn's "
            "seconds, with 95 % intervals by Student's t on the pairs.\n",
            "| trials | processor time of the training thread | wall time |",
            "|---|---|---|",
            *rows,
        ]
    )


def _interval_text(logs: Sequence[float]) -> str:
    """The mean of logarithms as a ratio, with its interval."""
    half = T_95[len(logs) - 1] * statistics.stdev(logs) / math.sqrt(len(logs))
    ratio, low, high = (math.exp(statistics.fmean(logs) + shift) for shift in (0.0, -half, half))
    return f"{ratio:.3f} [{low:.3f}, {high:.3f}]"
