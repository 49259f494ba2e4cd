"""Measures the turns of a recording, each in a running process where possible."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from autotune.errors import EveryTrialFailedError, HostError
from autotune.lab.grid import CellRecord, summarize_blocks
from autotune.lab.grid_file import GridFile
from autotune.lab.grid_order import BASELINE, GridOrder, Turn, kinds_of
from autotune.measure.window_stopping import WindowRule, block_size
from autotune.model.events import Event, Notice, TrialFinished, TrialStarted
from autotune.model.outcome import Outcome
from autotune.model.result import TrialResult, last_lines
from autotune.protocol.codec import from_plain, to_plain
from autotune.protocol.job import TrialJob
from autotune.runner.runner import KeepingRunner, Runner
from autotune.settings import Settings
from autotune.store.secrets import mask_plain, mask_text
from autotune.study.jobs import Jobs
from autotune.study.progress import ProgressTeller
from autotune.study.script_end import ScriptEnd
from autotune.study.stop import StopRequest, wait_for

ENDING_S = 3.0
"""Time kept for the end of the last trial and of the recording, in seconds."""
BLOCKS_IN_WINDOW = 12
"""Length of a window in blocks at the baseline's pace: a rate needs four, and some cells are three times as slow."""
SHORTEST_STEP_S = 1e-4
NUM_RECENT = 8
"""Latest trials used to predict the time of the next trial."""
MAX_HOST_FAULTS = 3
"""Trials in a row ended from outside, after which the recording ends."""
MAX_PASSES = 3
"""Passes over the due turns; all but the first repeat turns ended from outside."""


def num_measured(file: GridFile, repeats: int) -> int:
    """Number of measurements in a recording, anchors not counted."""
    return len(
        {(record.cell, record.round) for record in file.records if record.anchor is None and record.round < repeats}
    )


def num_left(file: GridFile, repeats: int) -> int:
    """Number of missing measurements of a recording, anchors not counted."""
    return len(file.header.cells) * repeats - num_measured(file, repeats)


