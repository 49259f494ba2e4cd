"""Places of workspaces in the machine's temporary space: found, made, claimed and removed."""

from __future__ import annotations

import hashlib
import os
import tempfile
import uuid
from contextlib import suppress
from pathlib import Path

from autotune.sandbox.locks import FolderLock, claim, is_ours, sweep
from autotune.sandbox.sandbox_error import SandboxError
from autotune.sandbox.short_paths import remove_dead_links
from autotune.sandbox.tree_removal import remove_tree

FREE_SPACE = "Free some space, or set TMPDIR."


def bases() -> tuple[Path, ...]:
    """Folders for this user's workspaces, in order of trial."""
    places: tuple[str, ...] = ("/var/tmp", "/dev/shm")
    with suppress(FileNotFoundError):  # This user can write to none of Python's temporary folders.
        places = (tempfile.gettempdir(), *places)
    return tuple(Path(place).resolve() / f"autotune-{os.getuid()}" for place in places)


def claimed_folder(folder: Path | None, covered: tuple[Path, ...], study_id: str) -> tuple[Path, FolderLock]:
    """A folder for a workspace, locked against removal by other tuners; removes what dead tuners left before.

    Args:
        folder: Of an earlier run; None, or a missing folder, gives a new folder.
        covered: Folders of the user's to stay outside of.
        study_id: Names a new folder; empty for a random name.

    Raises:
        SandboxError: No place is usable, or the folder cannot be written.
    """
    sweep(bases())
    remove_dead_links()
    while True:
        place = folder if folder is not None and folder.is_dir() else _new_folder(covered, study_id)
        try:
            claimed = claim(place)
        except OSError as error:
            raise unwritable(place, error) from error
        if claimed is not None:
            return place, claimed


def unwritable(folder: Path, error: OSError) -> SandboxError:
    """The error for people when a workspace cannot be written."""
    return SandboxError(f"{folder} cannot be written: {error}.", FREE_SPACE)


def remove_workspace(study_id: str) -> None:
    """Removes the workspaces of a study in all temporary folders of this user; no tuner may be searching the study.

    Args:
        study_id: As in `Workspace.open`.
    """
    for base in bases():
        folder = base / _name_of(study_id)
        with suppress(OSError):  # The base does not exist.
            if is_ours(base) and folder.is_dir() and not folder.is_symlink():
                remove_tree(folder)


def _name_of(study_id: str) -> str:
    # Short names: the path of a socket in a trial's TMPDIR must stay under 108 characters.
    return hashlib.sha256(study_id.encode()).hexdigest()[:8]


def _new_folder(covered: tuple[Path, ...], study_id: str) -> Path:
    """Makes the folder of a study, outside of the covered folders.

    Raises:
        SandboxError: No place is usable.
    """
    outside = [
        base
        for base in bases()
        if not any(folder == base.parent or folder in base.parent.parents for folder in covered)
    ]
    # TMPDIR may have changed since an earlier run: an existing folder of the study comes before a new folder.
    there = [base for base in outside if study_id and (base / _name_of(study_id)).is_dir()]
    for base in (*there, *outside):
        try:
            return _folder_in(base, study_id)
        except OSError:
            continue
    raise SandboxError(
        "There is no temporary folder outside of the folders that trials must not change.",
        "Set TMPDIR to a writable folder outside of the working directory and of HOME.",
    )


def _folder_in(base: Path, study_id: str) -> Path:
    """Makes the folder of a study in a base folder.

    The base may lie where all users can write, and another user may have made the base.

    Raises:
        OSError: The base cannot be written, or belongs to another user.
    """
    base.mkdir(mode=0o700, exist_ok=True)
    if not is_ours(base):
        raise PermissionError(f"{base} is not ours alone")
    folder = base / (_name_of(study_id) if study_id else uuid.uuid4().hex[:8])
    folder.mkdir(mode=0o700, exist_ok=bool(study_id))
    if folder.is_symlink():
        raise PermissionError(f"{folder} is a link")
    return folder
