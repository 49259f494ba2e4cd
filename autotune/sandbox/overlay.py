"""The copy-on-write layers over all of the user's file systems, in a mount namespace of a trial's own.

Standard library only: the supervisor loads this file. Every file system that can be written is the lowest layer of an
overlay mount, what the probe made (downloads, caches) lies over it, and what this trial writes goes on top. Where no
overlay can be mounted, files can be read and not written. Nothing of it is visible outside.

A folder with the workspace in it cannot have the workspace's layers below itself: the kernel refuses layers that
overlap. There the layers of the folders inside are mounted one by one (`_Root._split`).
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Self

from autotune.sandbox import namespaces
from autotune.sandbox.mounts import Mount, in_sight, mounted
from autotune.sandbox.namespaces import MS_BIND, MS_NODEV, MS_NOSUID, MS_REC

PERMITTED_LIMIT_S = 30.0
RENAMES_FOLDERS = ",redirect_dir=on"
"""Lets the user's folders be renamed; it needs a right that only root has. Without it that is a rename across disks."""
UPPER, WORK, PATH = "upper", "work", "path"
"""In the folder of a layer for one path: what was written, the kernel's own, and a file with the path."""
MAX_ENTRIES = 1000
"""A folder over which no overlay can be mounted, with more entries than this, can be read only."""
MAX_COPIED_BYTES = 64 << 20
"""Largest file that an earlier layer hands on by a copy, and most that is copied of folders without layers."""
MAX_SOCKETS = 300
PRIVATE_PROC = ("sys", "sysrq-trigger", "irq", "bus")
"""Parts of /proc by which root changes the machine."""
STARTERS = re.compile(
    r"/(systemd|dbus|docker|containerd|podman|crio|snapd|cron|lxd|libvirt)[^/]*(/|$)|/atd?(/|$)|/bus$"
)
"""Paths of sockets behind which others start programs for whoever asks: they lead nowhere in a trial."""
SHARED_MEMORY = "/dev/shm"
ATTEMPT = """
import sys
sys.path.append(sys.argv[1])
import json, os
from autotune.sandbox import overlay
overlay.attempt(json.loads(sys.stdin.read()))
"""
PACKAGE_PARENT = str(Path(__file__).resolve().parent.parent.parent)


class Plan(NamedTuple):
    """What a process sees of the file systems; all paths are real ones."""

    root: str
    """An empty folder on which the process's own tree of mounts is put together."""
    workspace: str
    """Folder of the study, with all layers in it."""
    upper: str
    """Folder for what the process writes."""
    between: tuple[str, ...] = ()
    """Folders that were `upper` of earlier processes, nearest first."""
    plain: tuple[str, ...] = ()
    """Folders and files that are written for real."""
    covered: tuple[str, ...] = ()
    """Folders with a layer of their own: those of an earlier process that are plain in it."""
    read_only: tuple[str, ...] = ()
    """Files and folders that can only be read."""
    known: tuple[str, ...] = ()
    """Folders to which an ordinary user's scripts write: the kernel makes no copy of a folder of somebody else for an
    ordinary user, so those above are made in the layer beforehand."""
    has_pids: bool = True
    """Whether the process has a process namespace as well, and sees /proc accordingly."""
    has_own_memory: bool = True
    """Whether it has shared memory of its own."""

    def document(self) -> dict[str, Any]:
        """The same as plain data."""
        return self._asdict()

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Self:
        """The plan that `document` gave back."""
        names = ("between", "plain", "covered", "read_only", "known")
        return cls(**{**document, **{name: tuple(document[name]) for name in names}})


def enter(document: Mapping[str, Any]) -> None:
    """Moves this process into a mount namespace of its own, in which nothing of the user's can be changed.

    The process must have the right to mount; with `has_pids` it is the first of its process namespace.

    Args:
        document: Of a `Plan`.

    Raises:
        OSError: The system does not permit it.
    """
    plan = Plan.read(document)
    namespaces.unshare(namespaces.CLONE_NEWNS | (namespaces.CLONE_NEWIPC if plan.has_own_memory else 0))
    # Not private: what an automounter mounts later is to be seen.
    namespaces.mount("none", "/", None, MS_REC | namespaces.MS_SLAVE)
    _Root(plan).build()
    namespaces.change_root(plan.root)


