"""One run of the user's script, watched from outside to the end and then judged."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from autotune.host import DeviceInfo
from autotune.model.gauges import Gauges, TrialPhase
from autotune.model.outcome import Outcome
from autotune.model.result import ProbeResult, RankResult, StartKind, TrialResult
from autotune.protocol.codec import decode, encode
from autotune.protocol.job import Mode, TrialJob
from autotune.protocol.paths import TrialPaths
from autotune.protocol.supervision import Order, SupervisorReport
from autotune.runner.gauge_reader import GaugeReader
from autotune.runner.refused_writes import refused_by_landlock, refused_by_layers
from autotune.runner.reports import Progress, copy_profiles, read_log_tail, read_progress, read_ranks
from autotune.runner.runner import Start, Supervisor
from autotune.runner.stop_cause import StopCause
from autotune.runner.surroundings_watch import SurroundingsWatch
from autotune.runner.tree_memory import num_killed_by_kernel
from autotune.runner.trial_memory import TrialMemory
from autotune.runner.unseen_processes import UnseenProcesses
from autotune.sandbox.changed_files import Scan
from autotune.sandbox.own_files import put
from autotune.sandbox.shared_files import SharedFiles, present
from autotune.sandbox.trial_processes import Tree, end_strays
from autotune.sandbox.workspace import Workspace
from autotune.verdict.aggregate import probed_facts
from autotune.verdict.judge import Ending, is_out_of_memory, judge, judge_probe

POLL_S = 0.1
"""Time between two looks at a running trial; ten looks a second cost the trial nothing."""
STOP_LIMIT_S = 10.0
"""Time for a supervisor to end the trial; a supervisor that takes longer was stopped or is stuck, and is killed."""
LAST_WORD_S = 1.0
"""Time for a trial to end after the report of an error or of the script's end."""
RESTART_WINDOWS, RESTART_SLACK_S = 2.0, 10.0
"""Longest time from the end of the window to the end of the trial: so many of the longest windows, and a slack. A new
epoch started after the window should take no longer than a window."""
MAX_DISK_SHARE = 0.9
"""Largest share of the free temporary space at the start that a trial may fill."""
MAX_REPORT_BYTES = 1 << 16


