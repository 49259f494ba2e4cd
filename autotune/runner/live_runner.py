"""Measures several settings in one process of the script, and starts new processes where necessary.

A process that has measured waits for the next request. A request for settings that no running process can change, and
every request after a failure, gets a new process by another runner. So does a final.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from autotune.measure.window_stopping import WindowRule
from autotune.model.gauges import Gauges
from autotune.model.outcome import Outcome
from autotune.model.result import ProbeResult, TrialResult
from autotune.protocol.job import MeasurementRequest, TrialJob
from autotune.runner.runner import Run, ServedRun, Server
from autotune.settings import BY_NAME, GROUP_OF_FIELD, SETTINGS, Settings

CHECK_EVERY = 8
"""Measurements of a process between two of the process's first settings."""
MOST_DRIFT = 0.03
"""Change of a rate, as a logarithm, without consequences for the ranking of settings."""
MOST_SAID_CHARS = 200
"""Longest part of a process's last line that is told."""
POLL_S = 0.01


class Starter(Protocol):
    """Starts a new process for each job; `ForkRunner` is an example."""

    def start(self, job: TrialJob) -> ServedRun:
        """Starts a run."""

    def close(self) -> None:
        """Ends the processes kept for later runs."""


@dataclass(kw_only=True, slots=True)
class _Process:
    """A process that waits for requests."""

    server: Server
    job: TrialJob
    """The job that the process was started for."""
    reference: tuple[TrialJob, TrialResult] | None = None
    """The first whole measurement of the process; None before."""
    num_measured: int = 1
    num_unchecked: int = 0
    """Measurements since the settings of the reference were measured."""

    def ask(self, job: TrialJob) -> ServedRun:
        """Asks for another measurement.

        Raises:
            OSError: The request cannot be written.
        """
        number, self.num_measured = self.num_measured, self.num_measured + 1
        return self.server.next(job, number)

    def note(self, job: TrialJob, result: TrialResult) -> None:
        """Notes a measurement."""
        self.num_unchecked += 1
        if self.reference is None and result.outcome is Outcome.OK:
            self.reference = job, result
        if self.reference is not None and self.reference[0].request.settings == job.request.settings:
            self.num_unchecked = 0

    @property
    def due_check(self) -> TrialJob | None:
        """The job of the reference again, measured to the end; None before a check is due."""
        if self.reference is None or self.num_unchecked < CHECK_EVERY:
            return None
        job = self.reference[0]
        return replace(job, request=replace(job.request, incumbent_samples_per_second=None))


class LiveRunner:
    """Answers requests in a running process if possible, one at a time.

    Args:
        starter: Starts the processes.
    """

    def __init__(self, starter: Starter) -> None:
        self._starter = starter
        self._process: _Process | None = None
        self._lost = ""
        """Why the latest process did not wait for another request; empty when it was ended."""

    def start(self, job: TrialJob) -> Run:
        """Starts to answer the job's request."""
        process = self._process
        if process is None or not job.serves:
            return self.start_afresh(job, self._lost if job.serves else "")
        reason = why_fresh(process.job, job)
        return self.start_afresh(job, reason) if reason else _LiveRun(self, process, job)

    def start_afresh(self, job: TrialJob, reason: str) -> _FreshRun:
        """Starts a new process for a job, after the end of the running process.

        Args:
            job: The job.
            reason: Why no running process can measure the settings; empty when there is none.
        """
        self._end()
        self._lost = ""
        return _FreshRun(self, self._starter.start(job), job, reason)

    @property
    def has_process(self) -> bool:
        """Whether a process waits for the next request."""
        return self._process is not None

    def can_switch(self, before: TrialJob, job: TrialJob) -> bool:
        """Whether a process started for the job `before` can answer the other job's request."""
        return job.serves and not why_fresh(before, job)

    def goes_on(self, job: TrialJob) -> bool:
        """Whether the waiting process can answer the job's request; False without a waiting process."""
        return self._process is not None and self.can_switch(self._process.job, job)

    def close(self) -> None:
        """Ends all processes."""
        self._end()
        self._starter.close()

    def began(self, server: Server | None, job: TrialJob, result: TrialResult) -> None:
        """Keeps a new process after the first measurement, if the process waits."""
        if server is None:
            self._lost = why_lost(job, result)
        else:
            self.went_on(_Process(server=server, job=job), server, job, result)

    def went_on(self, process: _Process, server: Server | None, job: TrialJob, result: TrialResult) -> None:
        """Keeps a process after a measurement, if the process waits, unless the measurement failed."""
        self._process = None
        if server is None:
            self._lost = why_lost(job, result)
        else:
            self._process, process.server = process, server
            process.note(job, result)
        if not result.outcome.is_complete:
            self._end()

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.server.end()


