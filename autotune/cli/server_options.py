"""The flags of verbs that speak to a server."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from autotune.client import Client

DEFAULT_SERVER = "http://127.0.0.1:8642"

Server = Annotated[str, typer.Option("--server", metavar="URL", help="The server.", show_default=True)]
TokenFile = Annotated[
    Path | None,
    typer.Option("--token-file", metavar="PATH", help="File of the server's token. [default: as `autotune serve`]"),
]
Projects = Annotated[
    list[str] | None,
    typer.Option("--project", metavar="DIR|NAME=DIR", help="A folder with training scripts. Repeatable."),
]
Unprotected = Annotated[
    bool,
    typer.Option("--unprotected", help="Let jobs run here although nothing protects your files from their trials."),
]
Network = Annotated[bool, typer.Option("--network", help="Let the trials of jobs use this machine's network.")]
Slot = Annotated[
    list[str] | None,
    typer.Option("--slot", metavar="cpu|cuda:N", help="Devices for trials. Repeatable. [default: all]"),
]


def client_of(server: str, token_file: Path | None) -> Client:
    """The client of the server.

    Raises:
        UsageError: The URL is not of a server, or the token cannot be read.
    """
    from autotune.client import Client

    return Client(server, token_file=token_file)


def worker_words(
    token_file: Path, projects: Sequence[str], slots: Sequence[str] | None, *, unprotected: bool, network: bool
) -> list[str]:
    """Arguments of `autotune worker` beside the server; the token stays in the file."""
    words = [f"--token-file={token_file}", *(f"--project={project}" for project in projects)]
    words += [f"--slot={slot}" for slot in slots or ()]
    return [*words, *(["--unprotected"] if unprotected else []), *(["--network"] if network else [])]
