"""Whether this system permits copy-on-write layers; tried in a child process."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from autotune.protocol.codec import decode, encode
from autotune.protocol.entry_points import LAYERS_ATTEMPT
from autotune.protocol.supervision import LayerPlan
from autotune.sandbox import namespaces, overlay
from autotune.sandbox.tree_removal import remove_tree

LIMIT_S = 30.0


@dataclass(frozen=True, kw_only=True, slots=True)
class AttemptOrder:
    """An attempt to mount layers."""

    plan: LayerPlan
    user: str
    """A folder of ours to change."""
    folders: tuple[str, ...]
    """Folders of the user's."""


class Permission(NamedTuple):
    """Result of an attempt to mount layers."""

    is_given: bool
    """Whether layers can be mounted, and keep what scripts write."""
    has_pids: bool = False
    """Whether trials can have a process namespace."""
    can_be_cut_off: bool = False
    """Whether trials can have a network of their own."""
    unwritable: Mapping[str, int] = MappingProxyType({})
    """Folders that this user can write to and a trial cannot, with the number of the error."""


def permission(scratch: Path, folders: Sequence[Path] = (), between: Sequence[Path] = ()) -> Permission:
    """What this system permits.

    Args:
        scratch: A folder of ours for the layers of the attempt; no file of the user's is written over.
        folders: Folders of the user's that trials may write to.
        between: Layers below the attempt's own.

    Raises:
        OSError: `scratch` cannot be written.
    """
    if sys.platform.startswith("linux"):
        for has_pids, is_cut_off in ((True, True), (True, False), (False, True), (False, False)):
            found = _attempt(scratch, folders, between, has_pids=has_pids, is_cut_off=is_cut_off)
            if found.is_given:
                return found
    return Permission(is_given=False)


def is_permitted(scratch: Path, needed: Sequence[Path] = ()) -> bool:
    """Whether this system permits layers, and layers leave the needed folders writable.

    Args:
        scratch: As in `permission`.
        needed: Folders without which a script cannot run. The kernel refuses a layer over a folder with mounts of
            another user inside, and such a folder may have too many entries for a mount of each.
    """
    found = permission(scratch, needed)
    return found.is_given and errno.EROFS not in found.unwritable.values()


def _attempt(
    scratch: Path, folders: Sequence[Path], between: Sequence[Path], *, has_pids: bool, is_cut_off: bool
) -> Permission:
    scratch = Path(os.path.realpath(scratch))
    remove_tree(scratch)  # A killed tuner may have left a folder here.
    user = scratch / "user"
    (user / "sub").mkdir(parents=True)
    (user / "kept").write_text("user")
    (user / "sub" / "old").write_text("old")
    (scratch / "root").mkdir()
    plan = LayerPlan(
        root=str(scratch / "root"),
        workspace=str(scratch),
        upper=str(scratch / "upper"),
        between=tuple(map(str, between)),
        known=(str(user), *map(str, folders)),
        has_pids=has_pids,
        is_cut_off=is_cut_off,
    )
    order = encode(AttemptOrder(plan=plan, user=str(user), folders=tuple(map(str, folders)))).encode()
    command = LAYERS_ATTEMPT.command()
    try:
        ended = subprocess.run(command, input=order, capture_output=True, timeout=LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return Permission(is_given=False)
    is_kept = (user / "kept").read_text() == "user" and (user / "sub" / "old").is_file()
    remove_tree(scratch)
    if ended.returncode != 0 or not is_kept:
        return Permission(is_given=False)
    unwritable = json.loads(ended.stdout)
    return Permission(is_given=True, has_pids=has_pids, can_be_cut_off=is_cut_off, unwritable=unwritable)


def attempt() -> None:
    """Enters layers and writes as scripts do, in a process of its own; prints the unwritable folders as JSON.

    Reads an `AttemptOrder` as JSON. Some temporary file systems permit the
    mount of a layer, but store no removals.
    """
    order = decode(AttemptOrder, sys.stdin.read())
    plan = order.plan
    folders = [folder for folder in order.folders if os.access(folder, os.W_OK | os.X_OK)]
    if not namespaces.can_mount():
        namespaces.own_users()
    if plan.has_pids:
        namespaces.unshare(namespaces.CLONE_NEWPID)
    pid = os.fork()
    if pid:
        os._exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) & 0xFF)
    overlay.enter(plan)
    os.chdir(order.user)
    Path("kept").write_text("trial")
    shutil.rmtree("sub")
    Path("sub").mkdir()
    assert not any(Path("sub").iterdir())
    assert Path("/proc/self").is_dir() and Path("/dev/null").exists()
    found = {folder: number for folder in folders if (number := _why_unwritable(folder))}
    os.write(1, json.dumps(found).encode())
    os._exit(0)


def _why_unwritable(folder: str) -> int:
    """Number of the error for a new file in a folder; 0 without an error."""
    path = Path(folder, f".autotune-{os.urandom(8).hex()}")
    try:
        path.touch(exist_ok=False)
    except OSError as error:
        return error.errno or errno.EIO
    path.unlink()
    return 0
