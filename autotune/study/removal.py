"""What is done to whole studies, in the database and on this machine's disk."""

from __future__ import annotations

from autotune.sandbox.workspace_places import remove_workspace
from autotune.store.repository import Repository


def workspace_id(name: str, repository: Repository) -> str:
    """The id from which the folder of a study's workspace is derived.

    The folder that the database names is never followed: whoever wrote the database could name any folder there.
    """
    return f"{repository.url} {name}"


def delete_study(name: str, repository: Repository) -> None:
    """Deletes a study with its trials, and what its probe left in the temporary space of this machine.

    Raises:
        StudyNotFoundError: There is no such study.
        StudyExistsError: Another live tuner searches it.
    """
    repository.delete_study(name)
    remove_workspace(workspace_id(name, repository))
