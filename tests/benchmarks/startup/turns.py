"""What a step costs in a forked trial and in a cold one that live side by side and train in turns.

Whole trials one after the other are too far apart on a machine that others use: their rates differ by tens of percent.
Here one process at a time trains for some steps, and the processor time of its training thread is compared with that of
the other's next turn. Both are the product's own trials, with its meter, in a window that lasts as long as is wanted.
"""

from __future__ import annotations

import json
import math
import socket
import statistics
import uuid
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from autotune.protocol.protection import ProtectionWish
from autotune.runner.fork_runner import ForkRunner
from tests.benchmarks.startup.trials import Trials
from tests.jobs import changed

FIRST_TURNS = 16
"""Of each process that are left out: pages are copied at their first use, and the meter warms up."""
NUM_TURNS = 40
"""Of each process that are compared."""
LONG_S = 600.0
"""Longer than any such pair takes."""
ANSWER_LIMIT_S = 60.0

WITHIN_REACH = ProtectionWish(keeps_network=True)
"""For trials that take turns: a network of their own would hide the socket that gives the turns."""


@dataclass(frozen=True, kw_only=True)
class Costs:
    """Seconds of every turn of one process."""

    cpu_s: tuple[float, ...]
    wall_s: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two processes that took turns; every turn of one has its neighbour among the other's."""

    first: Costs
    second: Costs

    def log_ratio(self, what: str) -> float:
        """Logarithm of the median ratio of neighbouring turns, first against second.

        Args:
            what: cpu_s or wall_s.
        """
        turns = zip(getattr(self.first, what), getattr(self.second, what), strict=True)
        return statistics.median(math.log(one / other) for one, other in turns)


def take_turns(trials: Trials, kinds: Sequence[str]) -> Pair:
    """Two trials of those kinds, alive at once; both are ended afterwards."""
    with ExitStack() as stack:
        talks = [_start(stack, trials, kind) for kind in kinds]
        taken: tuple[list[dict[str, float]], ...] = ([], [])
        for turn in range(FIRST_TURNS + NUM_TURNS):
            for i in (0, 1) if turn % 2 else (1, 0):
                talks[i].send(b"t")
                said = talks[i].recv(1000)
                if not said:
                    raise SystemExit(f"a {kinds[i]} trial ended before its turns did")
                taken[i].append(json.loads(said))
    first, second = (
        Costs(
            cpu_s=tuple(turn["cpu_s"] for turn in each[FIRST_TURNS:]),
            wall_s=tuple(turn["wall_s"] for turn in each[FIRST_TURNS:]),
        )
        for each in taken
    )
    return Pair(first=first, second=second)


def _start(stack: ExitStack, trials: Trials, kind: str) -> socket.socket:
    """A trial that waits for its turn."""
    name = f"autotune-bench-{uuid.uuid4().hex}"
    listener = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
    listener.bind(f"\0{name}")
    listener.listen(1)
    listener.settimeout(ANSWER_LIMIT_S)
    rule = replace(trials.job.request.window, min_window_s=LONG_S, max_window_s=LONG_S)
    if kind == "forked":
        # Where its memory lies is drawn once per server, and may be worth some percent.
        assert trials.job.facts is not None
        server = stack.enter_context(ForkRunner(trials.cold, trials.job.facts, least_preparation_s=math.inf))
        trials = replace(trials, forked=server)
    handle = trials.started(changed(trials.job, window=rule, total_limit_s=2 * LONG_S), kind, f"turns:{name}")
    stack.callback(handle.result)
    stack.callback(handle.cancel)
    talk, _ = listener.accept()
    talk.settimeout(ANSWER_LIMIT_S)
    return stack.enter_context(talk)
