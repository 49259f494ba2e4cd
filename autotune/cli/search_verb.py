"""`autotune search`: runs short trials of a training script and writes the tuned config."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from autotune.cli.completion_verb import complete_study
from autotune.cli.options import (
    AllowBatchnorm,
    Device,
    EffectiveBatch,
    Json,
    JsonLines,
    Map,
    MemoryCap,
    Module,
    NumProcesses,
    Output,
    ProtectionMode,
    Quiet,
    SamplesPerStep,
    Script,
    ShareGpu,
    Storage,
    StudyFile,
    Unprotected,
    Writable,
    flags_of,
)
from autotune.cli.place import working_directory
from autotune.cli.tail import tail_of
from autotune.errors import UsageError

EXAMPLES = """\b
Examples:
  autotune search train.py
  autotune search train.py --memory-cap 16GiB --time 10m -- --data photos --epochs 90
  autotune search -m pkg.train --set num_workers=0..8 --fix precision=bf16
  autotune search train.py --nproc-per-node 2
  autotune search -- torchrun --nproc-per-node 2 train.py --data photos
  autotune search train.py --map storage=--storage={} --set storage=jpeg,npy
  autotune search train.py --dry-run --probe
"""


def search(
    context: typer.Context,
    script: Script = None,
    module: Module = None,
    nproc_per_node: NumProcesses = None,
    study: Annotated[
        str | None, typer.Option("--study", metavar="NAME", help="Name of the study. [default: the script's]")
    ] = None,
    study_file: StudyFile = None,
    storage: Storage = None,
    memory_cap: MemoryCap = None,
    trials: Annotated[
        str | None, typer.Option("--trials", metavar="N", help="Trials to spend. [default: at most 40]")
    ] = None,
    time: Annotated[
        str | None, typer.Option("--time", metavar="15m", help="Longest wall time, all included. [default: 15m]")
    ] = None,
    effective_batch: EffectiveBatch = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=RANGE", help="Search only these values: a,b,c or low..high. Repeatable."),
    ] = None,
    fix: Annotated[
        list[str] | None, typer.Option("--fix", metavar="KEY=VALUE", help="Do not search this setting. Repeatable.")
    ] = None,
    map_: Map = None,
    samples_per_step: SamplesPerStep = None,
    take_over: Annotated[
        str | None,
        typer.Option(
            "--take-over",
            metavar="STUDY",
            autocompletion=complete_study,
            help="Count trials of this study too, where they fit: same script and machine, another space or cap.",
        ),
    ] = None,
    out: Annotated[
        str | None, typer.Option("--out", metavar="PATH", help="Where the config goes. [default: autotune.yaml]")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite whatever is at --out.")] = False,
    seed: Annotated[str | None, typer.Option("--seed", metavar="N", help="Of the search. [default: 0]")] = None,
    device: Device = None,
    require_gain: Annotated[bool, typer.Option("--require-gain", help="Exit with 7 when nothing is faster.")] = False,
    share_gpu: ShareGpu = False,
    protection: ProtectionMode = None,
    unprotected: Unprotected = False,
    allow_batchnorm_accumulation: AllowBatchnorm = False,
    writable: Writable = None,
    as_json: Json = False,
    as_jsonl: JsonLines = False,
    quiet: Quiet = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and start nothing.")] = False,
    probe: Annotated[
        bool, typer.Option("--probe", help="With --dry-run: run the script once, and print what that taught.")
    ] = False,
) -> int:
    """Find the fastest settings for a training script by running it.

    The script is run many times for a few seconds each, as it is, in the working directory; what it writes then is
    thrown away. The best settings are measured again beside its own, and go into a tuned config.

    Every option can also stand in study.toml (or under [tool.autotune] in pyproject.toml), with _ for -, and most
    in a variable such as AUTOTUNE_MEMORY_CAP. Flags come first, then variables, then the file.
    """
    if probe and not dry_run:
        raise UsageError("--probe goes with --dry-run.", "A search runs its probe anyway.")
    if as_jsonl and dry_run:
        raise UsageError("--jsonl goes with a search.", "A dry run prints one document: --json.")
    output = Output(as_json=as_json, as_jsonl=as_jsonl, quiet=quiet)
    return _search(flags_of(context.params), tail_of(context), output, dry_run=dry_run, probe=probe)


def _search(flags: dict[str, Any], tail: tuple[str, ...] | None, output: Output, *, dry_run: bool, probe: bool) -> int:
    from autotune.study_file.asked import asked

    spec = asked(flags, tail, working_directory()).spec
    if dry_run:
        from autotune.cli.dry_run import dry_run as show_plan

        return show_plan(spec, run_probe=probe, as_json=output.as_json, quiet=output.quiet)

    from autotune.cli.finish import finish
    from autotune.cli.subscribers import event_stream, told
    from autotune.study import searching as tuner
    from autotune.study.stop import StopRequest

    stop, stream = StopRequest(), event_stream(output)
    with told(stop, quiet=output.quiet, stream=stream) as tell:
        result = tuner.search(spec, on_event=tell, stop=stop)
    return finish(result, spec, output, storage=spec.storage, stream=stream)
