"""Whether watching a trial slows it down: its throughput with the live view and without, in pairs of random order.

    python -m tests.benchmarks.live_view [--pairs 8]

Both arms are forked trials of the same script under the same settings on this machine's CPU, so that what the tuner
does beside them takes a core from them. With the view a trial is watched on a pseudo-terminal that somebody reads;
without it the talk is quiet. Half a minute for each pair.
"""

from __future__ import annotations

import argparse
import os
import pty
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from autotune.measure.paired import Final, compare
from autotune.model.events import SearchStarted, TrialStarted
from autotune.report.streams import BestEffortStream
from autotune.report.terminal_text import Terminal
from autotune.study.progress import ProgressTeller
from autotune.study.stop import StopRequest, wait_for
from tests.benchmarks.startup.trials import Trials, open_trials

PLAIN, WATCHED = 0, 1
NUM_BYTES = 1 << 16
MAX_TRIES = 3


class Drain:
    """Reads the other end of a pseudo-terminal, as a terminal would, and counts what was drawn."""

    def __init__(self) -> None:
        self._ours, theirs = pty.openpty()
        self.stream = os.fdopen(theirs, "w")
        self.num_bytes = self.num_frames = 0
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the reading."""
        self.stream.close()
        self._thread.join()
        os.close(self._ours)

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._ours, NUM_BYTES)
            except OSError:
                return  # Nobody has the other end open any more.
            self.num_bytes += len(data)
            self.num_frames += data.count(b"Ctrl-C ends")


@contextmanager
def talk(drain: Drain | None, trials: Trials) -> Iterator[Terminal]:
    """The talk of a search that runs a trial: drawn, or quiet."""
    if drain is None:
        with open(os.devnull, "w") as nowhere, Terminal(quiet=True, stream=BestEffortStream(nowhere)) as quiet:
            yield quiet
        return
    with Terminal(stream=BestEffortStream(drain.stream)) as view:
        view(
            SearchStarted(
                study="bench",
                script="job.py",
                machine="this machine",
                memory_cap_bytes=trials.job.cap_bytes,
                max_trials=40,
                budget_s=900.0,
                num_finished=0,
                storage="nowhere",
            )
        )
        assert trials.job.request.settings is not None
        view(TrialStarted(number=1, settings=trials.job.request.settings, stage="bench"))
        yield view


def rate(trials: Trials, drain: Drain | None) -> float:
    """Samples per second of one trial; on a machine that lets it measure too little, of the next that is measured."""
    for _ in range(MAX_TRIES):
        with talk(drain, trials) as view:
            run = trials.forked.start(trials.job)
            wait_for(run, StopRequest(), now_and_then=partial(ProgressTeller(view).look, run))
        result = run.result()
        if result.measurement is not None:
            return result.measurement.samples_per_second
    raise SystemExit(f"a trial ended {result.outcome}: {result.reason}\n{result.log_tail}")


def main() -> None:
    """Measures the pairs, and prints each and the ratio over all."""
    parser = argparse.ArgumentParser(
        prog=f"python -m tests.benchmarks.{Path(__file__).stem}",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--pairs", type=int, default=8)
    options = parser.parse_args()
    os.environ.setdefault("TERM", "xterm-256color")
    finals, drain = [], Drain()
    wall_s, cpu_s = [0.0, 0.0], [0.0, 0.0]
    with open_trials() as trials:
        for number in range(options.pairs):
            rates = {}
            for arm in random.Random(number).sample([PLAIN, WATCHED], 2):
                began, cpu_began = time.monotonic(), time.process_time()
                rates[arm] = rate(trials, drain if arm == WATCHED else None)
                wall_s[arm] += time.monotonic() - began
                cpu_s[arm] += time.process_time() - cpu_began
                finals.append(
                    Final(
                        candidate=arm, round=number, samples_per_second=rates[arm], peak_memory_bytes=0, feasible=True
                    )
                )
            print(f"pair {number}: watched {rates[WATCHED]:.1f}, plain {rates[PLAIN]:.1f} samples/s", flush=True)
    drain.close()
    found = compare(finals, WATCHED, PLAIN)
    print(
        f"watched to plain: {found.ratio:.4f} [{found.low:.4f}, {found.high:.4f}] over {found.num_rounds} pairs; "
        f"{drain.num_frames / wall_s[WATCHED]:.2f} frames and {drain.num_bytes / wall_s[WATCHED]:,.0f} bytes a second; "
        f"the tuner took {1000 * cpu_s[WATCHED] / wall_s[WATCHED]:.1f} ms of a core per second, reading the terminal "
        f"included, and {1000 * cpu_s[PLAIN] / wall_s[PLAIN]:.1f} ms without the view"
    )


if __name__ == "__main__":
    main()
