"""Five scripts of known sickness, each with its cure in it: what is said of them, and what following it gives."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune.model.diagnosis import Sickness

SCRIPTS = Path(__file__).parent / "scripts"
SICK: Mapping[str, Sickness] = {
    "loader": Sickness.LOADER,
    "compute": Sickness.COMPUTE,
    "host": Sickness.HOST,
    "small_files": Sickness.SMALL_FILES,
    "overhead": Sickness.OVERHEAD,
}
"""What each is sick of."""
CURED_WITH = {"num_workers": "--workers", "batch_size": "--batch-size"}
"""The argument of a cured script that takes what was advised."""
NUM_CPUS = 2
"""What a diagnosis advises depends on the cores: on a larger machine only so many are used."""
LIMIT_S = 300.0


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """A sick script, diagnosed and cured."""

    name: str
    sickness: str
    """What the first advice is against; empty where there is none."""
    action: str
    where: str
    promised: float | None
    rate: float
    cured_rate: float

    @property
    def gain(self) -> float:
        """Throughput of the cured script over that of the sick one."""
        return self.cured_rate / self.rate

    @property
    def is_right(self) -> bool:
        """Whether the first advice names the sickness."""
        return self.sickness == SICK[self.name]

    @property
    def is_kept(self) -> bool:
        """Whether the gain is the promised one within a factor of 1.5."""
        return self.promised is not None and 1 / 1.5 <= self.gain / self.promised <= 1.5


def diagnose(name: str, folder: Path, *arguments: str, scripts: Path = SCRIPTS) -> dict[str, Any]:
    """The document of a diagnosis of one of the scripts.

    Args:
        name: Of the script.
        folder: Where it runs; what it makes for itself stays there.
        arguments: Of the script.
        scripts: Where the script is.
    """
    cpus = sorted(os.sched_getaffinity(0))[:NUM_CPUS]
    command = [sys.executable, "-m", "autotune", "diagnose", str(scripts / f"{name}.py"), "--device", "cpu", "--json"]
    ended = subprocess.run(
        [*command, "--", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
        preexec_fn=lambda: os.sched_setaffinity(0, cpus),
    )
    assert ended.returncode == 0, ended.stderr
    return dict(json.loads(ended.stdout))


def arguments_of(advice: Mapping[str, Any]) -> list[str]:
    """What a cured script is told of an advice."""
    settings = advice["settings"]
    return [word for key, flag in CURED_WITH.items() if key in settings for word in (flag, str(settings[key]))]


def follow(name: str, folder: Path) -> Outcome:
    """Diagnoses a sick script, then measures its cured form as the first advice says."""
    sick = diagnose(name, folder)
    first = sick["advice"][0] if sick["advice"] else None
    words = arguments_of(first) if first is not None and first["sickness"] == SICK[name] else []
    cured = diagnose(name, folder, "--cured", *words)
    return Outcome(
        name=name,
        sickness=first["sickness"] if first is not None else "",
        action=first["action"] if first is not None else "",
        where=first["where"] if first is not None else "",
        promised=first["gain"] if first is not None else None,
        rate=sick["samples_per_second"],
        cured_rate=cured["samples_per_second"],
    )
