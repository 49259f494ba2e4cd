"""`autotune search`: runs short trials of a training script and writes the tuned config."""

from __future__ import annotations

from typing import Annotated

import typer

from autotune.cli.options import Flags, Output, takes_options
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


@takes_options("search")
def search(
    context: typer.Context,
    flags: Flags,
    output: Output,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and start nothing.")] = False,
    probe: Annotated[
        bool, typer.Option("--probe", help="With --dry-run: run the script once, and print what that taught.")
    ] = False,
) -> int:
    """Find the fastest settings for a training script in short trials.

    The unedited script is run many times for a few seconds in the working directory; files that the script writes are
    thrown away. The best settings are measured again beside the script's own settings, and go into a tuned config.

    Every option can also stand in study.toml (or under [tool.autotune] in pyproject.toml), with _ for -, and most
    options in a variable such as AUTOTUNE_MEMORY_CAP. Flags win over variables, variables over the file.
    """
    if probe and not dry_run:
        raise UsageError("--probe goes with --dry-run.", "A search runs its probe anyway.")
    if output.as_jsonl and dry_run:
        raise UsageError("--jsonl goes with a search.", "A dry run prints one document: --json.")
    return _search(flags, tail_of(context), output, dry_run=dry_run, probe=probe)


def _search(flags: Flags, tail: tuple[str, ...] | None, output: Output, *, dry_run: bool, probe: bool) -> int:
    from autotune.study_file.asked import asked

    spec = asked(flags, tail, working_directory()).spec
    if dry_run:
        from autotune.cli.dry_run import dry_run as show_plan

        return show_plan(spec, run_probe=probe, as_json=output.as_json, quiet=output.quiet)

    from autotune.cli.finish import finish
    from autotune.cli.subscribers import event_stream, told
    from autotune.study import searching
    from autotune.study.stop import StopRequest

    stop, stream = StopRequest(), event_stream(output)
    with told(stop, quiet=output.quiet, stream=stream) as tell:
        result = searching.search(spec, on_event=tell, stop=stop)
    return finish(result, spec, output, storage=spec.storage, stream=stream)