class _Root:
    """The tree of mounts that is to be the root of a process.

    Args:
        plan: What is to be seen.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        everything = mounted()
        self._mounts = {mount.point: mount for mount in in_sight(everything)}
        self._points = frozenset(mount.point for mount in everything)
        self._is_root = os.geteuid() == 0
        self._left_to_copy = MAX_COPIED_BYTES

    def build(self) -> None:
        """Puts the tree together.

        Raises:
            OSError: The system does not permit it.
        """
        for point in sorted(self._mounts):
            if not self._is_below_special(point):
                self._show(self._mounts[point])
        for path in self._plan.covered:
            self._cover(path)
        self._bind_sockets()
        for path in self._plan.read_only:
            with suppress(OSError):
                self._bind(path, is_writable=False, is_recursive=True)
        for path in self._plan.plain:
            self._bind(path, is_writable=True)

    def _is_below_special(self, point: str) -> bool:
        """Whether a mount comes along with that of /dev, /proc or /sys."""
        return point.startswith(("/dev/", "/proc/", "/sys/"))

    def _show(self, mount: Mount) -> None:
        """Puts one mount of the system at its place."""
        point = mount.point
        if point == "/dev":
            self._show_devices()
        elif point == "/proc":
            self._show_processes()
        elif point == "/sys":
            self._bind(point, is_writable=False, is_recursive=True)
        elif mount.is_special:
            with suppress(OSError):
                self._bind(point, is_writable=True, is_recursive=True)
        elif not mount.is_writable:
            self._bind(point, is_writable=False)
        else:
            self._cover(point)

    def _at(self, path: str) -> str:
        """Where a path is while the tree is put together."""
        return self._plan.root + path.rstrip("/") if path != "/" else self._plan.root

    # Copy-on-write -----------------------------------------------------------------------------------------------

    def _cover(self, path: str) -> None:
        """Shows a folder or a file so that nothing is written to it: by layers, in parts, or for reading only."""
        if not Path(path).is_dir():
            self._bind(path, is_writable=False)
            return
        has_mounts = self._has_mounts_below(path)
        # The kernel lays nothing over a folder with mounts inside that another user made.
        ways = [self._lay] if self._is_root or not has_mounts else []
        ways += [self._rebuild] if path == "/" or has_mounts else []
        for way in ways:
            with suppress(OSError):
                way(path)
                return
        if path == "/":
            raise OSError(errno.EPERM, "no layer can be laid over the root of the file system")
        self._bind(path, is_writable=False, is_recursive=True)

    def _lay(self, path: str) -> None:
        """Mounts the layers over a folder; where they would overlap with it, over what is in it one by one."""
        if not self._holds_workspace(path):
            try:
                self._overlay(path, list(self._earlier(path)))
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
        upper, work = self._own(path)
        _copy_mode(lowers[0], upper)
        if not self._is_root:
            for known in (self._plan.workspace, *self._plan.known):
                if f"{known}/".startswith(f"{path.rstrip('/')}/") and self._mount_of(known) == self._mount_of(path):
                    _make_way(path, upper, known)
        _mount_overlay(self._at(path), lowers, str(upper), str(work))

    def _split(self, path: str) -> None:
        """Hands on what earlier layers have in a folder with the workspace in it, where layers must not overlap."""
        names = {entry.name for folder, _ in self._earlier(path) for entry in os.scandir(folder)}
        for name in sorted(names):
            inner = f"{path.rstrip('/')}/{name}"
            if inner in self._points or inner == self._plan.workspace:
                continue
            source = next(
                (Path(folder, name) for folder, _ in self._earlier(path) if _is_kept(Path(folder, name))), None
            )
            if source is None:
                continue
            if not source.is_dir() or source.is_symlink():
                _copy_file(source, Path(self._at(inner)))
            elif self._holds_workspace(inner) and Path(inner).is_dir():
                self._split(inner)
            else:
                Path(self._at(inner)).mkdir(exist_ok=True)
                self._overlay(inner, list(self._earlier(inner)))

    def _rebuild(self, path: str) -> None:
        """Shows a folder entry by entry: the kernel lays nothing over one with mounts that this user did not make.

        Raises:
            OSError: There are too many of them, or they cannot be read.
        """
        entries = list(os.scandir(path))
        if len(entries) > MAX_ENTRIES:
            raise OSError(f"{path} has {len(entries)} entries")
        folder, _ = self._own(path)
        _copy_mode(path, folder)
        namespaces.mount(str(folder), self._at(path), None, MS_BIND)
        for entry in entries:
            inner, here = entry.path, folder / entry.name
            if entry.is_symlink():
                here.symlink_to(os.readlink(inner))  # noqa: PTH115  what it says, as it is
            elif entry.is_dir():
                here.mkdir(exist_ok=True)
                if inner not in self._mounts:
                    self._cover(inner)
            elif inner in self._mounts or not self._copied(entry, here):
                here.touch()
                if inner not in self._mounts:
                    self._bind(inner, is_writable=False)
        self._split(path)

    def _copied(self, entry: os.DirEntry[str], target: Path) -> bool:
        """Whether a file that this user may write was small enough to be copied."""
        size = entry.stat().st_size
        if not entry.is_file() or not os.access(entry.path, os.W_OK) or size > self._left_to_copy:
            return False
        self._left_to_copy -= size
        shutil.copy2(entry.path, target)
        return True

    def _earlier(self, path: str) -> Iterator[tuple[str, bool]]:
        """Folders that earlier layers have for a path, nearest first, and whether each hides what lies below it."""
        for layer in self._plan.between:
            found = _folder_of(layer, path)
            if found is not None:
                hides = is_opaque(*found)
                yield str(found[1]), hides
                if hides:
                    return

    def _own(self, path: str) -> tuple[Path, Path]:
        """Folders for what is written below a path, made; the latter is the kernel's."""
        folder = Path(self._plan.upper, layer_name(path))
        for name in (UPPER, WORK):
            (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / PATH).write_bytes(os.fsencode(path))
        return folder / UPPER, folder / WORK

    def _holds_workspace(self, path: str) -> bool:
        """Whether the workspace is in this folder, and on the same mount."""
        workspace = self._plan.workspace
        is_inside = f"{workspace}/".startswith(f"{path.rstrip('/')}/")
        return is_inside and self._mount_of(path) == self._mount_of(workspace)

    def _mount_of(self, path: str) -> str:
        """The mount point that a path is below."""
        above = (point for point in self._mounts if f"{path}/".startswith(f"{point.rstrip('/')}/"))
        return max(above, key=len, default="/")

    def _has_mounts_below(self, path: str) -> bool:
        return any(point.startswith(path.rstrip("/") + "/") for point in self._points)

    # What stays as it is -----------------------------------------------------------------------------------------

    def _bind(self, path: str, *, is_writable: bool, is_recursive: bool = False) -> None:
        """Shows what is at a path in the system, itself or for reading only."""
        place = self._at(path)
        if not os.path.lexists(place):
            return
        namespaces.mount(path, place, None, MS_BIND | (MS_REC if is_recursive else 0))
        if is_writable:
            return
        inner = [point for point in self._mounts if point.startswith(path.rstrip("/") + "/")] if is_recursive else []
        for point in (path, *sorted(inner)):
            with suppress(FileNotFoundError, PermissionError if point != path else FileNotFoundError):
                namespaces.make_read_only(self._at(point))

    def _show_devices(self) -> None:
        """Shows the devices, which can be used; no file can be made beside them. Shared memory is the process's own."""
        namespaces.mount("/dev", self._at("/dev"), None, MS_BIND | MS_REC)
        if "/dev" in self._mounts:
            namespaces.make_read_only(self._at("/dev"))
        if self._plan.has_own_memory and Path(SHARED_MEMORY).is_dir():
            self._show_memory()

    def _show_memory(self) -> None:
        """Mounts shared memory of the size of what is free in the system's, with layers where files are in that."""
        status = os.statvfs(SHARED_MEMORY)
        options = f"mode=1777,size={max(status.f_bavail * status.f_frsize, 1 << 20)}"
        own = Path(self._plan.upper, layer_name(SHARED_MEMORY))
        if not any(os.scandir(SHARED_MEMORY)):
            namespaces.mount("tmpfs", self._at(SHARED_MEMORY), "tmpfs", MS_NOSUID | MS_NODEV, options)
            return
        own.mkdir(parents=True, exist_ok=True)
        namespaces.mount("tmpfs", str(own), "tmpfs", MS_NOSUID | MS_NODEV, options)
        upper, work = own / UPPER, own / WORK
        upper.mkdir()
        work.mkdir()
        upper.chmod(0o1777)
        _mount_overlay(self._at(SHARED_MEMORY), [SHARED_MEMORY], str(upper), str(work))
        namespaces.unmount(str(own))

    def _show_processes(self) -> None:
        """Shows /proc, of the process's own namespace where it has one."""
        if not self._plan.has_pids:
            namespaces.mount("/proc", self._at("/proc"), None, MS_BIND | MS_REC)
        else:
            namespaces.mount("proc", self._at("/proc"), "proc", MS_NOSUID | MS_NODEV | namespaces.MS_NOEXEC)
            for point in sorted(point for point in self._mounts if point.startswith("/proc/")):
                with suppress(OSError):
                    self._bind(point, is_writable=True)
        if self._is_root:
            for name in PRIVATE_PROC:
                with suppress(OSError):
                    place = self._at(f"/proc/{name}")
                    namespaces.mount(place, place, None, MS_BIND)
                    namespaces.make_read_only(place)

    def _bind_sockets(self) -> None:
        """Shows the sockets that programs listen on, which no layer leads to, but those that start programs."""
        for path in _sockets()[:MAX_SOCKETS]:
            if STARTERS.search(path) is None and not self._is_below_special(path):
                with suppress(OSError):
                    self._bind(path, is_writable=True)