class Handle:
    """One run of the script: `wait` or `poll` until the end, or `cancel`, then `result`.

    Args:
        job: The job.
        paths: Files of the run.
        supervisor: The process that runs the script.
        workspace: The workspace with the run's folder.
        device: The device that trains.
        scan: The user's folder before the run; None with layers.
        start: The way in which the run was started.
        began: Moment of the request, in seconds of `time.monotonic`.
        home: Files of the process; None = `paths`, for the first measurement of a process.
        memory: Watch over the memory of the process; None = a new watch, for the first measurement.
    """

    def __init__(
        self,
        job: TrialJob,
        paths: TrialPaths,
        supervisor: Supervisor,
        workspace: Workspace,
        device: DeviceInfo,
        scan: Scan | None,
        start: Start,
        began: float,
        home: TrialPaths | None = None,
        memory: TrialMemory | None = None,
    ) -> None:
        self._job, self._paths, self._supervisor = job, paths, supervisor
        self._workspace, self._device, self._scan, self._start = workspace, device, scan, start
        self._began = began
        self._home = home or paths
        self._may_await, self._awaits = job.serves, False
        """Whether the process may wait for another request after the measurement, and whether it waits."""
        self._has_free_step = start.kind is StartKind.LIVE
        """Whether the first step, which does not count, is still to come."""
        self._ended_at: float | None = None
        self._stopped_at: float | None = None
        self._ending_since: float | None = None
        self._tree = Tree(supervisor.pid)
        self.memory = memory if memory is not None else TrialMemory(job, device, start.server_pids)
        """Memory of the run, seen from outside."""
        self._shared_files = SharedFiles(present())
        self._surroundings = SurroundingsWatch(device)
        self._progress = Progress()
        self._gauges = GaugeReader(job.world_size, is_probe=job.mode in (Mode.PROBE, Mode.SPLIT_PROBE))
        self._disk_free_before = _free_bytes(workspace.folder)
        self._killed_before = num_killed_by_kernel()
        self._causes: set[StopCause] = set()
        self._unseen = UnseenProcesses()

    @property
    def supervisor_pid(self) -> int:
        """Process id of the trial's supervisor, the root of the trial's tree."""
        return self._supervisor.pid

    def poll(self) -> bool:
        """Checks limits and memory once, without waiting; True when the run is over."""
        now = time.monotonic()
        if self._supervisor.poll() is not None:
            self._ended_at = self._ended_at or now
            return True
        if self._stopped_at is not None:
            if now - self._stopped_at > STOP_LIMIT_S:
                self._supervisor.kill()
            return False
        self._progress = progress = read_progress(self._paths)
        if self._may_await and progress.awaits:
            self._awaits, self._ended_at = True, self._ended_at or now
        if self._awaits:
            return True
        if progress.num_steps and self._has_free_step:
            # The first step after a switch may have a batch of the settings before, or an uncompiled model.
            self._has_free_step = False
            self.memory.begin_anew(self._job)
        if self._job.diagnoses and progress.phase is TrialPhase.ENDING:
            self.memory.looking_begins()
        overrun = self._overrun(is_quiet=progress.in_window)
        if overrun is not None:
            self._stop(overrun)
        elif self._job.ends_by is not None and now > self._job.ends_by:
            self._stop(StopCause.TIME_SPENT)
        elif now - self._began > self._job.start_limit_s and progress.num_steps == 0:
            self._stop(StopCause.START_OVERRUN)
        elif now - self._began > self._job.total_limit_s:
            self._stop(StopCause.TOTAL_OVERRUN)
        elif self._is_ending_overrun(progress, now):
            self._stop(StopCause.ENDING_OVERRUN)
        elif self._is_disk_full():
            self._stop(StopCause.DISK_FULL)
        return False

    def _is_ending_overrun(self, progress: Progress, now: float) -> bool:
        """Whether a trial takes too long to end after the window or the last report."""
        is_ending = progress.phase is TrialPhase.ENDING and not self._job.diagnoses
        if not (progress.has_reported or is_ending):
            return False
        self._ending_since = self._ending_since or now
        limit_s = RESTART_WINDOWS * self._job.request.window.max_window_s + RESTART_SLACK_S
        return now - self._ending_since > (LAST_WORD_S if progress.has_reported else limit_s)

    def gauges(self) -> Gauges:
        """Readings of the last `poll`."""
        return self._gauges.read(
            self._progress,
            cpu_fraction=self._surroundings.cpu_fraction,
            device_utilization=self._surroundings.device_utilization,
            memory_bytes=self.memory.last_bytes,
        )

    def wait(self) -> None:
        """Waits for the end of the run, and enforces the limits."""
        assert self._supervisor.stdout is not None
        poller = select.poll()
        poller.register(self._supervisor.stdout, select.POLLIN)
        while not self.poll():
            if poller.poll(1000 * POLL_S):
                # The supervisor has reported the end, or was killed; in a moment the process is gone.
                time.sleep(0.001)

    def cancel(self) -> None:
        """Ends the run now; the result of an unfinished run is judged as interrupted."""
        if not self.poll():
            self._stop(StopCause.CANCELLED)

    def result(self, *, profiles_to: Path | None = None) -> TrialResult:
        """Waits for the trial, removes the trial's folder, and returns the judged result.

        Args:
            profiles_to: Folder for copies of a diagnosis's profiles.

        Raises:
            OSError: The profiles cannot be written.
        """
        ending, ranks, unreadable = self._collect()
        verdict = judge(self._job, ending, ranks, unreadable)
        reason = verdict.reason
        if verdict.outcome is Outcome.CRASHED:
            reason += self._refusal(ranks)
        surroundings = self._surroundings.found(num_strangers=self.memory.device.num_newcomers)
        log_tail = read_log_tail(self._home)
        result = TrialResult(
            outcome=verdict.outcome,
            reason=self._advised(reason, log_tail) if verdict.outcome.is_failed else reason,
            place=verdict.place,
            missed=verdict.missed,
            is_inconclusive=verdict.is_inconclusive,
            measurement=verdict.measurement,
            peak_memory_bytes=ending.peak_memory_bytes,
            peak_host_bytes=ending.peak_host_bytes,
            outside_allocator_bytes=ending.outside_allocator_bytes,
            is_near_cap=any(rank.is_near_cap for rank in ranks),
            lacks_host_memory=verdict.lacks_host_memory and not self._device.is_cpu,
            ranks=ranks,
            wall_s=ending.wall_s,
            durations_s=self._durations(ending, ranks),
            exit_code=ending.exit_code,
            signal=ending.signal,
            log_tail=log_tail,
            start=self._start.kind,
            start_reason=self._start.reason,
            saved_s=self._start.saved_s,
            surroundings=surroundings,
            parity_gap=verdict.parity_gap,
            notes=(*verdict.notes, *(surroundings.disturbances if surroundings is not None else ())),
            protection=self._workspace.protection,
            escaped=self._escaped(),
        )
        try:
            if profiles_to is not None:
                copy_profiles(self._paths, profiles_to)
        finally:
            if not self._awaits:
                self._workspace.remove_trial(self._home.folder)
        self._start.judged(result)
        return result

    @property
    def serving(self) -> Handle | None:
        """This handle while its process waits for another request; to be asked after `result`."""
        return self if self._awaits and self._supervisor.poll() is None else None

    def next(self, job: TrialJob, number: int) -> Handle:
        """Asks the waiting process for another measurement; returns the handle of that measurement.

        Args:
            job: The job; differs from the process's first job in nothing that only a fresh process can change.
            number: The number of the measurement in the process, from 1.

        Raises:
            OSError: The request cannot be written.
        """
        paths = self._home.window(number)
        self.memory.begin_anew(job)
        start = replace(self._start, kind=StartKind.LIVE, reason="", server_s=0.0, judged=lambda result: None)
        handle = Handle(
            job,
            paths,
            self._supervisor,
            self._workspace,
            self._device,
            self._scan,
            start,
            time.monotonic(),
            home=self._home,
            memory=self.memory,
        )
        put(paths.job, encode(job), below=self._workspace.folder)
        return handle

    def end(self) -> None:
        """Ends the waiting process, and removes the process's folder."""
        self._may_await = self._awaits = False
        self.cancel()
        self._collect()
        self._workspace.remove_trial(self._home.folder)

    def probe_result(self) -> ProbeResult:
        """Waits for the probe, removes the probe's folder, and returns the result."""
        ending, ranks, unreadable = self._collect()
        log_tail = read_log_tail(self._paths)
        reason = judge_probe(self._job, ending, ranks, unreadable)
        if reason:
            reason += self._refusal(ranks) or ("" if ranks else self._unseen.sentence)
            reason = self._advised(reason, log_tail)
        lead = next((rank for rank in ranks if rank.facts is not None), None)
        result = ProbeResult(
            facts=probed_facts(ranks) if not reason else None,
            reason=reason,
            first_losses=lead.first_losses if lead is not None else (),
            is_out_of_memory=is_out_of_memory(ending, ranks),
            is_interrupted=ending.is_cancelled,
            is_time_spent=ending.is_time_spent,
            peak_memory_bytes=ending.peak_memory_bytes,
            outside_allocator_bytes=ending.outside_allocator_bytes,
            wall_s=ending.wall_s,
            log_tail=log_tail,
            escaped=self._escaped(),
        )
        self._workspace.remove_trial(self._paths.folder)
        return result

    def _durations(self, ending: Ending, ranks: tuple[RankResult, ...]) -> dict[str, float]:
        """Seconds by part, whose sum is the trial's time; without a report the only part is `unreported`."""
        reported = dict(ranks[0].durations_s) if ranks else {}
        rest = "ending" if reported else "unreported"
        durations = {**reported, rest: max(0.0, ending.wall_s - sum(reported.values()))}
        return {"server": self._start.server_s, **durations} if self._start.server_s else durations

    def _refusal(self, ranks: Sequence[RankResult]) -> str:
        """A sentence on a write that Landlock refused; empty without signs of a refusal."""
        errors = (f"{rank.error.kind}: {rank.error.message}" for rank in ranks if rank.error is not None)
        return refused_by_landlock(self._workspace.protection, *errors, read_log_tail(self._home))

    def _advised(self, reason: str, printed: str) -> str:
        """The reason for a failure, with advice on a write that layers refused."""
        return f"{reason} {refused_by_layers(printed)}".rstrip()

    def _escaped(self) -> tuple[str, ...]:
        return self._scan.changes() if self._scan is not None else ()

    def _stop(self, cause: StopCause) -> None:
        """Orders the supervisor to end the trial."""
        self._causes.add(cause)
        self._stopped_at = self._stopped_at or time.monotonic()
        assert self._supervisor.stdin is not None
        try:
            self._supervisor.stdin.write(Order.REPORT_AND_END if cause.grants_last_word else Order.END)
        except OSError:
            return  # The supervisor is gone, and the trial with it.

    def _overrun(self, *, is_quiet: bool) -> StopCause | None:
        """The cause to stop for lack of memory; None while the memory suffices."""
        pids = self._tree.pids()
        if self._progress.num_steps == 0:
            self._unseen.look(pids)
        self._surroundings.look([self._supervisor.pid, *pids], in_window=is_quiet)
        return self.memory.overrun(pids, is_quiet=is_quiet)

    def _is_disk_full(self) -> bool:
        free, before = _free_bytes(self._workspace.folder), self._disk_free_before
        return free is not None and before is not None and free < (1 - MAX_DISK_SHARE) * before

    def _collect(self) -> tuple[Ending, tuple[RankResult, ...], str]:
        self.wait()
        report = None if self._awaits else self._read_report()
        if report is None and not self._awaits:
            self._shared_files.note(self._tree.pids())
            self._tree.end()
            end_strays(self._start.stray_folder or self._home.folder, self._shared_files.note)
            self._shared_files.remove()
        ranks, unreadable = read_ranks(self._paths)
        status = report.status if report is not None else None
        is_stopped = bool(self._causes)
        killed_now = num_killed_by_kernel()
        peaks = self.memory.peaks(ranks)
        ending = Ending(
            exit_code=os.WEXITSTATUS(status) if status is not None and os.WIFEXITED(status) else None,
            signal=os.WTERMSIG(status) if status is not None and os.WIFSIGNALED(status) and not is_stopped else None,
            launch_error="" if is_stopped or report is None else report.error,
            is_supervisor_killed=report is None and not self._awaits,
            num_killed_by_kernel=(killed_now or 0) - (self._killed_before or 0),
            peak_memory_bytes=peaks.memory_bytes,
            peak_host_bytes=peaks.host_bytes,
            trained_bytes=peaks.trained_bytes,
            outside_allocator_bytes=peaks.outside_allocator_bytes,
            wall_s=(self._ended_at or time.monotonic()) - self._began,
            **{cause.value: True for cause in self._causes},
        )
        return ending, ranks, unreadable

    def _read_report(self) -> SupervisorReport | None:
        """The supervisor's report, by a pipe that no trial can reach; None when the supervisor was killed before."""
        assert self._supervisor.stdin is not None and self._supervisor.stdout is not None
        text = self._supervisor.stdout.read(MAX_REPORT_BYTES)
        self._supervisor.stdin.close()
        self._supervisor.stdout.close()
        return decode(SupervisorReport, text) if text else None


def _free_bytes(folder: Path) -> int | None:
    try:
        status = os.statvfs(folder)
    except OSError:
        return None
    return status.f_bavail * status.f_frsize
