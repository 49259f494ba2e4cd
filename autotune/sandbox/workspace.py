"""Folders of a study outside the user's: the layer that its probe filled, and one short-lived folder per trial."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import tempfile
import uuid
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from autotune.errors import HostError, UsageError
from autotune.protocol.paths import TrialPaths
from autotune.protocol.protection import Protection, ProtectionWish
from autotune.sandbox import landlock, overlay
from autotune.sandbox.changed_files import Scan
from autotune.sandbox.covered_folders import covered_folders, written_folders
from autotune.sandbox.foreign_owners import mend
from autotune.sandbox.handed_on import drop_outputs
from autotune.sandbox.kept_whole import large_files, libraries
from autotune.sandbox.landlock import TRUNCATES
from autotune.sandbox.locks import COMPLETE, TRIALS, FolderLock, claim, is_ours, sweep
from autotune.sandbox.protection_choice import choose
from autotune.sandbox.redirected_places import redirection
from autotune.sandbox.short_paths import remove_dead_links, remove_short_path, short_path
from autotune.sandbox.trial_processes import end_strays

ROOT = "root"
"""Folder of a trial on which its own tree of mounts is put together; it is empty for everybody else."""
UNREACHED = os.strerror(errno.EOVERFLOW)
"""What the kernel says where it makes no copy of a folder or file of somebody else."""
FREE_SPACE = "Free some space, or set TMPDIR."


@dataclass(frozen=True, slots=True)
class Covered:
    """One folder of the user's whose writes go to a layer."""

    folder: Path


