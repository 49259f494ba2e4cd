"""Folders of a study outside the user's: the layer that its probe filled, and one short-lived folder per trial."""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from dataclasses import dataclass
from pathlib import Path

from autotune.errors import HostError
from autotune.runner import layers


@dataclass(frozen=True, slots=True)
class Covered:
    """One folder of the user's whose writes go to a layer."""

    folder: Path
    name: str
    """Its name among the study's and the trial's layers."""


class Workspace:
    """The folder of one study in the machine's temporary space.

    Args:
        folder: Where it is, or is to be made.
        covered: Folders of the user's that trials must not change; none of them contains this one.
        has_layers: Whether this system permits overlay mounts.
    """

    def __init__(self, folder: Path, covered: tuple[Covered, ...], *, has_layers: bool) -> None:
        self.folder = folder
        self.covered = covered
        self.has_layers = has_layers

    @classmethod
    def open(cls, folder: Path | None, *, cwd: Path, command: tuple[str, ...]) -> Workspace:
        """The study's workspace: the one of an earlier run where it still exists, otherwise a new one.

        Raises:
            HostError: No temporary folder outside of the user's folders can be written.
        """
        folders = covered_folders(cwd, command)
        base = _base_outside(folders)
        if folder is None or not folder.is_dir():
            folder = base / uuid.uuid4().hex[:12]
            folder.mkdir(parents=True, mode=0o700)
        scratch = folder / "permitted"
        try:
            has_layers = layers.is_permitted(scratch)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        covered = tuple(Covered(path, f"{index}") for index, path in enumerate(folders))
        return cls(folder, covered, has_layers=has_layers)

    def new_trial(self) -> Path:
        """An empty folder for one trial."""
        folder = self.folder / "trials" / uuid.uuid4().hex[:12]
        for name in ("results", "layer", "tmp"):
            (folder / name).mkdir(parents=True, mode=0o700)
        return folder

    def mounts(self, trial: Path, *, is_probe: bool) -> list[dict[str, object]]:
        """Overlay mounts of one trial; the probe writes to the study's layer, which later trials read.

        The study's layer is handed over only once its probe is through: a folder that is somebody's upper layer must
        not be a lower one of somebody else at the same time.
        """
        mounts: list[dict[str, object]] = []
        for covered in self.covered:
            study = self.folder / "study" / covered.name
            upper = study if is_probe else trial / "layer" / covered.name / "upper"
            work = trial / "layer" / covered.name / "work"
            for path in (study, upper, work):
                path.mkdir(parents=True, exist_ok=True)
            lower = [] if is_probe else [str(study)]
            mounts.append({"folder": str(covered.folder), "lower": lower, "upper": str(upper), "work": str(work)})
        if is_probe:
            # An overlay's work folder must be on the file system of its upper one, and be empty.
            for mount, covered in zip(mounts, self.covered, strict=True):
                work = self.folder / "study" / f"{covered.name}.work"
                layers.make_removable(work)
                shutil.rmtree(work, ignore_errors=True)
                work.mkdir(parents=True)
                mount["work"] = str(work)
        return mounts

    def has_probe_layer(self) -> bool:
        """Whether the probe's layer is here: after a reboot, or on another machine, it is not."""
        return (self.folder / "study" / "complete").is_file()

    def probe_is_through(self) -> None:
        """Marks the study's layer as complete."""
        (self.folder / "study").mkdir(exist_ok=True)
        (self.folder / "study" / "complete").write_text("")

    def forget_probe(self) -> None:
        """Empties the study's layer, for a new probe."""
        self._remove(self.folder / "study")

    def remove_trial(self, trial: Path) -> None:
        """Removes what a trial left."""
        self._remove(trial)

    def remove_leftovers(self) -> None:
        """Removes the folders of trials whose tuner is gone."""
        self._remove(self.folder / "trials")

    def remove(self) -> None:
        """Removes everything of the study."""
        self._remove(self.folder)

    @staticmethod
    def _remove(folder: Path) -> None:
        layers.make_removable(folder)
        shutil.rmtree(folder, ignore_errors=True)


def covered_folders(cwd: Path, command: tuple[str, ...]) -> tuple[Path, ...]:
    """Folders whose writes go to layers: working directory, home, and what the command names; outermost only."""
    candidates = {cwd, _existing(os.environ.get("HOME", ""))}
    for argument in command[1:]:
        _, _, value = argument.rpartition("=")
        path = _existing(str(cwd / value) if value and not value.startswith("-") else "")
        if path is not None:
            candidates.add(path if path.is_dir() else path.parent)
    real = {path.resolve() for path in candidates if path is not None and path.is_dir()}
    usable = {path for path in real if len(path.parts) > 1 and not _is_system(path) and os.access(path, os.W_OK)}
    return tuple(sorted(path for path in usable if not any(other in path.parents for other in usable)))


def _existing(text: str) -> Path | None:
    try:
        return Path(text) if text and Path(text).exists() else None
    except OSError:
        return None


def _is_system(path: Path) -> bool:
    return path.parts[1] in ("dev", "proc", "sys", "run", "usr", "bin", "lib", "lib64", "etc", "boot", "sbin")


def _base_outside(folders: tuple[Path, ...]) -> Path:
    for place in (tempfile.gettempdir(), "/var/tmp", "/dev/shm"):
        base = Path(place).resolve()
        is_inside = any(folder == base or folder in base.parents for folder in folders)
        if not is_inside and base.is_dir() and os.access(base, os.W_OK):
            return base / f"autotune-{os.getuid()}"
    raise HostError(
        "There is no temporary folder outside of the folders that trials must not change.",
        "Set TMPDIR to a writable folder outside of the working directory and of HOME.",
    )