class Recorder:
    """Measures the missing turns of a recording, until the recording is complete, the time is up, or the user stops.

    Args:
        file: The recording.
        repeats: Rounds over all cells.
        jobs: Makes the jobs.
        runner: Runs the jobs.
        deadline: End of the time, on the monotonic clock, in seconds.
        stop: Ends the recording early.
        on_event: Receives every event.
        now: The monotonic clock, in seconds.
    """

    def __init__(
        self,
        file: GridFile,
        *,
        repeats: int,
        jobs: Jobs,
        runner: Runner,
        deadline: float,
        stop: StopRequest,
        on_event: Callable[[Event], None],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._file, self._repeats, self._jobs, self._runner = file, repeats, jobs, runner
        self._deadline, self._stop, self._on_event, self._now = deadline, stop, on_event, now
        self._progress = ProgressTeller(on_event)
        self._settings = file.header.settings
        self._done = {Turn(record.cell, record.round, record.anchor) for record in file.records}
        self._script_end = ScriptEnd()
        self._num_faults = 0
        kinds = kinds_of(self._settings, jobs, runner)
        self._order = GridOrder(kinds, repeats=repeats, seed=file.header.seed, fastest=self._second_anchor)

    def run(self) -> None:
        """Measures turn by turn, and writes each turn into the file before the next turn.

        Raises:
            EveryTrialFailedError: The baseline failed twice: no cell could be compared.
            HostError: Several trials in a row were ended from outside.
        """
        for _ in range(MAX_PASSES):
            for turn in self._order.turns():
                if turn in self._done:
                    continue
                if self._stop.level or not self._has_time(turn):
                    return
                self._measure(turn)
            if not num_left(self._file, self._repeats):
                return

    def _second_anchor(self, cells: Sequence[int]) -> int | None:
        """The anchor beside the baseline: an anchor measured before, else the fastest measured cell."""
        before = (turn.cell for turn in self._done if turn.anchor is not None)
        known = next((cell for cell in before if cell != BASELINE and cell in cells), None)
        if known is not None:
            return known
        rates = {
            record.cell: record.result.measurement.samples_per_second
            for record in self._file.records
            if record.result.measurement is not None and record.cell != BASELINE and record.cell in cells
        }
        return max(rates, key=rates.__getitem__, default=None)

    def _has_time(self, turn: Turn) -> bool:
        """Whether a trial as long as the longest of the recent alike would end in time.

        Trials in a running process are alike, and so are trials in new processes. A trial that ran into a limit tells
        nothing of the next one.
        """
        is_live = isinstance(self._runner, KeepingRunner) and self._runner.goes_on(self._job(turn))
        ended = [each.result for each in self._file.records if each.result.outcome is not Outcome.TIMED_OUT]
        alike = [result.wall_s for result in ended if result.is_live == is_live]
        recent = (alike or [result.wall_s for result in ended])[-NUM_RECENT:]
        expected_s = max(recent, default=self._file.header.facts.first_step_s)
        return self._now() + expected_s + ENDING_S <= self._deadline

    def _measure(self, turn: Turn) -> None:
        settings = self._settings[turn.cell]
        stage = f"round {turn.round + 1}" if turn.anchor is None else f"anchor {turn.anchor}"
        self._on_event(TrialStarted(number=turn.cell, settings=settings, stage=stage))
        started_at, load = datetime.now(UTC), _load()
        result = self._settled(turn)
        if result is None:
            return
        summaries = [summarize_blocks(rank.blocks) for rank in result.ranks]
        self._file.append(
            CellRecord(
                cell=turn.cell,
                round=turn.round,
                anchor=turn.anchor,
                started_at=started_at.isoformat(timespec="seconds"),
                load=load,
                result=slim(result),
                blocks=tuple(summary for summary in summaries if summary is not None),
            )
        )
        self._done.add(turn)
        self._on_event(TrialFinished(number=turn.cell, settings=settings, stage=stage, result=result, is_best=False))

    def _settled(self, turn: Turn) -> TrialResult | None:
        """The result for a turn; None when the turn stays due.

        Raises:
            EveryTrialFailedError: The baseline failed twice.
            HostError: Several trials in a row were ended from outside.
        """
        is_baseline = turn.cell == BASELINE
        result = self._run(turn)
        is_again = self._script_end.learn(result) or _may_be_accident(result) or self._is_doubtful(turn, result)
        is_again = is_again or (is_baseline and result.outcome.is_failed)
        while is_again:
            if self._stop.level or not self._has_time(turn):
                return None  # One failure does not tell the cause.
            first, result = result, self._run(turn)
            note = f"A first run ended {first.outcome}: {first.reason}"
            result = replace(result, notes=(*result.notes, note))
            is_again = self._script_end.learn(result)
        if result.outcome is Outcome.INTERRUPTED:
            self._count_fault(turn, result)
            return None
        if is_baseline and result.outcome.is_failed:
            raise EveryTrialFailedError(
                f"The script's own settings cannot be measured: {result.reason}",
                f"It printed:\n{last_lines(result.log_tail)}",
            )
        self._num_faults = 0
        return result

    def _is_doubtful(self, turn: Turn, result: TrialResult) -> bool:
        """Whether a cell needed too much memory in a running process only, as far as the recording knows.

        Such a process may still hold memory of the cells before.
        """
        if not result.is_doubtful_over_cap:
            return False
        records = (record.result for record in self._file.records if record.cell == turn.cell)
        return not any(before.outcome.is_infeasible and not before.is_live for before in records)

    def _job(self, turn: Turn) -> TrialJob:
        settings = self._settings[turn.cell]
        job = self._jobs.trial(settings)
        request = replace(job.request, window=self._window(settings, job.request.window))
        return self._script_end.written_to(replace(job, request=request))

    def _run(self, turn: Turn) -> TrialResult:
        run = self._runner.start(self._job(turn))
        is_ended = False

        def look() -> None:
            nonlocal is_ended
            self._progress.look(run)
            if not is_ended and self._now() >= self._deadline:
                is_ended = True
                run.cancel()

        wait_for(run, self._stop, now_and_then=look)
        result = run.result()
        return replace(result, reason=mask_text(result.reason))

    def _window(self, settings: Settings, rule: WindowRule) -> WindowRule:
        """The rule with the user's window, longer when a rate would have too few blocks."""
        header = self._file.header
        if header.window_s is None:
            return rule
        micro_step_s = max(header.facts.step_s, SHORTEST_STEP_S) / settings.grad_accum_steps
        num_micro_batches = block_size(settings.num_workers, settings.grad_accum_steps, micro_step_s, rule.min_block_s)
        longest_s = max(header.window_s, BLOCKS_IN_WINDOW * num_micro_batches * micro_step_s)
        return replace(rule, max_window_s=longest_s, min_window_s=min(rule.min_window_s, longest_s))

    def _count_fault(self, turn: Turn, result: TrialResult) -> None:
        """Counts an interruption as a fault of the host, unless by the user or by the end of the time."""
        if self._stop.level or self._now() >= self._deadline:
            return
        self._num_faults += 1
        if self._num_faults >= MAX_HOST_FAULTS:
            raise HostError(
                f"{self._num_faults} trials in a row were ended from outside: {result.reason}",
                "What was measured is in the file; record again when the machine is quiet.",
            )
        self._on_event(Notice(message=f"Cell {turn.cell} was ended from outside and stays due: {result.reason}"))


def _may_be_accident(result: TrialResult) -> bool:
    """Whether a failure may come from the host, or from measurements before in the same process."""
    return result.outcome in (Outcome.CRASHED, Outcome.TIMED_OUT) or (result.is_live and result.outcome.is_failed)


def slim(result: TrialResult) -> TrialResult:
    """The result without the log and the raw blocks, and with secrets masked: a recording is made for others too."""
    ranks = tuple(replace(rank, blocks=(), facts=None) for rank in result.ranks)
    return from_plain(TrialResult, mask_plain(to_plain(replace(result, ranks=ranks, log_tail=""))))


def _load() -> float | None:
    try:
        return os.getloadavg()[0]
    except OSError:
        return None
