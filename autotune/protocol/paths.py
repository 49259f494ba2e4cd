"""Files of a trial, by name. The code of a fork server names the server's own files. Standard library only."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

PROFILE_FILES = ("trace.json", "functions.prof")
"""Of a diagnosis: torch's profiler, for chrome://tracing and Perfetto; Python's own, for snakeviz and pstats."""


class TrialPaths(NamedTuple):
    """Paths of the files in a trial's folder."""

    folder: Path

    def window(self, number: int) -> TrialPaths:
        """Files of a later measurement in the trial's process, counted from 1."""
        return TrialPaths(self.folder / "windows" / str(number))

    @property
    def job(self) -> Path:
        """The TrialJob as JSON."""
        return self.folder / "job.json"

    @property
    def log(self) -> Path:
        """Standard output and error of the script, bounded."""
        return self.folder / "output.log"

    @property
    def results(self) -> Path:
        """Folder with one result file per rank."""
        return self.folder / "results"

    def result(self, rank: int) -> Path:
        """The RankResult of one rank as JSON."""
        return self.results / f"rank-{rank}.json"

    @property
    def profiles(self) -> Path:
        """Folder of the profiles of a diagnosis."""
        return self.folder / "profiles"

    @property
    def progress(self) -> Path:
        """Small shared file with the trial's phase and the agreements of the ranks (`protocol.progress_marks`)."""
        return self.folder / "progress.bin"

    @property
    def layer(self) -> Path:
        """What the trial wrote: upper and work directories of its copy-on-write layer."""
        return self.folder / "layer"

    @property
    def temporary(self) -> Path:
        """TMPDIR of the trial."""
        return self.folder / "tmp"

    @property
    def supervisor(self) -> Path:
        """The SupervisorSpec as JSON."""
        return self.folder / "supervisor.json"

    @property
    def latest(self) -> Path:
        """In a prelude's folder: the folder of the latest trial forked from the prelude."""
        return self.folder / "latest"

    @property
    def prelude_socket(self) -> Path:
        """In a prelude's folder: socket of the tuner."""
        return self.folder / "seam"