class Workspace:
    """The folder of one study in the machine's temporary space.

    Args:
        folder: Where it is, or is to be made.
        covered: Folders of the user's that trials must not change; none of them contains this one.
        protection: What keeps trials from the user's files.
        writable: Places of the user's that trials may write to for real.
        has_pids: Whether the system permits trials with layers a process namespace as well.
        known: Folders that the script is likely to write to.
        read_only: What trials with layers can only read.
    """

    def __init__(
        self,
        folder: Path,
        covered: tuple[Covered, ...],
        *,
        protection: Protection = Protection.LAYERS,
        writable: tuple[Path, ...] = (),
        has_pids: bool = True,
        known: tuple[Path, ...] = (),
        read_only: tuple[str, ...] = (),
    ) -> None:
        self.folder = folder
        self.covered = covered
        self.protection = protection
        self.writable = writable
        self._has_pids, self._known, self._read_only = has_pids, list(known), read_only
        self._claim: FolderLock | None = None

    @property
    def has_layers(self) -> bool:
        """Whether trials write to overlay mounts; what they write is redirected otherwise."""
        return self.protection is Protection.LAYERS

    @classmethod
    def open(
        cls,
        folder: Path | None,
        *,
        cwd: Path,
        command: tuple[str, ...],
        study_id: str = "",
        wish: ProtectionWish | None = None,
    ) -> Workspace:
        """The study's workspace: the one of an earlier run where it still exists, otherwise a new one.

        Args:
            folder: Of an earlier run of this process. Never a path from a database, which anybody may have written.
            cwd: The script's working directory.
            command: What starts the script.
            study_id: Names the new folder, so that a tuner that was killed before it noted the folder's name leaves
                nothing behind that its resume would not find; without one the name is random.
            wish: What the user said of the protection of files; None = nothing.

        Raises:
            UsageError: One of these is not there.
            HostError: The working directory cannot be protected, or no temporary folder outside of the user's folders
                can be written, or the system permits no protection and the user has not said to go on.
        """
        wish = wish or ProtectionWish()
        writable = tuple(_there(cwd / path) for path in wish.writable)
        folders = covered_folders(cwd, command)
        sweep(_bases())
        remove_dead_links()
        folder, claimed = _claimed(folder, folders, study_id)
        scratch = folder / "permitted"
        try:
            known = written_folders(cwd, command)
            protection, has_pids = choose(wish, scratch, folders), True
            if protection is Protection.LAYERS:
                has_pids = overlay.permission(scratch, known).has_pids
        except OSError as error:
            raise HostError(f"{folder} cannot be written: {error}.", FREE_SPACE) from error
        finally:
            overlay.remove_tree(scratch)
        has_layers = protection is Protection.LAYERS
        workspace = cls(
            folder,
            tuple(map(Covered, folders)),
            protection=protection,
            writable=writable,
            has_pids=has_pids,
            known=known,
            read_only=(*libraries(command[0]), *large_files(folders, folder)) if has_layers else (),
        )
        workspace._claim = claimed
        if has_layers:
            workspace._mend(known)
        return workspace

    @property
    def compiled(self) -> Path:
        """Where the study's trials on a device keep what their compilers made: the same graph is built once."""
        return self.folder / "compiled"

    def new_trial(self) -> Path:
        """An empty folder for one trial."""
        # Short names: the path of a socket in the trial's TMPDIR must stay under 108 characters.
        folder = self.folder / TRIALS / uuid.uuid4().hex[:8]
        for name in ("results", "layer", "tmp", ROOT):
            (folder / name).mkdir(parents=True, mode=0o700)
        return folder

    def mounts(
        self, trial: Path, *, is_probe: bool, over: Path | None = None, is_server: bool = False
    ) -> dict[str, object]:
        """What one trial sees of the file systems, as `autotune.sandbox.overlay` takes it.

        The probe writes to the study's layer, which later trials read. That is handed over only once the probe is
        through: a folder that is somebody's upper layer must not be a lower one of somebody else at the same time,
        unless nobody writes there any more.

        Args:
            trial: The trial's folder.
            is_probe: Whether it is the probe's.
            over: The folder of a run that has stopped, whose layers are to be read; its temporary folder, too, is
                covered then.
            is_server: Whether trials are to be forked from this process, which removes its own folder.
        """
        study, own = self._study_layer, TrialPaths(trial).layer
        self.compiled.mkdir(parents=True, exist_ok=True)
        between = [TrialPaths(over).layer] if over is not None else []
        between += [] if is_probe else [study]
        between += [self._mended] if self._mended.is_dir() else []
        mps = _multi_process_service()
        plain = (self.folder,) if is_server else (trial, self.compiled, *self.writable)
        plain = plain if mps is None else (*plain, mps)
        plan = overlay.Plan(
            root=str(trial / ROOT),
            workspace=str(self.folder),
            upper=str(study if is_probe else own),
            between=tuple(map(str, between)),
            plain=tuple(map(str, plain)),
            covered=(str(TrialPaths(over).temporary),) if over is not None else (),
            known=tuple(map(str, self._known)),
            read_only=self._read_only,
            has_pids=self._has_pids and not is_server,
            has_own_memory=mps is None,
        )
        return plan.document()

    def learn_folders(self, printed: str, cwd: Path) -> tuple[Path, ...]:
        """Folders that layers did not reach for this user, by what a script printed; from now on they do.

        Args:
            printed: Output of a script that failed.
            cwd: Where it ran.
        """
        if UNREACHED not in printed:
            return ()
        found = []
        for text in re.findall(r"['\"]([^'\"\n]+)['\"]", printed):
            path = Path(os.path.realpath(cwd / text))
            folder = next((place for place in (path, *path.parents) if place.is_dir()), None)
            if folder is not None and "/" in text and folder not in self._known:
                self._known.append(folder)
                found.append(folder)
        self._mend(self._known)
        return tuple(dict.fromkeys(found))

    def redirection(self, trial: Path, *, is_probe: bool, over: Path | None = None) -> dict[str, list[str]]:
        """The same where writes are redirected instead of mounted over, as `autotune.sandbox.redirect` takes it."""
        layers = [self.redirected]
        if over is not None:
            layers.insert(0, TrialPaths(over).layer)
        if not is_probe:
            layers.insert(0, TrialPaths(trial).layer)
        return redirection(layers, own=self._own(trial))

    def confinement(self, trial: Path | None) -> list[str] | None:
        """Where the kernel lets a trial write; None where Landlock does not confine it.

        Args:
            trial: Its folder; None for a process that trials are forked from, which writes to all of theirs.
        """
        if self.protection is not Protection.LANDLOCK:
            return None
        places = self._own(trial or self.folder / TRIALS)
        for folder in places[: -len(self.writable) or None]:
            folder.mkdir(parents=True, exist_ok=True)  # A rule holds for what is there when it is made.
        return [str(path) for path in places]

    def scan(self, cwd: Path) -> Scan | None:
        """The user's folders as they are now, to name what a trial changes there; None where layers cover them."""
        if self.has_layers:
            return None
        folders = [covered.folder for covered in self.covered]
        is_confined = self.protection is Protection.LANDLOCK
        return Scan(cwd.resolve(), folders, metadata_alone=is_confined and landlock.version() >= TRUNCATES)

    def _own(self, trial: Path) -> list[Path]:
        """Places that mean what they say to a trial whose writes are redirected: its own and the study's."""
        return [trial, self.folder / "study", self.compiled, *self.writable]

    @property
    def redirected(self) -> Path:
        """The study's layer where writes are redirected instead of mounted over."""
        return self.folder / "study" / "redirected"

    def has_probe_layer(self) -> bool:
        """Whether the probe's layer is here, in this form: after a reboot, or on another machine, it is not."""
        try:
            return (self.folder / COMPLETE).read_text() == self._form
        except OSError:
            return False

    @property
    def _form(self) -> str:
        """Form of the probe's layer, which trials under another protection cannot read."""
        return "mounted" if self.has_layers else "redirected"

    def probe_is_through(self) -> None:
        """Marks the study's layer as complete, without the outputs of the probe.

        Raises:
            HostError: Nothing can be written there any more.
        """
        try:
            (self.folder / "study").mkdir(exist_ok=True)
            if self._study_layer.is_dir():
                drop_outputs(self._study_layer)
            (self.folder / COMPLETE).write_text(self._form)
        except OSError as error:
            raise HostError(f"{self.folder} cannot be written: {error}.", FREE_SPACE) from error

    def keep_only_caches(self) -> bool:
        """Drops all that the probe wrote but caches, from under no living trial; whether there was anything."""
        return self._study_layer.is_dir() and drop_outputs(self._study_layer, keeps_read=False) > 0

    @property
    def _mended(self) -> Path:
        return self.folder / "mended"

    def _mend(self, folders: Iterable[Path]) -> None:
        """Lets an ordinary user's trials write to what others own in these folders, as far as it can be copied."""
        overlay.remove_tree(self._mended)
        if os.geteuid() != 0 and not mend(self._mended, folders, self.folder):
            overlay.remove_tree(self._mended)

    @property
    def _study_layer(self) -> Path:
        return self.folder / "study" / "layer"

    def forget_probe(self) -> None:
        """Empties the study's layer, for a new probe."""
        overlay.remove_tree(self.folder / "study")

    def short(self, trial: Path) -> TrialPaths:
        """The files of a trial by names that are short enough for sockets, where the folder's own are not."""
        return TrialPaths(short_path(trial))

    def remove_trial(self, trial: Path) -> None:
        """Removes what a trial left."""
        remove_short_path(trial)
        overlay.remove_tree(trial)

    def remove_leftovers(self) -> None:
        """Ends and removes the trials whose tuner and supervisor are gone."""
        end_strays(self.folder / TRIALS)
        overlay.remove_tree(self.folder / TRIALS)

    def remove(self) -> None:
        """Removes everything of the study."""
        overlay.remove_tree(self.folder)
        self.leave()

    def leave(self) -> None:
        """Keeps the probe's layer for a resume, and lets others have the folder."""
        if self._claim is not None:
            self._claim.release()


