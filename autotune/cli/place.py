"""The working directory and the database of a verb."""

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
"""Verbs that only read report a locked or missing database after this time; a search waits longer."""


def working_directory() -> Path:
    """The working directory.

    Raises:
        UsageError: The directory was deleted, or the name is not UTF-8 and fits neither a database nor JSON.
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
    """The database in force: `asked`, or the database of this environment and directory.

    Raises:
        UsageError: A study file names a database outside the file's folder, and this user has not agreed.
    """
    return resolve_storage(asked, environ=os.environ, cwd=working_directory(), check=check_storage_agreed)


def open_repository(asked: str | None, *, writes: bool = False) -> Repository:
    """Opens the studies of the database in force; never creates a database.

    Args:
        asked: Value of `--storage`.
        writes: The verb also writes, so the database is migrated to this release.

    Raises:
        StoreError: The database does not exist, cannot be read, or holds no studies of autotune.
    """
    from autotune.store.repository import Repository
    from autotune.store.retry import Patience
    from autotune.store.url import resolve_url

    patience = Patience(retry_for_s=READING_PATIENCE_S, busy_s=READING_PATIENCE_S)
    url = resolve_url(storage_in_use(asked), working_directory())
    if writes:
        return Repository.open(url, must_exist=True, patience=patience)
    return Repository.read(url, patience=patience)
