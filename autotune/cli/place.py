"""Where a verb works: the working directory, and the database that it reads."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.errors import StoreError, UsageError
from autotune.study_file.file import resolve_storage, sqlite_file

if TYPE_CHECKING:
    from autotune.store.repository import Repository


def working_directory() -> Path:
    """The working directory.

    Raises:
        UsageError: It was deleted.
    """
    try:
        return Path.cwd()
    except OSError as error:
        raise UsageError("The working directory is not there any more.", "Change to another one.") from error


def storage_in_use(asked: str | None) -> str:
    """The database that holds in this directory and environment, with `asked` before all else."""
    return resolve_storage(asked, environ=os.environ, cwd=working_directory())


def open_repository(asked: str | None) -> Repository:
    """The studies in the database that holds; nothing is made where there is none.

    Raises:
        StoreError: There is no such database, or it cannot be read.
    """
    from autotune.store.repository import Repository
    from autotune.store.url import resolve_url

    cwd, storage = working_directory(), storage_in_use(asked)
    path = sqlite_file(storage, cwd)
    if path is not None and not path.exists():
        raise StoreError(f"There is no database {path}.", "Name it with --storage, or start a search.")
    return Repository.open(resolve_url(storage, cwd), must_exist=True)