def _multi_process_service(environment: Mapping[str, str] = os.environ) -> Path | None:
    """Folder of the pipes of NVIDIA's service for several processes, which shares memory with them; None without it."""
    folder = Path(environment.get("CUDA_MPS_PIPE_DIRECTORY") or "/tmp/nvidia-mps")
    try:
        return folder.resolve() if (folder / "control").exists() else None
    except OSError:
        return None


def _there(path: Path) -> Path:
    """The real path of a file or folder that trials write for real.

    Raises:
        UsageError: There is none.
    """
    try:
        return path.resolve(strict=True)
    except OSError as error:
        hint = "Make it before, so that trials have something to write to."
        raise UsageError(f"There is no {path}, which --writable names.", hint) from error


def remove_workspace(study_id: str) -> None:
    """Removes the workspace of a study that nobody searches, wherever this user has it.

    Args:
        study_id: As the workspace was opened with.
    """
    for base in _bases():
        folder = base / _name_of(study_id)
        with suppress(OSError):  # there is no such base
            if is_ours(base) and folder.is_dir() and not folder.is_symlink():
                overlay.remove_tree(folder)


def _bases() -> tuple[Path, ...]:
    """Where workspaces of this user may lie, in the order in which they are tried."""
    places: tuple[str, ...] = ("/var/tmp", "/dev/shm")
    with suppress(FileNotFoundError):  # no folder can be written to of all those that it tries
        places = (tempfile.gettempdir(), *places)
    return tuple(Path(place).resolve() / f"autotune-{os.getuid()}" for place in places)