def layer_name(path: str) -> str:
    """Name of the folder in a layer for what is written below a path: the same in every layer."""
    encoded = os.fsencode(path)
    return f"{zlib.crc32(encoded):08x}{zlib.adler32(encoded):08x}"


def contents(layer: Path) -> Iterator[tuple[Path, str]]:
    """The folders of a layer that hold what was written, each with the path that it was written below."""
    for folder in sorted(layer.iterdir()) if layer.is_dir() else ():
        if (folder / PATH).is_file() and (folder / UPPER).is_dir():
            yield folder / UPPER, os.fsdecode((folder / PATH).read_bytes())


def _folder_of(layer: str, path: str) -> tuple[Path, Path] | None:
    """Folder of a layer for a path with the folder of the mount that it is in; None where the layer has none."""
    for place in (Path(path), *Path(path).parents):
        top = Path(layer, layer_name(str(place)), UPPER)
        if top.is_dir():
            found = top / Path(path).relative_to(place)
            return (top, found) if found.is_dir() and not found.is_symlink() else None
    return None


def is_opaque(top: Path, folder: Path) -> bool:
    """Whether a folder of a layer hides the same folder in lower ones, as one does that was removed and made again."""
    while folder != top:
        for name in ("trusted.overlay.opaque", "user.overlay.opaque"):
            with suppress(OSError):
                if os.getxattr(folder, name) == b"y":
                    return True
        folder = folder.parent
    return False


