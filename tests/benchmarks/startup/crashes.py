"""What a crash costs a search: from the error inside a trial until the next trial has been started."""

from __future__ import annotations

import statistics
import sys
import time

from autotune.study.stop import StopRequest, wait_for
from tests.benchmarks.startup.trials import Trials

SAID = "failed at "
NUM_STEPS = "30"


def crashes(trials: Trials, num: int) -> str:
    """The section on crashes, so many for each kind of start."""
    rows = []
    for kind in ("cold", "forked"):
        seconds: list[float] = []
        for _ in range(num):
            seconds.append(_until_next_s(trials, kind))
            print(f"{kind} {seconds[-1]:.2f} s", file=sys.stderr, flush=True)
        rows.append(f"| {kind} | {statistics.median(seconds):.2f} | {max(seconds):.2f} |")
    return "\n".join(
        [
            "## From a crash inside a trial to the next trial's start\n",
            f"Seconds over {num} crashes each of `crashing_job.py {NUM_STEPS}`, which has eight persistent workers, "
            "looked at as the search looks. At its exit the script would wait five seconds for each of them.\n",
            "| start | median | worst |",
            "|---|---|---|",
            *rows,
        ]
    )


def rank_crashes(trials: Trials, num: int) -> str:
    """The section on crashes of a spawned rank, each in a cold start."""
    seconds: list[float] = []
    for _ in range(num):
        seconds.append(_until_next_s(trials, "cold"))
        print(f"{seconds[-1]:.2f} s", file=sys.stderr, flush=True)
    return "\n".join(
        [
            "## From the crash of a spawned rank to the next trial's start\n",
            f"Seconds over {num} crashes of the second rank of `crashing_ranks.py {NUM_STEPS}`, two ranks by "
            f"`torch.multiprocessing.spawn`: median {statistics.median(seconds):.2f}, worst {max(seconds):.2f}.",
        ]
    )


def _until_next_s(trials: Trials, kind: str) -> float:
    """Seconds from one trial's error until the next one has been started, which is then ended."""
    handle = trials.started(trials.job, kind, NUM_STEPS)
    wait_for(handle, StopRequest())
    result = handle.result()
    following = trials.started(trials.job, kind, NUM_STEPS)
    now = time.monotonic()
    following.cancel()
    following.result()
    lines = [line for line in result.log_tail.splitlines() if line.startswith(SAID)]
    if not lines or result.start != kind:
        raise SystemExit(f"a trial did not fail as it should: {result.start} {result.reason}\n{result.log_tail}")
    return now - float(lines[0].removeprefix(SAID))
