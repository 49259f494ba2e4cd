"""Where a verb works: the working directory, and the database that it reads."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.errors import UsageError
from autotune.study_file.agreed_values import check_storage_agreed
from autotune.study_file.study_toml import resolve_storage

if TYPE_CHECKING:
    from autotune.store.repository import Repository

READING_PATIENCE_S = 5.0
"""Whoever only asks is told soon that a database is locked or gone; a search waits for it."""


def working_directory() -> Path:
    """The working directory.

    Raises:
        UsageError: It was deleted, or no database and no JSON document can hold its name.
    """
    try:
        cwd = Path.cwd()
        str(cwd).encode()
    except OSError as error:
        raise UsageError("The working directory is not there any more.", "Change to another one.") from error
    except UnicodeEncodeError as error:
        message = f"The name of the working directory is not UTF-8: {str(cwd)!a}."
        raise UsageError(message, "Rename it, or go there by a link with another name.") from error
    return cwd


def storage_in_use(asked: str | None) -> str:
    """The database that holds in this directory and environment, with `asked` before all else.

    Raises:
        UsageError: A study file names one outside of its folder, and this user has not agreed to that.
    """
    return resolve_storage(asked, environ=os.environ, cwd=working_directory(), check=check_storage_agreed)


def open_repository(asked: str | None, *, writes: bool = False) -> Repository:
    """The studies in the database that holds; nothing is made where there is none.

    Args:
        asked: What `--storage` says.
        writes: Whether more is done than reading; the database is brought up to this release then.

    Raises:
        StoreError: There is no such database, it holds no studies of ours, or it cannot be read.
    """
    from autotune.store.repository import Repository
    from autotune.store.retry import Patience
    from autotune.store.url import resolve_url

    patience = Patience(retry_for_s=READING_PATIENCE_S, busy_s=READING_PATIENCE_S)
    url = resolve_url(storage_in_use(asked), working_directory())
    if writes:
        return Repository.open(url, must_exist=True, patience=patience)
    return Repository.read(url, patience=patience)
