"""Folders of a worker within the user's state folder."""

from __future__ import annotations

from pathlib import Path

from autotune.errors import HostError
from autotune.user_state import state_folder


def own_folder(*names: str) -> Path | None:
    """A folder for this user alone, made if missing; None when the user has no home.

    Raises:
        HostError: The folder cannot be made.
    """
    state = state_folder()
    if state is None:
        return None
    folder = state.joinpath(*names)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise HostError(
            f"The folder {folder} cannot be made: {error.strerror}.", "Set XDG_STATE_HOME to a folder of your own."
        ) from error
    return folder