def _is_kept(path: Path) -> bool:
    """Whether a layer has something at this place, and no mark that it was removed."""
    try:
        status = path.lstat()
    except OSError:
        return False
    return not (stat.S_ISCHR(status.st_mode) and status.st_rdev == 0)


def _copy_file(source: Path, target: Path) -> None:
    """Hands on a file or a link of an earlier layer."""
    with suppress(OSError):
        if source.is_symlink() or source.stat().st_size <= MAX_COPIED_BYTES:
            shutil.copy2(source, target, follow_symlinks=False)


def _copy_mode(source: str, target: Path) -> None:
    """Gives a folder the rights, and where that is permitted the owner, of another."""
    status = Path(source).stat()
    with suppress(OSError):
        os.chown(target, status.st_uid, status.st_gid)
    target.chmod(stat.S_IMODE(status.st_mode))


def _make_way(path: str, upper: Path, known: str) -> None:
    """Makes a folder and those above it, up to `path`, in the layer of that."""
    there = Path(path)
    for name in Path(known).relative_to(path).parts:
        there, upper = there / name, upper / name
        if not there.is_dir():
            return
        if not upper.is_dir():
            upper.mkdir()
            _copy_mode(str(there), upper)


def _mount_overlay(target: str, lowers: Sequence[str], upper: str, work: str) -> None:
    """Mounts one layer. All places are given as descriptors: in overlay's options some characters mean something."""
    opened: list[int] = []
    try:
        opened.extend(os.open(path, os.O_PATH | os.O_DIRECTORY) for path in (*lowers, upper, work))
        places = [f"/proc/self/fd/{descriptor}" for descriptor in opened]
        options = f"lowerdir={':'.join(places[:-2])},upperdir={places[-2]},workdir={places[-1]},index=off"
        try:
            namespaces.mount("overlay", target, "overlay", MS_NOSUID | MS_NODEV, options + RENAMES_FOLDERS)
        except OSError:
            namespaces.mount("overlay", target, "overlay", MS_NOSUID | MS_NODEV, options + ",userxattr")
    finally:
        for descriptor in opened:
            os.close(descriptor)


def _sockets() -> list[str]:
    """Real paths of the sockets that have one."""
    try:
        lines = Path("/proc/net/unix").read_bytes().splitlines()[1:]
    except OSError:
        return []
    paths = {words[7] for line in lines if len(words := line.split(None, 7)) == 8 and words[7].startswith(b"/")}
    found = []
    for path in sorted(map(os.fsdecode, paths)):
        with suppress(OSError):
            if stat.S_ISSOCK(os.lstat(path).st_mode):
                found.append(os.path.realpath(path))
    return found


