"""Workspaces for searches: errors of the sandbox become errors for the user."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from autotune.errors import HostError, UsageError
from autotune.protocol.protection import ProtectionWish
from autotune.sandbox.sandbox_error import NoSuchPlaceError, SandboxError
from autotune.sandbox.workspace import Workspace


@contextmanager
def errors_for_the_user() -> Iterator[None]:
    """Raises the sandbox's errors inside as errors with an exit code.

    Raises:
        UsageError: A place of the user's wish does not exist.
        HostError: The machine cannot give the protection, or a workspace cannot be written.
    """
    try:
        yield
    except NoSuchPlaceError as error:
        raise UsageError(error.message, error.hint) from error
    except SandboxError as error:
        raise HostError(error.message, error.hint) from error


def open_workspace(*, cwd: Path, command: tuple[str, ...], wish: ProtectionWish, study_id: str = "") -> Workspace:
    """The workspace of a study, as `Workspace.open` gives it.

    Raises:
        UsageError: A place of the user's wish does not exist.
        HostError: The machine cannot give the protection, or the workspace cannot be written.
    """
    with errors_for_the_user():
        return Workspace.open(None, cwd=cwd, command=command, study_id=study_id, wish=wish)
