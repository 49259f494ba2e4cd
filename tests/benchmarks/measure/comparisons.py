"""The finals' rule on settings whose worth is known: the same settings twice, and settings that are truly faster.

Every comparison is the product's own finals of the baseline and three finalists: fresh processes, rounds in random
order, more rounds while the best looks faster but not beyond doubt. All three finalists have the baseline's settings,
or one of them has settings that are faster.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from typing import Any

from autotune.model.outcome import Outcome
from autotune.model.result import TrialResult
from autotune.model.trial_records import FinalRecord, TrialRecord
from autotune.search.history import FinishedTrial
from autotune.settings import Settings
from autotune.study.budget import Budget
from autotune.study.final_choice import FinalsResult
from autotune.study.finals import Finals
from autotune.study.stop import StopRequest
from tests.benchmarks.measure.rows import Row, Rows
from tests.benchmarks.measure.trials import Trials, trials_of

ARGUMENTS = ("--workers=4", "--prefetch=2", "--batch-s=0.04", "--compute-s=0.003")
GAIN = 1.1
FASTER_PREFETCH = 4
"""The setting that makes the job so much faster."""
NUM_COMPARISONS = {"itself": 40, "faster": 20}
MAX_FALSE_GAINS, MIN_TRUE_GAINS = 1, 19
NUM_FINALISTS = 3
EXPECTED_S = 200.0
PARTS = tuple(NUM_COMPARISONS)


@dataclass
class NewProcesses:
    """Measures each final in a new process."""

    trials: Trials

    def can_share(self, settings: Settings) -> bool:
        """Every run has a new process."""
        return False

    def measure(
        self, settings: Settings, *, is_final: bool, window_limit_s: float = math.inf, **_: object
    ) -> TrialResult:
        """Runs a trial; every one draws other build times, and none is repeated."""
        job = self.trials.jobs.trial(settings, is_final=is_final, window_limit_s=window_limit_s)
        return self.trials.run(job, seed=time.time_ns() % (1 << 31))


@dataclass
class Records:
    """What the finals need of the database."""

    records: list[FinalRecord] = field(default_factory=list)

    def finals(self, _: str) -> tuple[FinalRecord, ...]:
        """All records."""
        return tuple(self.records)

    def trials(self, _: str) -> tuple[TrialRecord, ...]:
        """None: the finalists were never tried."""
        return ()

    def record_final(self, _: str, record: FinalRecord) -> None:
        """Keeps one."""
        self.records.append(record)

    def add_spent(self, _: str, seconds: float) -> None:
        """Nobody asks for it."""


def compare_once(part: str, seed: int) -> Row:
    """One comparison: whether it was called a gain, and the figures."""
    gain = GAIN if part == "faster" else 1.0
    with trials_of(*ARGUMENTS, f"--gain={gain}", f"--faster-prefetch={FASTER_PREFETCH}") as trials:
        own = trials.script_settings
        first = replace(own, prefetch_factor=FASTER_PREFETCH) if part == "faster" else own
        finalists = [_finished(1 + number, own if number else first) for number in range(NUM_FINALISTS)]
        measuring: Any = NewProcesses(trials)
        records: Any = Records()
        finals = Finals(
            study="bench",
            measuring=measuring,
            repository=records,
            budget=Budget(1e6, 0.0),
            stop=StopRequest(),
            on_event=lambda event: None,
            seed=seed,
        )
        result = finals.run(finalists, _finished(0, own))
    assert result is not None
    rates = {
        number: [r.result.measurement.samples_per_second for r in records.records if r.number == number]
        for number in range(1 + NUM_FINALISTS)
    }
    return {"is_gain": _is_gain(result), "num_rounds": len(rates[0]), "rates": rates}


def _is_gain(result: FinalsResult) -> bool:
    """As the published status says it."""
    return result.comparison is not None and result.comparison.is_gain


def _finished(number: int, settings: Settings) -> FinishedTrial:
    return FinishedTrial(
        number=number,
        settings=settings,
        stage="bench",
        outcome=Outcome.OK,
        samples_per_second=1.0,
        peak_memory_bytes=1,
    )


def run(part: str, rows: Rows, at_once: int) -> bool:
    """Runs what is missing of a part, several comparisons at once; whether it is complete."""
    missing = rows.missing(part, [f"#{number}" for number in range(NUM_COMPARISONS[part])])
    running: dict[Future[tuple[float, Row]], str] = {}
    with ThreadPoolExecutor(at_once) as pool:
        while True:
            while missing and len(running) < at_once and rows.has_time(part, EXPECTED_S):
                key = missing.pop(0)
                running[pool.submit(_in_a_process, part, key)] = key
            if not running:
                return not missing
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                wall_s, values = future.result()
                rows.add(part, running.pop(future), wall_s, values)


def _in_a_process(part: str, key: str) -> tuple[float, Row]:
    """A runner of its own for each: trials of one tuner follow each other."""
    began = time.monotonic()
    command = [sys.executable, "-m", "tests.benchmarks.measure", "--one", part, "--seed", key[1:]]
    output = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    values: Row = json.loads(output.splitlines()[-1])
    return time.monotonic() - began, values


def report(rows: Rows) -> Iterator[str]:
    """Markdown."""
    itself, faster = rows.of("itself"), rows.of("faster")
    if not itself and not faster:
        return
    false_gains, true_gains = (sum(row["is_gain"] for row in found) for found in (itself, faster))
    is_complete = (len(itself), len(faster)) == tuple(NUM_COMPARISONS.values())
    is_met = is_complete and false_gains <= MAX_FALSE_GAINS and true_gains >= MIN_TRUE_GAINS
    yield "## Comparisons by the finals\n"
    yield (
        f"Beside three finalists with the same settings {false_gains} of {len(itself)} comparisons were called a gain "
        f"(at most {MAX_FALSE_GAINS} of 40); with one of the three {GAIN - 1:.0%} faster, {true_gains} of "
        f"{len(faster)} (at least {MIN_TRUE_GAINS} of 20): **{'met' if is_met else 'not met'}**.\n"
    )
    yield "| comparison | rounds | called a gain |"
    yield "|---|---|---|"
    for part, found in (("with itself", itself), ("10 % faster", faster)):
        for num_rounds in sorted({row["num_rounds"] for row in found}):
            of_these = [row for row in found if row["num_rounds"] == num_rounds]
            yield f"| {part} | {num_rounds} | {sum(row['is_gain'] for row in of_these)} of {len(of_these)} |"
    yield ""
