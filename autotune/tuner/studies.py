"""What is done to whole studies, in the database and on this machine's disk."""

from __future__ import annotations

from pathlib import Path

from autotune.runner.workspace import remove_workspace
from autotune.store.repository import Repository


def delete_study(name: str, repository: Repository) -> None:
    """Deletes a study with its trials, and what its probe left in the temporary space of this machine.

    Raises:
        StudyNotFoundError: There is no such study.
        StudyExistsError: Another live tuner searches it.
    """
    folder = repository.study(name).layer_folder
    repository.delete_study(name)
    if folder:
        remove_workspace(Path(folder))
