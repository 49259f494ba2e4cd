"""`autotune submit`: queues a search on a server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from autotune.cli.options import Flags, Json, takes_options
from autotune.cli.server_options import DEFAULT_SERVER, Server, TokenFile, client_of
from autotune.cli.tail import tail_of
from autotune.errors import UsageError

if TYPE_CHECKING:
    from autotune.client import Client

EXAMPLES = """\b
Examples:
  autotune submit train.py
  autotune submit train.py --server https://tuner.example --token-file token --trials 20 -- --epochs 90
  autotune submit train.py --project photos --machines 2 --watch
"""


@takes_options("submit")
def submit(
    context: typer.Context,
    script: Annotated[str, typer.Argument(metavar="SCRIPT", help="The script, as a path within the project.")],
    flags: Flags,
    server: Server = DEFAULT_SERVER,
    token_file: TokenFile = None,
    project: Annotated[
        str | None, typer.Option("--project", metavar="NAME", help="The project. [default: the server's only one]")
    ] = None,
    machines: Annotated[
        int, typer.Option("--machines", min=1, metavar="N", help="Workers of one class that search together.")
    ] = 1,
    watch: Annotated[bool, typer.Option("--watch", help="Print the events until the job ends.")] = False,
    as_json: Json = False,
) -> int:
    """Queue a search on a server; its workers run it. The script's own arguments follow --.

    A job holds a script of a registered project, never a command, another path or an environment.
    """
    from autotune.cli.jobs_verb import show, watch_job
    from autotune.study_file.sources import Problems, read_flags

    problems = Problems()
    options = read_flags(flags, problems)
    problems.check()
    client = client_of(server, token_file)
    job = client.submit(project or _only(client), script, tail_of(context) or (), options, machines=machines)
    if watch:
        return watch_job(client, job.id, as_json=as_json)
    show(job, as_json=as_json)
    return 0


def _only(client: Client) -> str:
    """The server's only project.

    Raises:
        UsageError: The server has none or several.
    """
    names = client.projects()
    if len(names) != 1:
        known = f"It has {', '.join(names)}." if names else "It has none."
        raise UsageError("The server has not exactly one project.", f"{known} Name one with --project.")
    return names[0]