def _name_of(study_id: str) -> str:
    # Short names: the path of a socket in a trial's TMPDIR must stay under 108 characters.
    return hashlib.sha256(study_id.encode()).hexdigest()[:8]


def _claimed(folder: Path | None, covered: tuple[Path, ...], study_id: str) -> tuple[Path, FolderLock]:
    """The folder of an earlier run where it still exists, otherwise a new one; nobody clears it away any more.

    Raises:
        HostError: There is no place for one.
    """
    while True:
        place = folder if folder is not None and folder.is_dir() else _new_folder(covered, study_id)
        try:
            claimed = claim(place)
        except OSError as error:
            raise HostError(f"{place} cannot be written: {error}.", FREE_SPACE) from error
        if claimed is not None:
            return place, claimed


def _new_folder(covered: tuple[Path, ...], study_id: str) -> Path:
    """The folder of a study, outside of what is covered.

    Raises:
        HostError: There is no place for one.
    """
    outside = [
        base
        for base in _bases()
        if not any(folder == base.parent or folder in base.parent.parents for folder in covered)
    ]
    # TMPDIR may be another one than it was: where the study's folder is already comes before where a new one would be.
    there = [base for base in outside if study_id and (base / _name_of(study_id)).is_dir()]
    for base in (*there, *outside):
        try:
            return _folder_in(base, study_id)
        except OSError:
            continue
    raise HostError(
        "There is no temporary folder outside of the folders that trials must not change.",
        "Set TMPDIR to a writable folder outside of the working directory and of HOME.",
    )


def _folder_in(base: Path, study_id: str) -> Path:
    """A study's folder in ours, which may lie where everybody can write: somebody else may have made that.

    Raises:
        OSError: It cannot be written, or is not ours.
    """
    base.mkdir(mode=0o700, exist_ok=True)
    if not is_ours(base):
        raise PermissionError(f"{base} is not ours alone")
    folder = base / (_name_of(study_id) if study_id else uuid.uuid4().hex[:8])
    folder.mkdir(mode=0o700, exist_ok=bool(study_id))
    if folder.is_symlink():
        raise PermissionError(f"{folder} is a link")
    return folder
