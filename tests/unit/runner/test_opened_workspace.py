"""Errors of the sandbox as errors for the user: their words, and their exit codes."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.errors import HostError, UsageError
from autotune.protocol.protection import ProtectionWish
from autotune.runner.opened_workspace import errors_for_the_user, open_workspace
from autotune.sandbox.sandbox_error import NoSuchPlaceError, SandboxError


def test_a_place_to_write_to_that_is_not_there_is_the_users_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as refused:
        open_workspace(cwd=tmp_path, command=("python", "train.py"), wish=ProtectionWish(writable=("nowhere",)))
    assert refused.value.message == f"There is no {tmp_path}/nowhere, which --writable names."
    assert refused.value.hint == "Make it before, so that trials have something to write to."
    assert refused.value.exit_code == 2


def test_a_folder_that_cannot_be_protected_is_the_hosts_fault() -> None:
    with pytest.raises(HostError) as refused:
        open_workspace(cwd=Path("/"), command=("python", "train.py"), wish=ProtectionWish())
    assert refused.value.message == "The working directory / cannot be protected from what trials write."
    assert refused.value.hint == "Change to a folder of your own."
    assert refused.value.exit_code == 6


@pytest.mark.parametrize(("error", "kind"), [(SandboxError, HostError), (NoSuchPlaceError, UsageError)])
def test_every_error_keeps_its_words(error: type[SandboxError], kind: type[HostError]) -> None:
    with pytest.raises(kind, match=r"^It is full\. Free some space\.$"), errors_for_the_user():
        raise error("It is full.", "Free some space.")
