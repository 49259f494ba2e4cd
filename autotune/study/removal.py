"""Removes studies from the database and from the disk of this machine."""

from __future__ import annotations

from autotune.sandbox.workspace_places import remove_workspace
from autotune.store.repository import Repository


def workspace_id(name: str, repository: Repository) -> str:
    """The id behind the folder of a study's workspace.

    No program follows the folder named in the database: an attacker could name any folder there.
    """
    return f"{repository.url} {name}"


def delete_study(name: str, repository: Repository) -> None:
    """Deletes a study with all trials, and the files of the probe in the temporary space of this machine.

    Raises:
        StudyNotFoundError: The database has no study of this name.
        StudyExistsError: A live tuner searches the study.
    """
    repository.delete_study(name)
    remove_workspace(workspace_id(name, repository))
