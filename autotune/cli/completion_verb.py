"""The words that the shell offers after TAB: studies, forms of a config, devices. An error gives no words."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import typer

from autotune.errors import AutotuneError

COMPLETION_PATIENCE_S = 0.5
"""Longest wait at a prompt."""
DEVICES = ("auto", "cpu", "cuda", "cuda:0")


def complete_study(context: typer.Context, incomplete: str) -> list[str]:
    """Studies in the database of `--storage`, or in the usual database.

    Reads an existing file only; a server is never asked.
    """
    from autotune.cli.place import storage_in_use, working_directory
    from autotune.store.repository import Repository
    from autotune.store.retry import Patience
    from autotune.store.url import resolve_url, sqlite_path

    try:
        url = resolve_url(storage_in_use(context.params.get("storage")), working_directory())
        path = sqlite_path(url)
        if path is None or not path.is_file() or _is_write_ahead(path):
            return []
        with Repository.read(url, patience=Patience(retry_for_s=0, busy_s=COMPLETION_PATIENCE_S)) as repository:
            return _beginning_with(incomplete, reversed(repository.names()))
    except (AutotuneError, OSError):
        return []


def _is_write_ahead(path: Path) -> bool:
    """Whether a SQLite file keeps a write-ahead log: every reader makes two files beside it.

    The format of the header is at https://www.sqlite.org/fileformat.html, bytes 18 and 19.
    """
    with path.open("rb") as file:
        return file.read(20)[18:] == b"\x02\x02"


def complete_form(incomplete: str) -> list[str]:
    """Forms of a tuned config."""
    from autotune.emit.export import KINDS

    return _beginning_with(incomplete, KINDS)


def complete_device(incomplete: str) -> list[str]:
    """Names of devices, with the first GPU alone: the driver is not asked."""
    return _beginning_with(incomplete, DEVICES)


def _beginning_with(incomplete: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]
