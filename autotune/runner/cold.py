"""Cold start: every run of the script is a fresh interpreter under a warden of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autotune.host import DeviceInfo
from autotune.model.job import Mode, TrialJob, TrialPaths
from autotune.model.result import ProbeResult, RankResult, TrialResult
from autotune.plain import from_plain, to_plain
from autotune.runner import device as devices
from autotune.runner.judge import Ending, judge, judge_probe
from autotune.runner.memory import TreeMemory
from autotune.runner.tree import Tree
from autotune.runner.workspace import Workspace

POLL_S = 0.1
"""Between two looks at a running trial: at most ten a second, so that watching costs the trial nothing."""
MAX_RESULT_BYTES = 16 << 20
"""A larger report is not ours."""
LOG_TAIL_CHARS = 4000
INJECT = Path(__file__).resolve().parent.parent / "trial" / "inject"
WARDEN = Path(__file__).resolve().parent / "warden.py"

OFFLINE: Mapping[str, str] = {
    "WANDB_MODE": "offline",
    "WANDB_SILENT": "true",
    "COMET_MODE": "disabled",
    "NEPTUNE_MODE": "offline",
    "CLEARML_OFFLINE_MODE": "1",
    "DISABLE_MLFLOW_INTEGRATION": "TRUE",
}
"""Documented variables by which experiment trackers do nothing or write to a folder, which is in the layer."""
HUB_OFFLINE: Mapping[str, str] = {"HF_HUB_OFFLINE": "1"}
"""Only after the probe, which may download."""


class ColdRunner:
    """Starts runs of the user's script, one at a time."""

    def __init__(self, workspace: Workspace, device: DeviceInfo) -> None:
        self._workspace = workspace
        self._device = device

    def start(self, job: TrialJob) -> Handle:
        """Starts one run and gives back its handle; a command that cannot be started is known when it is judged."""
        folder = self._workspace.new_trial()
        paths = TrialPaths(folder)
        paths.job.write_text(json.dumps(to_plain(job)))
        spec = {
            "command": list(job.command),
            "cwd": job.cwd,
            "environment": self._environment(job, paths),
            "layers": self._mounts(job, folder),
            "log": str(paths.log),
            "exit_status": str(paths.exit_status),
            "folder": str(folder),
        }
        spec_path = folder / "warden.json"
        spec_path.write_text(json.dumps(spec))
        warden = subprocess.Popen(
            [sys.executable, "-I", "-S", str(WARDEN), str(spec_path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        return Handle(job, paths, warden, self._workspace, self._device)

    def _mounts(self, job: TrialJob, folder: Path) -> list[dict[str, object]]:
        if not self._workspace.has_layers:
            return []
        return self._workspace.mounts(folder, is_probe=job.mode is Mode.PROBE)

    def _environment(self, job: TrialJob, paths: TrialPaths) -> dict[str, str]:
        environment = dict(os.environ)
        environment.update(OFFLINE)
        if job.mode is not Mode.PROBE:
            environment.update(HUB_OFFLINE)
        environment.update(dict(job.environment))
        environment.update(
            AUTOTUNE_TRIAL=str(paths.folder),
            AUTOTUNE_STARTED_AT=repr(time.monotonic()),
            TMPDIR=str(paths.temporary),
            PYTHONPATH=os.pathsep.join(filter(None, [str(INJECT), os.environ.get("PYTHONPATH", "")])),
            PYTHONUNBUFFERED="1",
            TERM=os.environ.get("TERM", "dumb"),
        )
        if not self._workspace.has_layers:
            environment["AUTOTUNE_REDIRECT"] = os.pathsep.join(str(c.folder) for c in self._workspace.covered)
        if job.devices:
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(job.devices)
        elif job.device == "cpu":
            environment["CUDA_VISIBLE_DEVICES"] = ""
        return environment


class Handle:
    """One run of the script: `wait` or `poll` until it is over, `cancel` to end it, then its result."""

    def __init__(
        self,
        job: TrialJob,
        paths: TrialPaths,
        warden: subprocess.Popen[bytes],
        workspace: Workspace,
        device: DeviceInfo,
    ) -> None:
        self._job, self._paths, self._warden = job, paths, warden
        self._workspace, self._device = workspace, device
        self._began = time.monotonic()
        self._tree = Tree(warden.pid)
        self._memory = TreeMemory(job.cap_bytes)
        self._device_before = devices.used_bytes(device)
        self._device_peak = 0
        self._flags: dict[str, bool] = {}

    def poll(self) -> bool:
        """Looks once at limits and memory; whether the run is over."""
        if self._warden.poll() is not None:
            return True
        elapsed_s = time.monotonic() - self._began
        if not self._flags:
            progress = self._paths_progress()
            if self._is_over_cap(is_quiet=progress.in_window):
                self._stop("is_over_cap")
            elif elapsed_s > self._job.start_limit_s and progress.num_steps == 0:
                self._stop("is_start_overrun")
            elif elapsed_s > self._job.total_limit_s:
                self._stop("is_total_overrun")
        return False

    def wait(self) -> None:
        """Waits until the run is over, watching its limits."""
        while not self.poll():
            try:
                self._warden.wait(POLL_S)
            except subprocess.TimeoutExpired:
                continue

    def cancel(self) -> None:
        """Ends the run now; it will be judged as interrupted."""
        self._stop("is_cancelled")

    def result(self) -> TrialResult:
        """The judged result of a trial that is over; its folder is removed."""
        ending, ranks, unreadable = self._collect()
        verdict = judge(self._job, ending, ranks, unreadable)
        result = TrialResult(
            outcome=verdict.outcome,
            reason=verdict.reason,
            measurement=verdict.measurement,
            peak_memory_bytes=ending.peak_memory_bytes,
            ranks=ranks,
            wall_s=ending.wall_s,
            durations_s=dict(ranks[0].durations_s) if ranks else {},
            exit_code=ending.exit_code,
            signal=ending.signal,
            log_tail=self._log_tail(),
        )
        self._workspace.remove_trial(self._paths.folder)
        return result

    def probe_result(self) -> ProbeResult:
        """What a probe that is over taught; its folder is removed."""
        ending, ranks, unreadable = self._collect()
        reason = judge_probe(self._job, ending, ranks, unreadable)
        lead = next((rank for rank in ranks if rank.facts is not None), None)
        result = ProbeResult(
            facts=lead.facts if lead is not None and not reason else None,
            reason=reason,
            first_losses=lead.first_losses if lead is not None else (),
            is_out_of_memory=ending.is_over_cap or any(r.error is not None and r.error.is_out_of_memory for r in ranks),
            is_interrupted=ending.is_cancelled,
            peak_memory_bytes=ending.peak_memory_bytes,
            wall_s=ending.wall_s,
            log_tail=self._log_tail(),
        )
        self._workspace.remove_trial(self._paths.folder)
        return result

    def _stop(self, flag: str) -> None:
        self._flags[flag] = True
        order = b"k" if flag in ("is_over_cap", "is_cancelled") else b"t"
        try:
            assert self._warden.stdin is not None
            self._warden.stdin.write(order)
            self._warden.stdin.flush()
        except OSError:
            return

    def _is_over_cap(self, *, is_quiet: bool) -> bool:
        is_over = self._memory.check(self._tree.pids(), is_quiet=is_quiet)
        if self._device.is_cpu:
            return is_over
        used = devices.used_bytes(self._device)
        if used is not None and self._device_before is not None:
            self._device_peak = max(self._device_peak, used - self._device_before)
        return self._device_peak > self._job.cap_bytes

    def _paths_progress(self) -> _Progress:
        return _Progress.read(self._paths.progress)

    def _collect(self) -> tuple[Ending, tuple[RankResult, ...], str]:
        self._tree.end()
        if self._warden.stdin is not None:
            self._warden.stdin.close()
        self._warden.wait()
        status = _read_exit(self._paths.exit_status)
        ranks, unreadable = _read_ranks(self._paths)
        code = status.get("status")
        is_stopped = bool(status.get("stopped"))
        is_exited = isinstance(code, int) and code >= 0
        ending = Ending(
            exit_code=os.waitstatus_to_exitcode(code) if is_exited and os.WIFEXITED(code) else None,
            signal=os.WTERMSIG(code) if is_exited and os.WIFSIGNALED(code) and not is_stopped else None,
            launch_error=str(status.get("error", "")) or ("" if status else "its warden was killed"),
            peak_memory_bytes=self._peak(ranks),
            wall_s=time.monotonic() - self._began,
            **self._flags,
        )
        return ending, ranks, unreadable

    def _peak(self, ranks: tuple[RankResult, ...]) -> int | None:
        if self._device.is_cpu:
            at_the_end = sum(rank.held_host_bytes or 0 for rank in ranks)
            return max(self._memory.peak_bytes, at_the_end) or None
        reserved = max((rank.peak_reserved_bytes or 0 for rank in ranks), default=0)
        return max(self._device_peak, reserved) or None

    def _log_tail(self) -> str:
        try:
            return self._paths.log.read_bytes()[-4 * LOG_TAIL_CHARS :].decode(errors="replace")[-LOG_TAIL_CHARS:]
        except OSError:
            return ""


class _Progress:
    """What the tuner reads of the trial's shared file."""

    def __init__(self, num_steps: int, in_window: bool) -> None:
        self.num_steps = num_steps
        self.in_window = in_window

    @classmethod
    def read(cls, path: Path) -> _Progress:
        """Slots 0 (steps), 3 (window opened) and 4 (stop) of `trial.ranks.Mark`."""
        try:
            data = path.read_bytes()
        except OSError:
            return cls(0, False)
        slots = [int.from_bytes(data[i : i + 8], "little", signed=True) for i in range(0, len(data) - 7, 8)]
        if len(slots) < 5:
            return cls(0, False)
        return cls(slots[0], slots[3] != 0 and slots[4] == 0)


def _read_exit(path: Path) -> dict[str, Any]:
    try:
        status = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return status if isinstance(status, dict) else {}


def _read_ranks(paths: TrialPaths) -> tuple[tuple[RankResult, ...], str]:
    """The reports in order of rank, and why one of them cannot be read."""
    ranks: dict[int, RankResult] = {}
    for path in sorted(paths.results.glob("rank-*.json")) if paths.results.is_dir() else []:
        try:
            if path.is_symlink() or path.stat().st_size > MAX_RESULT_BYTES:
                return (), f"{path.name} is not a report of ours"
            rank = from_plain(RankResult, json.loads(path.read_text()))
        except (OSError, ValueError, RecursionError) as error:
            return (), f"{path.name}: {str(error)[:300]}"
        ranks[rank.rank] = rank
    return tuple(ranks[number] for number in sorted(ranks)), ""
