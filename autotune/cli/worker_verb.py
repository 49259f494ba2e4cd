"""`autotune worker`: runs the jobs of a server on this machine."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from autotune.cli.options import Storage
from autotune.cli.place import working_directory
from autotune.cli.server_options import (
    DEFAULT_SERVER,
    Network,
    Projects,
    Server,
    Slot,
    TokenFile,
    Unprotected,
    client_of,
)
from autotune.errors import UsageError

EXAMPLES = """\b
Examples:
  autotune worker --server https://tuner.example --token-file token --project photos=~/photos
  autotune worker --server http://head:8642 --token-file token --project photos=/data/photos --slot cuda:0
"""


def worker(
    server: Server = DEFAULT_SERVER,
    token_file: TokenFile = None,
    project: Projects = None,
    slot: Slot = None,
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="Name of the worker. [default: host and slot]")
    ] = None,
    storage: Storage = None,
    unprotected: Unprotected = False,
    network: Network = False,
) -> int:
    """Lease jobs from a server and run each search here, one at a time.

    The worker ends after SIGTERM: a running search ends after the running trial, and goes on elsewhere.
    """
    from autotune.report.streams import say
    from autotune.service.projects import parse_projects
    from autotune.service.worker.machine_slot import open_slot
    from autotune.service.worker.only_one import only_one
    from autotune.service.worker.working import Worker, WorkerOptions
    from autotune.store.url import resolve_url
    from autotune.study_file.search_options import VARIABLES

    cwd, named = working_directory(), storage or os.environ.get(VARIABLES["storage"], "")
    place = open_slot(slot or [])
    options = WorkerOptions(
        name=name or place.name,
        projects=parse_projects(project or [], cwd),
        slot=place,
        storage=resolve_url(named, cwd) if named else "",
        unprotected=unprotected,
        network=network,
    )
    if not options.projects:
        raise UsageError("A worker needs a project.", "Name the folder: --project NAME=DIR")
    client = client_of(server, token_file)
    with only_one(f"{client.connection.url} {options.name}"):
        Worker(client, options, say).run()
    return 0