class _FreshRun:
    """A run in a new process."""

    def __init__(self, runner: LiveRunner, run: ServedRun, job: TrialJob, reason: str) -> None:
        self._runner, self._run, self._job, self._reason = runner, run, job, reason

    def poll(self) -> bool:
        """Checks limits and memory once; True when the run is over."""
        return self._run.poll()

    def gauges(self) -> Gauges | None:
        """Readings of the last `poll`."""
        return self._run.gauges()

    def cancel(self) -> None:
        """Ends the run."""
        self._run.cancel()

    def result(self, *, profiles_to: Path | None = None) -> TrialResult:
        """The judged result, with the reason for the new process."""
        result = self._run.result(profiles_to=profiles_to)
        self._runner.began(self._run.serving, self._job, result)
        if not self._reason:
            return result
        reasons = (self._reason, result.start_reason)
        return replace(result, start_reason="; ".join(reason for reason in reasons if reason))

    def probe_result(self) -> ProbeResult:
        """The result of a probe."""
        return self._run.probe_result()


class _LiveRun:
    """A run in a process with earlier measurements; goes to a new process when the old process is of no use.

    A process is of no use once the first settings have lost their first rate. A process whose script comes to its own
    end has spent the script's steps on earlier measurements, and the settings get a new process too.
    """

    def __init__(self, runner: LiveRunner, process: _Process, job: TrialJob) -> None:
        self._runner, self._process, self._job = runner, process, job
        check = process.due_check
        self._check = replace(check, ends_by=job.ends_by) if check is not None else None
        self._check_s: float | None = None
        self._run: ServedRun | None = None
        self._fresh: _FreshRun | None = None
        self._result: TrialResult | None = None
        self._is_cancelled = False
        self._ask(self._check or job)

    def poll(self) -> bool:
        """Checks limits and memory once; True when the run is over."""
        if self._result is not None:
            return True
        if self._fresh is not None:
            return self._fresh.poll()
        assert self._run is not None
        if self._run.poll():
            result = self._run.result()
            self._runner.went_on(self._process, self._run.serving, self._check or self._job, result)
            self._measured(result)
        return self._result is not None

    def gauges(self) -> Gauges | None:
        """Readings of the last `poll`."""
        run = self._fresh or self._run
        return run.gauges() if run is not None else None

    def cancel(self) -> None:
        """Ends the run and its process."""
        self._is_cancelled = True
        run = self._fresh or self._run
        if run is not None:
            run.cancel()

    def result(self, *, profiles_to: Path | None = None) -> TrialResult:
        """The judged result; the time of a check is a part of the run's time."""
        while not self.poll():
            time.sleep(POLL_S)
        result = self._result
        if result is None:
            assert self._fresh is not None
            result = self._fresh.result(profiles_to=profiles_to)
        if self._check_s is None:
            return result
        durations_s = {"check": self._check_s, **result.durations_s}
        return replace(result, wall_s=result.wall_s + self._check_s, durations_s=durations_s)

    def probe_result(self) -> ProbeResult:
        """Never called: probes get a new process.

        Raises:
            TypeError: Always.
        """
        raise TypeError("a probe needs a new process")

    def _ask(self, job: TrialJob) -> None:
        try:
            self._run = self._process.ask(job)
        except OSError as error:
            self._begin_afresh(f"the running process cannot be asked: {error}")

    def _begin_afresh(self, reason: str) -> None:
        self._fresh = self._runner.start_afresh(self._job, reason)

    def _measured(self, result: TrialResult) -> None:
        """Takes a result as this run's, or goes on after a check or after the script's own end."""
        if self._is_cancelled or result.outcome is Outcome.INTERRUPTED:
            self._result = result
        elif self._check is not None:
            self._check, self._check_s = None, result.wall_s
            assert self._process.reference is not None
            moved = why_moved(self._process.reference[1], result)
            if moved:
                self._begin_afresh(moved)
            else:
                self._ask(self._job)
        elif result.has_ended_early:
            self._begin_afresh(f"the script ended in the process before: {_last_words(result)}")
        else:
            self._result = result


