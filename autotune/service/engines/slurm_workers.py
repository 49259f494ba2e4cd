"""`autotune workers slurm`: an array job of workers, one for each node, submitted by submitit.

A site with a batch script of its own takes the text of `slurm_script`: the same workers under the same options.
"""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from autotune.errors import HostError, UsageError
from autotune.service.worker.search_child import our_command

PARAMETERS: Mapping[str, str | int | bool] = {
    "job-name": "autotune-worker",
    "nodes": 1,
    "ntasks": 1,
    "exclusive": True,
    # To the batch script alone, a minute before the time limit; the worker then drains.
    "signal": "B:TERM@60",
    # The service gives the worker's job to another worker; Slurm must not start a second attempt.
    "no-requeue": True,
}
"""Options of sbatch that a measurement needs."""
OWN = (*(f"--{name}" for name in PARAMETERS if name != "job-name"), "--array", "--requeue")
"""Options that are not the user's."""
ENDS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR2)


@dataclass(frozen=True, slots=True)
class SlurmWorker:
    """The function of an array's task: runs `autotune worker`, and drains the worker at Slurm's signals.

    submitit ignores SIGTERM, and asks Slurm to run the job again at SIGUSR2; here both signals drain the worker.

    Args:
        words: Arguments of `autotune worker`.
    """

    words: tuple[str, ...]

    def __call__(self) -> int:
        """The exit code of the worker, after its end."""
        started: list[subprocess.Popen[bytes]] = []
        asked: list[int] = []

        def drain(number: int, _frame: object) -> None:
            asked.append(number)
            for worker in started:
                worker.terminate()

        for number in ENDS:
            signal.signal(number, drain)
        # A session of its own: an interrupt of the whole group would reach the worker twice, and end its trial at once.
        command = our_command("worker", *self.words)
        started.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True))
        if asked:
            started[0].terminate()
        return started[0].wait()


def sbatch_options(partition: str, options: Sequence[str]) -> dict[str, str | int | bool]:
    """All options of sbatch by name: ours and the user's.

    Args:
        partition: Partition of the nodes; empty = the cluster's default.
        options: Further options of sbatch, such as `--time=8:00:00` or `--gres=gpu:8`.

    Raises:
        UsageError: An option is ours, or is not in the form `--name=value`.
    """
    found = dict(PARAMETERS)
    for option in (*([f"--partition={partition}"] if partition else []), *options):
        name, equals, value = option.partition("=")
        if not option.isprintable() or any(blank in option for blank in " \t"):
            raise UsageError(f"{option!r} cannot stand in a batch script.", "Write an option as --name=value.")
        if not name.startswith("--") or len(name) < 4 or name in OWN:
            known = ", ".join(OWN)
            raise UsageError(f"{option!r} is not an option for the workers.", f"Write --name=value; ours are {known}.")
        found[name[2:]] = value if equals else True
    return found


def slurm_script(number: int, words: Sequence[str], *, options: Mapping[str, str | int | bool], folder: Path) -> str:
    """A batch script of an array of workers, for sbatch.

    Args:
        number: Number of workers, each on a whole node.
        words: Arguments of `autotune worker`; paths in there hold on every node.
        options: Result of `sbatch_options`.
        folder: Place of the workers' logs.

    Raises:
        UsageError: The folder has a blank or a line break in its name.
    """
    if not str(folder).isprintable() or " " in str(folder):
        raise UsageError(f"The folder {str(folder)!r} cannot stand in a batch script.", "Name another with --logs.")
    lines = [f"#SBATCH --{name}" if value is True else f"#SBATCH --{name}={value}" for name, value in options.items()]
    template = files("autotune").joinpath("service", "engines", "slurm_job.sh").read_text(encoding="utf-8")
    return template.format(
        last=number - 1, folder=folder, options="\n".join(lines), command=shlex.join(our_command("worker", *words))
    )


def place_by_slurm(number: int, words: Sequence[str], *, options: Mapping[str, str | int | bool], folder: Path) -> str:
    """The id of the submitted array job; arguments as for `slurm_script`.

    The folder must be shared by all nodes, and gets the workers' logs and submitit's files.

    Raises:
        UsageError: The package submitit is not installed.
        HostError: There is no Slurm here, or Slurm refuses the job.
    """
    try:
        import submitit
    except ImportError as error:
        raise UsageError(
            "The package submitit is not installed.",
            "Install it: pip install submitit; or hand the script of --dry-run to sbatch.",
        ) from error
    try:
        # The batch shell becomes the worker's process, so Slurm's signal to the batch script reaches the worker.
        executor = submitit.SlurmExecutor(folder, max_num_timeout=0, python=f"exec {shlex.quote(sys.executable)}")
    except RuntimeError as error:
        raise HostError("There is no Slurm on this machine.", "Run the command on a login node.") from error
    executor.update_parameters(
        time=None, wckey=None, use_srun=False, stderr_to_stdout=True, additional_parameters=dict(options)
    )
    try:
        jobs = executor.submit_array([SlurmWorker(tuple(words))] * number)
    except FileNotFoundError as error:
        raise HostError("There is no sbatch on this machine.", "Run the command on a login node.") from error
    except (submitit.core.utils.FailedJobError, submitit.core.utils.FailedSubmissionError) as error:
        lines = str(error).strip().splitlines()
        reason = lines[-1] if lines else "without a word"
        raise HostError(f"Slurm refuses the job: {reason}.", "See man sbatch.") from error
    first = str(jobs[0].job_id)
    return first.partition("_")[0]
