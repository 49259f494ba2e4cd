"""Cold start: every run of the script is a fresh interpreter under a supervisor of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import quote

from autotune.errors import HostError
from autotune.host import DeviceInfo
from autotune.protocol.codec import to_plain
from autotune.protocol.job import Mode, TrialJob
from autotune.protocol.paths import TrialPaths
from autotune.protocol.supervision import SupervisorSpec, write_message
from autotune.runner.handle import Handle
from autotune.runner.start_record import Start, Supervisor
from autotune.sandbox.first_process import PACKAGE_PARENT
from autotune.sandbox.workspace import Workspace
from autotune.settings import GROUP_OF_FIELD
from autotune.spec import without_ours

INJECT = Path(__file__).resolve().parent.parent / "trial" / "inject"
SUPERVISOR = "import sys; sys.path.append(sys.argv[1]); from autotune.sandbox.supervisor import main; main(sys.argv[2])"

OFFLINE: Mapping[str, str] = {
    "WANDB_MODE": "offline",
    "WANDB_SILENT": "true",
    "COMET_MODE": "disabled",
    "NEPTUNE_MODE": "offline",
    "CLEARML_OFFLINE_MODE": "1",
    "DISABLE_MLFLOW_INTEGRATION": "TRUE",
    "SWANLAB_MODE": "disabled",
    "PYTHON_COLORS": "0",
}
"""Documented variables by which experiment trackers do nothing or write to a folder, which is in the layer; and one by
which Python prints its tracebacks without colours."""
NATIVE_CACHES = ("CUDA_CACHE_PATH", "TORCH_EXTENSIONS_DIR", "TRITON_CACHE_DIR")
"""Variables that move caches which are written, or loaded, past Python: no redirection reaches those."""
HUB_OFFLINE: Mapping[str, str] = {"HF_HUB_OFFLINE": "1"}
"""Only after the probe, which may download."""


Launch = Callable[[SupervisorSpec, dict[str, str], Path], Supervisor]
"""Starts the supervisor of a trial from its spec, its environment and its folder."""


class ColdRunner:
    """Starts runs of the user's script, one at a time."""

    def __init__(self, workspace: Workspace, device: DeviceInfo) -> None:
        self.workspace = workspace
        self._device = device

    def start(self, job: TrialJob, *, start_reason: str = "") -> Handle:
        """Starts one run and gives back its handle; a command that cannot be started is known when it is judged.

        Args:
            job: What to start.
            start_reason: Why it could not be started faster, for the record.

        Raises:
            HostError: There is no room for the trial's folder, or no process can be started.
        """
        return self.start_with(job, self._launch, Start(kind="cold", reason=start_reason))

    def start_with(self, job: TrialJob, launch: Launch, start: Start) -> Handle:
        """Starts one run in the surroundings of every trial, its supervisor by `launch`.

        Raises:
            HostError: There is no room for the trial's folder, or no process can be started.
        """
        try:
            folder = self.workspace.new_trial()
            try:
                return self._start(job, TrialPaths(folder), launch, start)
            except BaseException:
                self.workspace.remove_trial(folder)
                raise
        except OSError as error:
            raise HostError(
                f"No trial can be started in {self.workspace.folder}: {error}.",
                "Free some space there, or set TMPDIR to another folder.",
            ) from error

    def _start(self, job: TrialJob, paths: TrialPaths, launch: Launch, start: Start) -> Handle:
        paths.job.write_text(json.dumps(to_plain(job)))
        spec = SupervisorSpec(
            command=job.command,
            cwd=job.cwd,
            layers=self.workspace.mounts(paths.folder, is_probe=job.mode is Mode.PROBE),
            writable=self.workspace.confinement(paths.folder),
            log=str(paths.log),
        )
        scan = self.workspace.scan(Path(job.cwd))
        began = time.monotonic()
        supervisor = launch(spec, self.environment(job, paths), paths.folder)
        return Handle(job, paths, supervisor, self.workspace, self._device, scan, start, began)

    @staticmethod
    def _launch(spec: SupervisorSpec, environment: Mapping[str, str], folder: Path) -> subprocess.Popen[bytes]:
        """A fresh interpreter for the supervisor, which then executes the command."""
        spec_path = folder / "supervisor.json"
        write_message(spec_path, spec)
        # The two must agree on how bytes in paths become text.
        options = ["-X", "utf8"] if sys.flags.utf8_mode else []
        return subprocess.Popen(
            [sys.executable, "-I", "-S", *options, "-c", SUPERVISOR, PACKAGE_PARENT, str(spec_path)],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
        )

    def environment(self, job: TrialJob, paths: TrialPaths) -> dict[str, str]:
        """All variables of a trial's process."""
        environment = without_ours(os.environ, GROUP_OF_FIELD)
        environment.update(OFFLINE)
        if job.mode is not Mode.PROBE:
            environment.update(HUB_OFFLINE)
        environment.update(dict(job.environment))
        environment.update(
            AUTOTUNE_TRIAL=str(paths.folder),
            AUTOTUNE_STARTED_AT=repr(time.monotonic()),
            AUTOTUNE_SEED=str(job.seed),
            TMPDIR=str(self.workspace.short(paths.folder).temporary),
            PYTHONPATH=os.pathsep.join(filter(None, [str(INJECT), environment.get("PYTHONPATH", "")])),
            PYTHONUNBUFFERED="1",
            TERM=environment.get("TERM", "dumb"),
        )
        if "MLFLOW_TRACKING_URI" in environment:  # MLflow has no switch: its server gives way to a folder.
            environment["MLFLOW_TRACKING_URI"] = f"file://{quote(str(paths.temporary / 'mlruns'))}"
        if not self.workspace.has_layers:
            environment.update(self._redirection(job, paths))
        if job.devices:
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(job.devices)
        elif job.device == "cpu":
            environment["CUDA_VISIBLE_DEVICES"] = ""
        if job.device != "cpu":
            # To compile again what an earlier trial has compiled would cost each more than its window. On a CPU each
            # compiles anew: what its compiler holds is memory of the kind that is capped.
            environment["TORCHINDUCTOR_CACHE_DIR"] = str(self.workspace.compiled)
        return environment

    def _redirection(self, job: TrialJob, paths: TrialPaths) -> dict[str, str]:
        """Variables of a trial whose writes are redirected."""
        plan = self.workspace.redirection(paths.folder, is_probe=job.mode is Mode.PROBE)
        caches = {name: f"{self.workspace.redirected}/caches/{name.lower()}" for name in NATIVE_CACHES}
        if "TORCHINDUCTOR_CACHE_DIR" in os.environ:
            caches["TORCHINDUCTOR_CACHE_DIR"] = str(paths.temporary / "inductor")
        # Compiled modules are written by the interpreter itself, past every seam.
        return {**caches, "AUTOTUNE_REDIRECT": json.dumps(plan), "PYTHONDONTWRITEBYTECODE": "1"}