def why_lost(job: TrialJob, result: TrialResult) -> str:
    """Why a process did not wait after a measurement, by the last line of its output.

    Empty for a process that was not to wait: of a job that serves no further requests, or after a failure.
    """
    if not job.serves or not result.outcome.is_complete:
        return ""
    return f"the process before ended after its measurement: {_last_words(result)}"


def _last_words(result: TrialResult) -> str:
    """The last line of a run's output; the line may begin with a progress bar of the script.

    A script may catch all errors, as with loguru's `catch`, and end as if the training was over. The reason is then in
    the last line alone.
    """
    lines = result.log_tail.strip().splitlines()
    return lines[-1].strip().rpartition("autotune: ")[2][:MOST_SAID_CHARS] if lines else "it said nothing"


def why_moved(first: TrialResult, again: TrialResult) -> str:
    """How the rate of a process's first settings has moved beyond the noise; empty when the rate is the same."""
    before, now = first.measurement, again.measurement
    if again.outcome is not Outcome.OK or before is None or now is None:
        return f"the first settings of the process before ended {again.outcome}"
    ratio = now.steady_samples_per_second / before.steady_samples_per_second
    is_apart = now.low > before.high or now.high < before.low
    if not is_apart or abs(math.log(ratio)) <= MOST_DRIFT:
        return ""
    return f"the rate of the first settings of the process before had moved to {ratio:.2f} of what it was"


def why_fresh(before: TrialJob, job: TrialJob) -> str:
    """Why a process cannot go on with another job; empty when it can.

    Args:
        before: The job that the process was started for.
        job: The other job.
    """
    own, asked = before.request.settings, job.request.settings
    assert own is not None and asked is not None
    for name in sorted(own.differences(asked)):
        reason = _why_not_live(name, job)
        if reason:
            return f"{name}: {reason}"
    if job.script_steps is not None:
        return "the script ends by itself after few steps"
    return "" if _unchanging(before) == _unchanging(job) else "the script is started in another way"


def _why_not_live(name: str, job: TrialJob) -> str:
    """Why a running process cannot change a setting or a knob; empty when it can."""
    if name not in GROUP_OF_FIELD:
        return "the script reads its own knobs at the start"
    if name in job.mapped:
        return "the script reads its arguments at the start"
    if job.facts is not None and GROUP_OF_FIELD[name] in job.facts.claims:
        return "the script applies it itself, at the start"
    setting, facts = BY_NAME[name], job.facts
    if facts is not None and facts.own_compile and setting.not_live_in_own_graph:
        return setting.not_live_in_own_graph
    if facts is not None and "ddp" in facts.notes and setting.not_live_in_ddp:
        return setting.not_live_in_ddp
    return setting.not_live


def _unchanging(job: TrialJob) -> TrialJob:
    """The part of a job that stays the same for the measurements of a process."""
    settings = job.request.settings
    by_call = {
        variable
        for setting in SETTINGS
        if setting.environment is not None and not setting.not_live
        for variable in setting.environment(getattr(settings, setting.name), {})
    }
    return replace(
        job,
        request=_NO_REQUEST,
        environment=tuple(pair for pair in job.environment if pair[0] not in by_call),
        **_KEPT_BY_TUNER,
    )


_KEPT_BY_TUNER: dict[str, Any] = {
    "start_limit_s": 1.0,
    "total_limit_s": 1.0,
    "ends_by": None,
    "own_skipped_share": None,
}
"""Fields that no process reads: a compiled model gets a longer start, in a running process too."""

_NO_REQUEST = MeasurementRequest(settings=Settings(), window=WindowRule(half_width_ratio=0.5, max_window_s=1.0))
