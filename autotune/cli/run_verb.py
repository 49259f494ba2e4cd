"""`autotune run`: real training of an unedited script under a tuned config."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autotune.cli.options import Flags, takes_options
from autotune.cli.place import working_directory
from autotune.cli.tail import tail_of
from autotune.cli.trust_verb import check_config_agreed
from autotune.errors import ConfigError, HostError, UsageError
from autotune.report.streams import say
from autotune.spec import DEFAULT_CONFIG

if TYPE_CHECKING:
    from autotune.emit.tuned_config import TunedConfig
    from autotune.study_file.command import ScriptCommand

WATCH_LOG = "autotune-watch.jsonl"
VISIBLE = "CUDA_VISIBLE_DEVICES"
EXAMPLES = """\b
Examples:
  autotune run train.py -- --data photos --epochs 90
  autotune run train.py --config tuned/h200.yaml --share
  autotune run train.py --watch
  autotune run -m pkg.train -- --epochs 90
  autotune run -- torchrun --nproc-per-node 2 train.py
"""


@takes_options("run")
def run(
    context: typer.Context,
    flags: Flags,
    config: Annotated[str, typer.Option("--config", metavar="FILE", help="The tuned config.")] = DEFAULT_CONFIG,
    share: Annotated[
        bool, typer.Option("--share", help="Reserve only as much device memory as the throughput needs.")
    ] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help=f"Print a line a minute, and keep the figures in {WATCH_LOG}.")
    ] = False,
) -> int:
    """Train a script, unedited, with the settings of a tuned config.

    This is real training: the script writes real files and runs to the end. The exit code is the script's. After two
    steps, a line names the settings in force. Some settings cannot be applied soundly from outside: the command then
    ends before training or after two steps, with exit code 2 and the lines to add to the script. For a config from
    elsewhere with arguments for the script, you are asked first: see autotune trust.
    """
    from autotune.emit.tuned_config import read_config
    from autotune.study_file.command import check_script
    from autotune.study_file.resolve import resolve_option

    cwd = working_directory()
    job = _job(flags, tail_of(context), cwd)
    check_script(job, cwd)
    tuned = read_config(cwd / config)
    num_processes = tuned.script.num_processes_per_node or tuned.provenance.world_size
    if job.num_processes_per_node != num_processes:
        raise ConfigError(
            f"{config} was tuned for {num_processes} process(es) and this is {job.num_processes_per_node}, "
            "which would change the effective batch.",
            f"Use --nproc-per-node {num_processes}, or search again.",
        )
    check_config_agreed(cwd / config, tuned, config)
    for doubt in _doubts(tuned, config, job):
        say(f"warning: {doubt}")
    log = WATCH_LOG if watch else ""
    device = resolve_option("device", flags, environ=os.environ, cwd=cwd) or "auto"
    return _become(tuned, job, cwd, share=share, path=config, device=device, watch_log=log)


def _job(flags: Flags, tail: tuple[str, ...] | None, cwd: Path) -> ScriptCommand:
    from autotune.study_file.command import module_command, script_command, whole_command

    script, module, nproc_per_node = flags["script"], flags["module"], flags["nproc_per_node"]
    if nproc_per_node is not None and not (nproc_per_node.isdecimal() and int(nproc_per_node) > 0):
        message = f"--nproc-per-node {nproc_per_node!r} is not a whole number of at least 1."
        raise UsageError(message, "It is the number of processes that train together.")
    num_processes = int(nproc_per_node or 1)
    if script is not None and module is not None:
        raise UsageError("A script and -m MODULE exclude each other.", "The script's own arguments go after --.")
    if script is not None:
        return script_command(script, tail or (), cwd, num_processes=num_processes)
    if module is not None:
        return module_command(module, tail or (), num_processes=num_processes)
    if not tail:
        raise UsageError("There is no script to run.", "Name it: autotune run train.py")
    if nproc_per_node is not None:
        raise UsageError("--nproc-per-node goes with a script, and here is a whole command.", "Say it in the command.")
    return whole_command(tail, cwd)


def _doubts(tuned: TunedConfig, config: str, job: ScriptCommand) -> Iterator[str]:
    """Why the figures of the config may not hold for this run."""
    if job.is_module != (not tuned.script.digest) or Path(job.script).name != Path(tuned.script.path).name:
        yield f"{config} was tuned for {tuned.script.path}, not for {job.script}."
    elif tuned.script.digest and hashlib.sha256(Path(job.script).read_bytes()).hexdigest() != tuned.script.digest:
        yield f"{job.script} is not as it was when it was tuned; search again where the change is about speed."


def _become(
    tuned: TunedConfig, job: ScriptCommand, cwd: Path, *, share: bool, path: str, device: str, watch_log: str
) -> int:
    """Replaces this process by the script, which then owns signals, output and exit code."""
    from autotune.study.apply import run_command

    argv, environment = run_command(tuned, job.command, cwd, share=share, path=path, device=device, watch_log=watch_log)
    shown = environment.get(VISIBLE)
    if shown is not None and shown != os.environ.get(VISIBLE):
        say(f"trains on {len(shown.split(','))} of the GPUs here, as it was measured; --device cuda:N takes another")
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execvpe(argv[0], list(argv), environment)
    except OSError as error:
        found = shutil.which(argv[0]) or argv[0]
        raise HostError(f"{found} cannot be started: {error.strerror}.", "See that it can be run by itself.") from error
    return 0
