"""What share of a whole search is measuring."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from autotune.model.result import TrialResult
from autotune.report.parts import MEASURING, seconds_by_part
from autotune.store.repository import Repository

STUDY = Path(__file__).resolve().parents[3] / "studies" / "jpeg_cnn"
SHARE = 0.75
"""Least share of the wall time that is to be warm-up and windows."""


def share(database: Path | None) -> str:
    """The section on a search of `studies/jpeg_cnn`.

    Args:
        database: Of a finished search of it, whose study is the only one there; None = search now.
    """
    if database is not None:
        return _section(database)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / STUDY.name
        shutil.copytree(
            STUDY, folder, ignore=shutil.ignore_patterns("studies", "data*", "__pycache__", "autotune.yaml")
        )
        command = [sys.executable, "-m", "autotune", "search", "train.py", "--quiet"]
        subprocess.run(command, cwd=folder, check=True)
        return _section(folder / "studies" / "autotune.db")


def _section(database: Path) -> str:
    with Repository.open(f"sqlite:///{database.resolve()}", must_exist=True) as repository:
        (study,) = repository.studies()
        trials, finals = repository.trials(study.name), repository.finals(study.name)
    results: list[TrialResult] = [*(trial.result for trial in trials), *(final.result for final in finals)]
    parts = seconds_by_part(results)
    spent_s = study.spent_s
    parts["probe and between trials"] = max(0.0, spent_s - sum(parts.values()))
    measuring_s = sum(parts.get(name, 0.0) for name in MEASURING)
    starts = ", ".join(f"{count} {kind}" for kind, count in Counter(result.start for result in results).items())
    rows = [f"| {name} | {total_s:.1f} | {total_s / spent_s:.1%} |" for name, total_s in parts.items()]
    return "\n".join(
        [
            "## A default search of studies/jpeg_cnn\n",
            f"{len(trials)} trials and {len(finals)} finals in {spent_s:.0f} s; starts: {starts}.\n",
            "| part | s | share of the wall time |",
            "|---|---|---|",
            *rows,
            "",
            f"Warm-up and windows: {measuring_s / spent_s:.0%} of the wall time; at least {SHARE:.0%} is wanted.",
        ]
    )
