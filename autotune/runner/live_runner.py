"""Measures several settings in one process of the script, and starts a new process where that is not possible.

A process that has measured waits for the next request. A request for settings that no running process can change, and
every request after a failure, gets a new process by another runner. So does a final.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from autotune.measure.window_stopping import WindowRule
from autotune.model.gauges import Gauges
from autotune.model.result import ProbeResult, TrialResult
from autotune.protocol.job import MeasurementRequest, TrialJob
from autotune.runner.runner import Run, ServedRun, Server
from autotune.settings import BY_NAME, GROUP_OF_FIELD, SETTINGS, Settings


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
    num_measured: int


class LiveRunner:
    """Answers requests in a running process if possible, one at a time.

    Args:
        starter: Starts the processes.
    """

    def __init__(self, starter: Starter) -> None:
        self._starter = starter
        self._process: _Process | None = None

    def start(self, job: TrialJob) -> Run:
        """Starts to answer the job's request."""
        process, reason = self._process, ""
        if process is not None and job.serves:
            reason = why_fresh(process.job, job)
            if not reason:
                try:
                    return _LiveRun(self, process, process.server.next(job, process.num_measured), job)
                except OSError as error:
                    reason = f"the running process cannot be asked: {error}"
        return self.start_afresh(job, reason)

    def start_afresh(self, job: TrialJob, reason: str) -> _FreshRun:
        """Starts a new process for a job, after the end of the running process.

        Args:
            job: The job.
            reason: Why no running process can measure the settings; empty when there is none.
        """
        self._end()
        return _FreshRun(self, self._starter.start(job), job, reason)

    def close(self) -> None:
        """Ends all processes."""
        self._end()
        self._starter.close()

    def measured(self, job: TrialJob, run: ServedRun, result: TrialResult, before: _Process | None) -> None:
        """Keeps the process of a finished run for the next request, unless the run failed."""
        server = run.serving
        if server is None:
            self._process = None
        elif before is not None:
            before.server, before.num_measured = server, before.num_measured + 1
        else:
            self._process = _Process(server=server, job=job, num_measured=1)
        if result.outcome.is_failed:
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
        self._runner.measured(self._job, self._run, result, None)
        if not self._reason:
            return result
        reasons = (self._reason, result.start_reason)
        return replace(result, start_reason="; ".join(reason for reason in reasons if reason))

    def probe_result(self) -> ProbeResult:
        """The result of a probe."""
        return self._run.probe_result()


class _LiveRun:
    """A run in a process that has measured before; goes to a new process when the script comes to its own end.

    The steps of a script are limited, and earlier measurements in the process have used some of them.
    """

    def __init__(self, runner: LiveRunner, process: _Process, run: ServedRun, job: TrialJob) -> None:
        self._runner, self._process, self._run, self._job = runner, process, run, job
        self._fresh: _FreshRun | None = None
        self._result: TrialResult | None = None
        self._is_cancelled = False

    def poll(self) -> bool:
        """Checks limits and memory once; True when the run is over."""
        if self._fresh is not None:
            return self._fresh.poll()
        if self._result is not None or not self._run.poll():
            return self._result is not None
        result = self._run.result()
        self._runner.measured(self._job, self._run, result, self._process)
        if result.has_ended_early and not self._is_cancelled:
            self._fresh = self._runner.start_afresh(self._job, "the script ended in the process before")
            return False
        self._result = result
        return True

    def gauges(self) -> Gauges | None:
        """Readings of the last `poll`."""
        return self._fresh.gauges() if self._fresh is not None else self._run.gauges()

    def cancel(self) -> None:
        """Ends the run and its process."""
        self._is_cancelled = True
        (self._fresh or self._run).cancel()

    def result(self, *, profiles_to: Path | None = None) -> TrialResult:
        """The judged result."""
        while not self.poll():
            continue
        if self._fresh is not None:
            return self._fresh.result(profiles_to=profiles_to)
        assert self._result is not None
        return self._result

    def probe_result(self) -> ProbeResult:
        """Never called: probes get a new process.

        Raises:
            TypeError: Always.
        """
        raise TypeError("a probe needs a new process")


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
    return BY_NAME[name].not_live


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
        ends_by=None,
    )


_NO_REQUEST = MeasurementRequest(settings=Settings(), window=WindowRule(half_width_ratio=0.5, max_window_s=1.0))
