"""The folder of a study in the temporary space: the layer of the probe, and a short-lived folder per trial."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path

from autotune.protocol.paths import TrialPaths
from autotune.protocol.protection import Protection, ProtectionWish
from autotune.protocol.supervision import LayerPlan, RedirectionPlan
from autotune.sandbox import landlock, layer_permission
from autotune.sandbox.changed_files import Scan
from autotune.sandbox.covered_folders import covered_folders, needed_folders, watched_folders, written_folders
from autotune.sandbox.foreign_owners import mend, unreached_folders
from autotune.sandbox.handed_on import drop_outputs, drop_redirected_outputs
from autotune.sandbox.kept_whole import large_copies, large_files, libraries
from autotune.sandbox.landlock import TRUNCATES
from autotune.sandbox.locks import COMPLETE, TRIALS, FolderLock
from autotune.sandbox.own_files import put, remove_links
from autotune.sandbox.protection_choice import choose
from autotune.sandbox.redirected_places import redirection
from autotune.sandbox.sandbox_error import NoSuchPlaceError
from autotune.sandbox.short_paths import remove_short_path, short_path
from autotune.sandbox.tree_removal import remove_tree
from autotune.sandbox.trial_processes import end_strays
from autotune.sandbox.workspace_places import claimed_folder, unwritable

CONNECTED = "connected"
"""File that marks a study with a need for the network."""
ROOT = "root"
"""Folder of a trial for its own tree of mounts; empty for all other processes."""


class Workspace:
    """The folder of one study in the machine's temporary space.

    Args:
        folder: The workspace's place.
        covered: Folders of the user's that trials must not change; none contains the workspace.
        protection: Protection of the user's files from trials.
        writable: Places of the user's for real writes of trials.
        has_pids: Whether trials with layers get a process namespace as well.
        is_cut_off: Whether trials with layers get a network of their own after the probe.
        known: Folders that the script is likely to write to.
        read_only: Places without writes of trials with layers.
    """

    def __init__(
        self,
        folder: Path,
        covered: tuple[Path, ...],
        *,
        protection: Protection = Protection.LAYERS,
        writable: tuple[Path, ...] = (),
        has_pids: bool = True,
        is_cut_off: bool = False,
        known: tuple[Path, ...] = (),
        read_only: tuple[str, ...] = (),
    ) -> None:
        self.folder, self.covered = folder, covered
        self.protection, self.writable = protection, writable
        self._has_pids, self._known, self._read_only = has_pids, list(known), read_only
        self._is_cut_off = is_cut_off
        self.large_copies: tuple[Path, ...] = ()
        """Large files of the user's that the probe opened for update, and the kernel copied whole."""
        self.out_of_reach: tuple[Path, ...] = ()
        """Places that the user can write to and trials cannot: files of another user or group, without a copy."""
        self._claim: FolderLock | None = None

    # Opening and closing -----------------------------------------------------------------------------------------

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
        """The study's workspace, from an earlier run if possible, otherwise new.

        Args:
            folder: Of an earlier run of this process. Never a path from a database: anybody may have written the path.
            cwd: The script's working directory.
            command: Starts the script.
            study_id: Names a new folder, for a resume to find after a kill of the tuner; empty for a random name.
            wish: The user's wish for protection; None without a wish.

        Raises:
            NoSuchPlaceError: A place of the wish does not exist.
            SandboxError: The working directory cannot be protected, or no temporary folder outside of the user's
                folders can be written, or the system permits no protection and the user has not said to go on.
        """
        wish = wish or ProtectionWish()
        writable = tuple(_existing(cwd / path) for path in wish.writable)
        folders = covered_folders(cwd, command)
        folder, claimed = claimed_folder(folder, folders, study_id)
        scratch = folder / "permitted"
        try:
            known = written_folders(cwd, command)
            protection = choose(wish, scratch, needed_folders(cwd))
            permitted = layer_permission.Permission(is_given=False)
            if protection is Protection.LAYERS:
                permitted = layer_permission.permission(scratch, known)
        except OSError as error:
            raise unwritable(folder, error) from error
        finally:
            remove_tree(scratch)
        workspace = cls(
            folder,
            folders,
            protection=protection,
            writable=writable,
            has_pids=permitted.has_pids,
            is_cut_off=permitted.can_be_cut_off and not wish.keeps_network,
            known=known,
        )
        workspace._claim = claimed
        if workspace.has_layers:
            workspace._read_only = (*libraries(command[0]), *large_files(watched_folders(cwd, command), folder))
            workspace._mend(known)
            workspace._try_again(scratch, tuple(map(Path, permitted.unwritable)))
        return workspace

    def leave(self) -> None:
        """Lets other tuners have the folder, with the probe's layer for a resume."""
        if self._claim is not None:
            self._claim.release()

    def remove(self) -> None:
        """Removes the workspace."""
        remove_tree(self.folder)
        self.leave()

    # Trials ------------------------------------------------------------------------------------------------------

    def new_trial(self) -> Path:
        """An empty folder for one trial."""
        # Short names: the path of a socket in the trial's TMPDIR must stay under 108 characters.
        folder = self.folder / TRIALS / uuid.uuid4().hex[:8]
        for name in ("results", "layer", "tmp", ROOT):
            (folder / name).mkdir(parents=True, mode=0o700)
        return folder

    def short(self, trial: Path) -> TrialPaths:
        """The files of a trial, by names with room for sockets."""
        return TrialPaths(short_path(trial))

    def remove_trial(self, trial: Path) -> None:
        """Removes a trial's folder."""
        remove_short_path(trial)
        remove_tree(trial)

    def remove_leftovers(self) -> None:
        """Ends and removes trials without a tuner and a supervisor."""
        end_strays(self.folder / TRIALS)
        remove_tree(self.folder / TRIALS)

    # Protection --------------------------------------------------------------------------------------------------

    @property
    def has_layers(self) -> bool:
        """Whether trials write to overlay mounts; otherwise their writes are redirected."""
        return self.protection is Protection.LAYERS

    @property
    def is_cut_off(self) -> bool:
        """Whether trials after the probe have a network of their own, with the loopback alone."""
        return self._is_cut_off and not (self.folder / CONNECTED).exists()

    def connect(self) -> bool:
        """Gives the trials of this study the machine's network, for a resume as well; whether they had none before.

        Raises:
            SandboxError: The workspace cannot be written.
        """
        if not self.is_cut_off:
            return False
        try:
            put(self.folder / CONNECTED, "", below=self.folder)
        except OSError as error:
            raise unwritable(self.folder, error) from error
        return True

    def mounts(
        self,
        trial: Path,
        *,
        is_probe: bool,
        over: Path | None = None,
        is_server: bool = False,
        is_before_probe: bool = False,
    ) -> LayerPlan | None:
        """One trial's view of the file systems; None without layers.

        The probe writes to the study's layer, and later trials read this layer. No trial reads the layer before the
        probe has ended: the kernel's overlay must not read from a folder that another overlay writes to.

        Args:
            trial: The trial's folder.
            is_probe: Whether the trial is the probe.
            over: The folder of a stopped run, for a trial that goes on from there: the trial reads the run's layers,
                and has a layer over the run's temporary folder.
            is_server: Whether trials are to be forked from this process. A server removes its own folder.
            is_before_probe: Whether a server starts before the end of the probe, without the probe's layer.
        """
        if not self.has_layers:
            return None
        study, own = self._study_layer, TrialPaths(trial).layer
        self.compiled.mkdir(parents=True, exist_ok=True)
        between = [TrialPaths(over).layer] if over is not None else []
        between += [] if is_probe or is_before_probe else [study]
        between += [self._mended] if self._mended.is_dir() else []
        mps = _multi_process_service()
        plain = (self.folder,) if is_server else (trial, self.compiled, *self.writable)
        plain = plain if mps is None else (*plain, mps)
        return LayerPlan(
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
            is_cut_off=self.is_cut_off and not is_probe,
        )

    def redirection(self, trial: Path, *, is_probe: bool, over: Path | None = None) -> RedirectionPlan:
        """The plan of `autotune.sandbox.redirect` for a trial; the arguments are those of `mounts`."""
        layers = [self.redirected]
        if over is not None:
            layers.insert(0, TrialPaths(over).layer)
        if not is_probe:
            layers.insert(0, TrialPaths(trial).layer)
        return redirection(layers, own=self._own(trial))

    def confinement(self, trial: Path | None) -> tuple[str, ...] | None:
        """Places that Landlock leaves writable for a trial; None without Landlock.

        Args:
            trial: The trial's folder; None for a process to fork trials from, with writes to all trials' folders.
        """
        if self.protection is not Protection.LANDLOCK:
            return None
        places = self._own(trial or self.folder / TRIALS)
        for folder in places[: -len(self.writable) or None]:
            folder.mkdir(parents=True, exist_ok=True)  # A rule needs an existing place.
        return tuple(map(str, places))

    def scan(self, cwd: Path) -> Scan | None:
        """A snapshot of the user's folders, to name a trial's changes there; None with layers."""
        if self.has_layers:
            return None
        is_confined = self.protection is Protection.LANDLOCK
        return Scan(
            cwd.resolve(),
            (*self.covered, *watched_folders(cwd, ())),
            metadata_alone=is_confined and landlock.version() >= TRUNCATES,
            skipped=self.folder,
        )

    def learn_folders(self, printed: str, cwd: Path) -> tuple[Path, ...]:
        """Folders out of the layers' reach for this user, by the output of a failed script; later trials reach these.

        Args:
            printed: Output of the script.
            cwd: The script's working directory.
        """
        found = tuple(path for path in unreached_folders(printed, cwd) if path not in self._known)
        if found:
            self._known.extend(found)
            self._mend(self._known)
        return found

    def _own(self, trial: Path) -> list[Path]:
        """Places without redirection: the trial's, the study's, and places for real writes."""
        return [trial, self.folder / "study", self.compiled, *self.writable]

    # The probe's layer -------------------------------------------------------------------------------------------

    @property
    def compiled(self) -> Path:
        """Folder of compilers' caches for trials on a device: each graph is compiled once per study."""
        return self.folder / "compiled"

    @property
    def redirected(self) -> Path:
        """The study's layer of redirected writes."""
        return self.folder / "study" / "redirected"

    def has_probe_layer(self) -> bool:
        """Whether the probe's layer is here, under the same kind of protection. A reboot may remove the layer."""
        try:
            return (self.folder / COMPLETE).read_text() == self._form
        except OSError:
            return False

    def probe_is_through(self) -> None:
        """Removes the probe's outputs from the study's layer, and marks the layer as complete.

        Raises:
            SandboxError: The workspace cannot be written.
        """
        try:
            self.large_copies = large_copies(self._study_layer) if self.has_layers else ()
            self._drop_outputs(keeps_read=True)
            put(self.folder / COMPLETE, self._form, below=self.folder)
        except OSError as error:
            raise unwritable(self.folder, error) from error

    def keep_only_caches(self) -> bool:
        """Removes all writes of the probe except caches; whether there were any. No trial may be alive."""
        return self._drop_outputs(keeps_read=False) > 0

    def _drop_outputs(self, *, keeps_read: bool) -> int:
        if self.has_layers:
            return drop_outputs(self._study_layer, keeps_read=keeps_read)
        remove_links((self.folder / "study", self.redirected))
        return drop_redirected_outputs(self.redirected, keeps_read=keeps_read)

    def forget_probe(self) -> None:
        """Empties the study's layer, for a new probe."""
        for name in (COMPLETE, CONNECTED, "study"):  # A half-removed layer must not pass for a whole one.
            remove_tree(self.folder / name)

    @property
    def _form(self) -> str:
        """Form of the probe's layer; trials under another protection cannot read another form."""
        return "mounted" if self.has_layers else "redirected"

    @property
    def _study_layer(self) -> Path:
        return self.folder / "study" / "layer"

    @property
    def _mended(self) -> Path:
        return self.folder / "mended"

    def _mend(self, folders: Iterable[Path]) -> None:
        """Lets an ordinary user's trials write to other users' files in these folders, as far as a copy is possible."""
        remove_tree(self._mended)
        self.out_of_reach = () if os.geteuid() == 0 else mend(self._mended, folders, self.folder)

    def _try_again(self, scratch: Path, folders: tuple[Path, ...]) -> None:
        """Adds the folders that stay out of reach, with the copies of other users' files in place."""
        if not folders:
            return
        between = [self._mended] if self._mended.is_dir() else []
        try:
            left = layer_permission.permission(scratch, folders, between).unwritable
        except OSError as error:
            raise unwritable(self.folder, error) from error
        finally:
            remove_tree(scratch)
        self.out_of_reach = (*map(Path, left), *self.out_of_reach)


def _multi_process_service(environment: Mapping[str, str] = os.environ) -> Path | None:
    """Folder of the pipes of NVIDIA's service for several processes; None without the service.

    The service shares memory with its clients.
    """
    folder = Path(environment.get("CUDA_MPS_PIPE_DIRECTORY") or "/tmp/nvidia-mps")
    try:
        return folder.resolve() if (folder / "control").exists() else None
    except OSError:
        return None


def _existing(path: Path) -> Path:
    """The real path of a place for real writes.

    Raises:
        NoSuchPlaceError: The place does not exist.
    """
    try:
        return path.resolve(strict=True)
    except OSError as error:
        hint = "Make it before, so that trials have something to write to."
        raise NoSuchPlaceError(f"There is no {path}, which --writable names.", hint) from error