# Whether the system permits all that ----------------------------------------------------------------------------------


class Permission(NamedTuple):
    """What came of an attempt to mount layers."""

    is_given: bool
    """Whether they can be mounted, and keep what scripts do."""
    has_pids: bool = False
    """Whether trials can have a process namespace."""
    unwritable: Mapping[str, int] = MappingProxyType({})
    """Folders in which this user can make files and a trial cannot, with the number of the error."""


def permission(scratch: Path, folders: Sequence[Path] = ()) -> Permission:
    """What this system permits: tried for real in a child.

    Args:
        scratch: A folder of ours, for the layers of the attempt; nothing is written over the user's.
        folders: Folders of the user's that trials may write to.
    """
    if sys.platform.startswith("linux"):
        for has_pids in (True, False):
            found = _attempt(scratch, folders, has_pids=has_pids)
            if found.is_given:
                return found
    return Permission(is_given=False)


def is_permitted(scratch: Path, folders: Sequence[Path] = ()) -> bool:
    """Whether this system lets us mount layers; the arguments are those of `permission`."""
    return permission(scratch, folders).is_given


def _attempt(scratch: Path, folders: Sequence[Path], *, has_pids: bool) -> Permission:
    scratch = Path(os.path.realpath(scratch))
    remove_tree(scratch)  # A tuner that was killed here leaves it.
    (scratch / "user" / "sub").mkdir(parents=True)
    (scratch / "user" / "kept").write_text("user")
    (scratch / "user" / "sub" / "old").write_text("old")
    (scratch / "root").mkdir()
    known = tuple(map(str, folders))
    plan = Plan(str(scratch / "root"), str(scratch), str(scratch / "upper"), known=known, has_pids=has_pids)
    asked = {"plan": plan.document(), "user": str(scratch / "user"), "folders": [str(folder) for folder in folders]}
    command = [sys.executable, "-I", "-S", "-c", ATTEMPT, PACKAGE_PARENT]
    try:
        ended = subprocess.run(
            command, input=json.dumps(asked).encode(), capture_output=True, timeout=PERMITTED_LIMIT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return Permission(is_given=False)
    is_kept = (scratch / "user" / "kept").read_text() == "user" and (scratch / "user" / "sub" / "old").is_file()
    make_removable(scratch)
    if ended.returncode != 0 or not is_kept:
        return Permission(is_given=False)
    return Permission(is_given=True, has_pids=has_pids, unwritable=json.loads(ended.stdout))


def attempt(asked: Mapping[str, Any]) -> None:
    """Enters layers and does there what scripts do, in a process of its own; prints what did not work as JSON.

    Some temporary spaces let a layer be mounted and cannot keep what it must note in them.

    Args:
        asked: With `plan`, `user` (a folder of ours to change), and `folders` (the user's).
    """
    folders = [folder for folder in asked["folders"] if os.access(folder, os.W_OK | os.X_OK)]
    if not namespaces.can_mount():
        namespaces.own_users()
    if asked["plan"]["has_pids"]:
        namespaces.unshare(namespaces.CLONE_NEWPID)
    pid = os.fork()
    if pid:
        os._exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) & 0xFF)
    enter(asked["plan"])
    os.chdir(asked["user"])
    Path("kept").write_text("trial")
    shutil.rmtree("sub")
    Path("sub").mkdir()
    assert not any(Path("sub").iterdir())
    assert Path("/proc/self").is_dir() and Path("/dev/null").exists()
    found = {folder: number for folder in folders if (number := _why_unwritable(folder))}
    os.write(1, json.dumps(found).encode())
    os._exit(0)


def _why_unwritable(folder: str) -> int:
    """Number of the error with which a file cannot be made in a folder; 0 where one can."""
    path = Path(folder, f".autotune-{os.urandom(8).hex()}")
    try:
        path.touch(exist_ok=False)
    except OSError as error:
        return error.errno or errno.EIO
    path.unlink()
    return 0


def make_removable(folder: Path) -> None:
    """Gives back the right to remove what overlay (or a script) left without permissions."""
    for place, names, _ in os.walk(folder):
        for name in names:
            path = Path(place, name)
            if not path.is_symlink():
                try:
                    path.chmod(0o700)
                except OSError:
                    continue


def remove_tree(folder: Path) -> None:
    """Removes a folder of ours, or whatever a script put in its place."""
    if folder.is_symlink() or folder.is_file():
        folder.unlink(missing_ok=True)
        return
    make_removable(folder)
    shutil.rmtree(folder, ignore_errors=True)
