"""Copy-on-write layers over all of the user's file systems, in a mount namespace of the trial's own.

Standard library only: the supervisor loads this file. Every writable file system is the lowest layer of an overlay
mount. The probe's writes (downloads, caches) lie above, and the trial's writes go on top. A place without an overlay
mount is read-only. Outside of the namespace no mount is visible.

The kernel refuses overlapping layers. So the folder above the workspace gets no earlier layers; each folder inside gets
earlier layers separately (`_Layers._split`).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path

from autotune.protocol.supervision import LayerPlan
from autotune.sandbox import namespaces, own_network, special_mounts
from autotune.sandbox.layer_folders import copy_mode, earlier_folders, is_kept, make_layer_folders, make_way
from autotune.sandbox.mount_tree import MountTree, is_inside
from autotune.sandbox.mounts import Mount
from autotune.sandbox.namespaces import MS_BIND, MS_REC
from autotune.sandbox.tree_removal import remove_tree

MAX_ENTRIES = 1000
"""A folder without an overlay mount is read-only above this number of entries."""
MAX_COPIED_BYTES = 64 << 20
"""Largest file to copy from an earlier layer, and most bytes to copy from folders without layers."""


def enter(plan: LayerPlan) -> None:
    """Moves this process into a mount namespace of its own, without a way to change the user's files.

    The process needs the right to mount. With `plan.has_pids` the process must be the first of its process namespace.

    Raises:
        OSError: The system does not permit the mounts.
    """
    namespaces.unshare(namespaces.CLONE_NEWNS | (namespaces.CLONE_NEWIPC if plan.has_own_memory else 0))
    if plan.is_cut_off:
        own_network.enter()
    # Not private: later mounts of an automounter must become visible.
    namespaces.mount("none", "/", None, MS_REC | namespaces.MS_SLAVE)
    _Layers(plan).build()
    namespaces.change_root(plan.root)


class _Layers:
    """The layers of one process, mounted on a tree of mounts.

    Args:
        plan: The process's view of the file systems.
    """

    def __init__(self, plan: LayerPlan) -> None:
        self._plan, self._tree = plan, MountTree(plan.root)
        self._is_root = os.geteuid() == 0
        self._left_to_copy = MAX_COPIED_BYTES

    def build(self) -> None:
        """Puts the tree together.

        Raises:
            OSError: The system does not permit the mounts.
        """
        for point in sorted(self._tree.mounts):
            if not special_mounts.comes_along(point):
                self._show(self._tree.mounts[point])
        for path in self._plan.covered:
            self._cover(path)
        special_mounts.show_sockets(self._tree)
        for path in self._plan.read_only:
            with suppress(OSError):
                self._tree.bind(path, is_writable=False, is_recursive=True)
        for path in self._plan.plain:
            self._show_plain(path)

    def _show_plain(self, path: str) -> None:
        """Shows a place for real writes, with the mounts below.

        A folder of the workspace comes without the mounts below, because the new root is one of these.
        """
        workspace = self._plan.workspace
        is_of_workspace = is_inside(path, workspace)
        self._tree.bind(path, is_writable=True, is_recursive=not is_of_workspace)
        if is_inside(workspace, path) and not is_of_workspace:
            namespaces.unmount(self._tree.at(self._plan.root))  # A copy of the new root came along.

    def _show(self, mount: Mount) -> None:
        """Shows one mount of the system."""
        point = mount.point
        if point == "/dev":
            special_mounts.show_devices(self._tree)
            if self._plan.has_own_memory:
                special_mounts.show_own_memory(self._tree, self._plan.upper)
        elif point == "/proc":
            special_mounts.show_processes(self._tree, has_pids=self._plan.has_pids, is_root=self._is_root)
        elif point == "/sys":
            self._tree.bind(point, is_writable=False, is_recursive=True)
        elif mount.is_special:
            with suppress(OSError):
                self._tree.bind(point, is_writable=True, is_recursive=True)
        elif not mount.is_writable:
            self._tree.bind(point, is_writable=False)
        else:
            self._cover(point)

    def _cover(self, path: str) -> None:
        """Shows a folder or a file without real writes: through layers, entry by entry, or read-only.

        In a read-only folder the script still writes to known folders, through layers of their own. A folder of another
        user that this user cannot enter needs no layers: a temporary folder may have hundreds of such folders.
        """
        if not Path(path).is_dir() or _is_closed(path):
            self._tree.bind(path, is_writable=False, is_recursive=True)
            return
        has_mounts = self._tree.has_mounts_below(path)
        # The kernel refuses a layer over a folder with mounts inside, unless this user made the mounts.
        ways = [self._lay] if self._is_root or not has_mounts else []
        ways += [self._rebuild] if path == "/" or has_mounts else []
        for way in ways:
            with suppress(OSError):
                way(path)
                return
        if path == "/":
            raise OSError(errno.EPERM, "no layer can be laid over the root of the file system")
        self._tree.bind(path, is_writable=False, is_recursive=True)
        inside = {known for known in self._plan.known if known != path and is_inside(known, path)}
        for known in sorted(inside):
            if not self._tree.is_mount_point(known) and not any(is_inside(known, other) for other in inside - {known}):
                self._cover(known)

    def _lay(self, path: str) -> None:
        """Mounts the layers over a folder, or over the entries of the folder where layers would overlap."""
        if not self._holds_workspace(path):
            try:
                self._overlay(path, list(earlier_folders(self._plan.between, path)))
            except OSError as error:
                if error.errno != errno.ELOOP:
                    raise
            else:
                return
        self._overlay(path, [])
        self._split(path)

    def _overlay(self, path: str, earlier: Sequence[tuple[str, bool]]) -> None:
        lowers = [folder for folder, _ in earlier]
        if Path(path).is_dir() and not any(hides for _, hides in earlier):
            lowers.append(path)
        upper, work = make_layer_folders(self._plan.upper, path)
        copy_mode(lowers[0], upper)
        if not self._is_root:
            for known in (self._plan.workspace, *self._plan.known):
                if is_inside(known, path) and self._tree.mount_of(known) == self._tree.mount_of(path):
                    make_way(path, upper, known)
        namespaces.mount_overlay(self._tree.at(path), lowers, str(upper), str(work))

    def _split(self, path: str, covered: Collection[str] = ()) -> None:
        """Hands on the entries of earlier layers in a folder without earlier layers, one by one.

        Args:
            path: The folder.
            covered: Names of inner folders that have their earlier layers already.
        """
        earlier = [folder for folder, _ in earlier_folders(self._plan.between, path)]
        names = {entry.name for folder in earlier for entry in os.scandir(folder)}
        for name in sorted(names):
            inner = f"{path.rstrip('/')}/{name}"
            if self._tree.is_mount_point(inner) or inner == self._plan.workspace:
                continue
            source = next((Path(folder, name) for folder in earlier if is_kept(Path(folder, name))), None)
            if source is not None and not (name in covered and source.is_dir() and not source.is_symlink()):
                self._hand_on(inner, source)

    def _hand_on(self, path: str, source: Path) -> None:
        """Shows one entry of an earlier layer at a path, in place of the lower layers' entry."""
        _clear(source, Path(self._tree.at(path)))
        if not source.is_dir() or source.is_symlink():
            _copy_file(source, Path(self._tree.at(path)))
        elif self._holds_workspace(path) and Path(path).is_dir():
            self._split(path)
        else:
            Path(self._tree.at(path)).mkdir(exist_ok=True)
            self._overlay(path, list(earlier_folders(self._plan.between, path)))

    def _rebuild(self, path: str) -> None:
        """Shows a folder entry by entry, for a folder with mounts of another user inside.

        Raises:
            OSError: The folder has too many entries, or cannot be read.
        """
        entries = list(os.scandir(path))
        if len(entries) > MAX_ENTRIES:
            raise OSError(f"{path} has {len(entries)} entries")
        folder, _ = make_layer_folders(self._plan.upper, path)
        copy_mode(path, folder)
        namespaces.mount(str(folder), self._tree.at(path), None, MS_BIND)
        for entry in entries:
            self._rebuild_entry(entry, folder / entry.name)
        self._split(path, covered={entry.name for entry in entries if entry.is_dir(follow_symlinks=False)})

    def _rebuild_entry(self, entry: os.DirEntry[str], here: Path) -> None:
        is_mount = entry.path in self._tree.mounts
        if entry.is_symlink():
            here.symlink_to(os.readlink(entry.path))  # noqa: PTH115  the target's text, unchanged
        elif entry.is_dir():
            here.mkdir(exist_ok=True)
            if not is_mount:
                self._cover(entry.path)
        elif is_mount or not self._copied(entry, here):
            here.touch()
            if not is_mount:
                self._tree.bind(entry.path, is_writable=False)

    def _copied(self, entry: os.DirEntry[str], target: Path) -> bool:
        """Whether a file of this user's was small enough for a copy."""
        size = entry.stat().st_size
        if not entry.is_file() or not os.access(entry.path, os.W_OK) or size > self._left_to_copy:
            return False
        self._left_to_copy -= size
        _copy(Path(entry.path), target)
        return True

    def _holds_workspace(self, path: str) -> bool:
        """Whether the workspace lies in this folder, on the same mount."""
        workspace = self._plan.workspace
        return is_inside(workspace, path) and self._tree.mount_of(path) == self._tree.mount_of(workspace)


def _is_closed(folder: str) -> bool:
    """Whether a folder of another user has nothing within reach of this user."""
    return not os.access(folder, os.X_OK) and Path(folder).stat().st_uid != os.geteuid()


def _clear(source: Path, target: Path) -> None:
    """Removes a target that a copy cannot replace: a link, a target in place of a link, or an entry of another kind."""
    if not os.path.lexists(target):
        return
    if target.is_symlink() or source.is_symlink() or target.is_dir() != source.is_dir():
        remove_tree(target)


def _copy_file(source: Path, target: Path) -> None:
    """Hands on a file or a link of an earlier layer."""
    with suppress(OSError):
        if source.is_symlink() or source.stat().st_size <= MAX_COPIED_BYTES:
            _copy(source, target)


def _copy(source: Path, target: Path) -> None:
    import shutil  # Loads the compression libraries; few trials copy anything.

    shutil.copy2(source, target, follow_symlinks=False)
