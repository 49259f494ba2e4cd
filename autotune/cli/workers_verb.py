"""`autotune workers`: workers of the service on the machines of Ray or Slurm."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autotune.cli.place import working_directory
from autotune.cli.server_options import Network, Slot, Unprotected, worker_words

EXAMPLES = """\b
Examples:
  autotune workers ray --help
  autotune workers slurm --help
"""
RAY_EXAMPLES = """\b
Examples:
  autotune workers ray --server http://head:8642 --token-file token --project photos=/shared/photos
  autotune workers ray --number 4 --server http://head:8642 --token-file token --project photos=/shared/photos
"""
SLURM_EXAMPLES = """\b
Examples:
  autotune workers slurm --number 4 --partition gpu --server http://head:8642 --token-file token --project photos=/data
  autotune workers slurm --sbatch=--gres=gpu:8 --dry-run --server http://head:8642 --token-file token --project a=/a
"""

NodeServer = Annotated[str, typer.Option("--server", metavar="URL", help="The server, as the nodes reach it.")]
NodeTokenFile = Annotated[
    Path,
    typer.Option("--token-file", metavar="PATH", help="File of the server's token, at the same place on every node."),
]
NodeProjects = Annotated[
    list[str], typer.Option("--project", metavar="NAME=DIR", help="A folder, the same on every node. Repeatable.")
]

app = typer.Typer(help="Start workers of the service by Ray or Slurm.", rich_markup_mode=None, no_args_is_help=True)


@app.command("ray", epilog=RAY_EXAMPLES)
def by_ray(
    server: NodeServer,
    token_file: NodeTokenFile,
    project: NodeProjects,
    address: Annotated[
        str, typer.Option("--address", metavar="ADDRESS", help="The cluster; auto = on this machine.")
    ] = ("auto"),
    number: Annotated[
        int, typer.Option("--number", min=0, metavar="N", help="Workers; 0 = one on every node with a slot.")
    ] = 0,
    slot: Slot = None,
    unprotected: Unprotected = False,
    network: Network = False,
) -> int:
    """Keep one worker on each node of a Ray cluster, until Ctrl-C.

    Nodes with the resource autotune_slot take a worker; docs/service.md has the line for `ray start`. Workers finish
    the running trial before the end.
    """
    from autotune.report.streams import say
    from autotune.service.engines.ray_workers import place_by_ray

    words = worker_words(working_directory() / token_file, project, slot, unprotected=unprotected, network=network)
    place_by_ray(address, number, [f"--server={server}", *words], say=say)
    return 0


@app.command("slurm", epilog=SLURM_EXAMPLES)
def by_slurm(
    server: NodeServer,
    token_file: NodeTokenFile,
    project: NodeProjects,
    number: Annotated[int, typer.Option("--number", min=1, metavar="N", help="Workers, each on a whole node.")] = 1,
    partition: Annotated[
        str, typer.Option("--partition", metavar="P", help="Partition. [default: the cluster's]")
    ] = "",
    slot: Slot = None,
    unprotected: Unprotected = False,
    network: Network = False,
    sbatch: Annotated[
        list[str] | None, typer.Option("--sbatch", metavar="OPTION", help="A further option of sbatch. Repeatable.")
    ] = None,
    logs: Annotated[
        Path | None, typer.Option("--logs", metavar="DIR", help="Place of the workers' logs. [default: ./worker-logs]")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print a batch script for sbatch and submit nothing.")
    ] = False,
) -> int:
    """Submit an array of workers to Slurm by submitit, each on a node of its own.

    A minute before the time limit a worker finishes or gives back the running trial. Another worker goes on.
    """
    from autotune.report.streams import write_result
    from autotune.service.engines.slurm_workers import place_by_slurm, sbatch_options, slurm_script

    folder = working_directory() / (logs or Path("worker-logs"))
    words = worker_words(working_directory() / token_file, project, slot, unprotected=unprotected, network=network)
    words = [f"--server={server}", *words]
    options = sbatch_options(partition, sbatch or ())
    if dry_run:
        write_result(slurm_script(number, words, options=options, folder=folder))
    else:
        write_result(f"{place_by_slurm(number, words, options=options, folder=folder)}\n")
    return 0
