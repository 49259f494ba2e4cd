"""`autotune workers slurm`: an array job of workers, one for each node.

The template is our own, because the worker drains on SIGTERM: submitit's processes ignore SIGTERM, and take SIGUSR2.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from autotune.errors import HostError, UsageError

SUBMIT = "sbatch"
SUBMIT_S = 60.0
"""Longest wait for sbatch, in seconds."""
OWN = ("--array", "--exclusive", "--signal", "--requeue", "--no-requeue", "--nodes", "--ntasks", "-a", "-N", "-n")
"""Options that the template decides, because a measurement needs them."""


def slurm_script(number: int, partition: str, words: Sequence[str], *, options: Sequence[str], folder: Path) -> str:
    """The batch script of an array of workers.

    Args:
        number: Number of workers, each on a whole node.
        partition: Partition of the nodes; empty = the cluster's default.
        words: Arguments of `autotune worker`; paths in there hold on every node.
        options: Further options of sbatch, such as `--time=8:00:00` or `--gres=gpu:8`.
        folder: Place of the workers' logs.

    Raises:
        UsageError: An option belongs to the template, or has a line break.
    """
    if partition:
        options = (f"--partition={partition}", *options)
    for option in (*options, str(folder)):
        if not option.isprintable() or any(blank in option for blank in " \t"):
            raise UsageError(f"{option!r} cannot stand in a batch script.", "Write an option as --name=value.")
    for option in options:
        if not option.startswith("-") or option.partition("=")[0] in OWN:
            raise UsageError(f"{option!r} is not an option for the workers.", f"Ours are {', '.join(OWN)}.")
    template = files("autotune").joinpath("service", "engines", "slurm_job.sh").read_text(encoding="utf-8")
    return template.format(
        number=number,
        folder=folder,
        extra="".join(f"#SBATCH {option}\n" for option in options),
        command=shlex.join([sys.executable, "-m", "autotune", "worker", *words]),
    )


def submit_to_slurm(script: str, folder: Path) -> str:
    """The id of the array job.

    Raises:
        HostError: There is no Slurm here, or Slurm refuses the job.
    """
    folder.mkdir(parents=True, exist_ok=True)
    try:
        done = subprocess.run(
            [SUBMIT, "--parsable"], input=script, capture_output=True, text=True, timeout=SUBMIT_S, check=False
        )
    except FileNotFoundError as error:
        raise HostError(f"There is no {SUBMIT} on this machine.", "Run the command on a login node.") from error
    except subprocess.TimeoutExpired as error:
        raise HostError(f"{SUBMIT} gave no answer in {SUBMIT_S:.0f} s.", "Try again later.") from error
    if done.returncode:
        words = done.stderr.strip().splitlines()
        raise HostError(f"Slurm refuses the job: {words[-1] if words else done.returncode}.", "See man sbatch.")
    return done.stdout.strip().partition(";")[0]
