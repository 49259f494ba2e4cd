"""`autotune serve`: the service on this machine, for a browser, a team and workers."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from autotune.cli.options import Storage
from autotune.cli.place import storage_in_use, working_directory
from autotune.cli.server_options import Network, Projects, Slot, Unprotected, worker_words
from autotune.errors import UsageError

EXAMPLES = """\b
Examples:
  autotune serve --project .
  autotune serve --project photos=~/photos --project text=~/text
  autotune serve --storage postgresql://user@host/database --host 0.0.0.0 --allow-host tune.lan --no-worker
"""


def serve(
    project: Projects = None,
    host: Annotated[str, typer.Option("--host", metavar="ADDRESS", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, metavar="N", help="Port to listen on; 0 = any free port.")
    ] = 8642,
    token_file: Annotated[
        Path | None,
        typer.Option("--token-file", metavar="PATH", help="File of the token; made when missing."),
    ] = None,
    read_only_token_file: Annotated[
        Path | None,
        typer.Option("--read-only-token-file", metavar="PATH", help="File of a token for reading; made when missing."),
    ] = None,
    worker_token_file: Annotated[
        Path | None,
        typer.Option("--worker-token-file", metavar="PATH", help="File of a token for workers; made when missing."),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option("--allow-host", metavar="NAME", help="A further name of this server in URLs. Repeatable."),
    ] = None,
    trust_proxy: Annotated[
        str, typer.Option("--trust-proxy", metavar="ADDRESS", help="Take the client's address from this reverse proxy.")
    ] = "",
    audit_log: Annotated[
        Path | None, typer.Option("--audit-log", metavar="PATH", help="Write who changed or was refused what.")
    ] = None,
    no_worker: Annotated[bool, typer.Option("--no-worker", help="Run no searches on this machine.")] = False,
    slot: Slot = None,
    unprotected: Unprotected = False,
    network: Network = False,
    storage: Storage = None,
    lease_time: Annotated[
        str, typer.Option("--lease-time", metavar="30s", help="Silence after which a worker counts as lost.")
    ] = "30s",
) -> int:
    """Serve a queue of searches: a page for browsers, an API for programs, and one worker on this machine.

    The printed URL holds a token for one use: the browser gets a cookie in exchange.
    """
    check_extra()
    from autotune.client.token_file import default_token_file, open_token
    from autotune.report.streams import say
    from autotune.service.local_worker import LocalWorker
    from autotune.service.projects import parse_projects
    from autotune.service.service_settings import ServiceSettings
    from autotune.service.web_server import serve as run
    from autotune.store.url import resolve_url
    from autotune.study_file.search_options import VARIABLES
    from autotune.units import parse_seconds

    cwd = working_directory()
    path = (token_file or default_token_file()).absolute()
    settings = ServiceSettings(
        storage=resolve_url(storage_in_use(storage), cwd),
        projects=parse_projects(project or [], cwd),
        token=open_token(path),
        read_only_tokens=(open_token(read_only_token_file),) if read_only_token_file is not None else (),
        worker_tokens=(open_token(worker_token_file),) if worker_token_file is not None else (),
        host=host,
        allowed_hosts=tuple(allow_host or ()),
        trusted_proxy=trust_proxy,
        audit_log=audit_log,
        lease_ttl_s=parse_seconds(lease_time),
    )
    if not settings.projects and not no_worker:
        raise UsageError("A server with a worker needs a project.", "Name the folder: --project DIR")
    check_database(settings.storage)
    projects = [f"{name}={folder}" for name, folder in settings.projects.items()]
    token_of_worker = (worker_token_file or path).absolute()
    words = worker_words(token_of_worker, projects, slot, unprotected=unprotected, network=network)
    # A variable, because arguments can be read by every user of the machine.
    variables = {VARIABLES["storage"]: settings.storage}
    run(
        settings,
        port,
        on_listening=lambda app, url: say(f"Serving at {app.state.security.browser_url(url)}"),
        worker_of=None if no_worker else lambda url: LocalWorker([f"--server={url}", *words], say, variables),
    )
    return 0


def check_database(storage: str) -> None:
    """Opens the database once, before anything is served.

    Args:
        storage: Resolved URL of the database.

    Raises:
        StoreError: The database cannot be used.
    """
    from autotune.store.job_queue import JobQueue
    from autotune.store.repository import Repository

    with Repository.open(storage), JobQueue.open(storage):
        pass


def check_extra() -> None:
    """Refuses to go on without the packages of the service.

    Raises:
        UsageError: A package is missing; names the command to install it.
    """
    for name in ("fastapi", "uvicorn", "jinja2", "sse_starlette"):
        if find_spec(name) is None:
            raise UsageError(
                f"The package {name} of the service is not installed.",
                "Install what it needs: pip install fastapi uvicorn jinja2 sse-starlette",
            )
