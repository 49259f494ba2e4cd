"""Times of the verbs that read a large study, and of one proposal of its search."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from autotune.store.repository import Repository
from tests.benchmarks.scale.made_up import STUDY, open_search, write_database

VERBS = {
    "studies list": (("studies", "list"), 1.0),
    "best": (("best", STUDY), 1.0),
    "report": (("report", STUDY, "--out", "report.html", "--force"), 10.0),
}
"""Words of each verb, and the seconds that it may take."""
PROPOSAL_S = 0.3
NUM_PROPOSALS = 5


def main() -> None:
    """Prints a line for each time; exits with 1 where one of them is too long."""
    options = _options()
    with tempfile.TemporaryDirectory() as folder:
        path = options.database or Path(folder, "scale.db")
        if not path.exists():
            began = time.perf_counter()
            write_database(path, options.trials)
            print(f"made {path} with {options.trials:,} trials in {time.perf_counter() - began:.0f} s", flush=True)
        is_too_long = False
        for name, (words, limit_s) in VERBS.items():
            taken_s = min(_verb_s(words, path, folder) for _ in range(options.repeats))
            is_too_long |= taken_s > limit_s
            print(f"{name:22} {taken_s:7.2f} s, at most {limit_s:g} s", flush=True)
        first_s, taken_s = _proposal_s(path)
        is_too_long |= taken_s > PROPOSAL_S
        print(
            f"{'one proposal':22} {taken_s:7.2f} s, at most {PROPOSAL_S:g} s (the first of a resume: {first_s:.2f} s)"
        )
    sys.exit(is_too_long)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--database", type=Path, help="Kept, and used again where it is there already.")
    parser.add_argument("--repeats", type=int, default=3, help="Runs of each verb; the fastest counts.")
    return parser.parse_args()


def _verb_s(words: tuple[str, ...], path: Path, folder: str) -> float:
    """Wall time of a verb, the interpreter's start included."""
    began = time.perf_counter()
    command = [sys.executable, "-m", "autotune", *words, "--storage", str(path.absolute())]
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    return time.perf_counter() - began


def _proposal_s(path: Path) -> tuple[float, float]:
    """Time of the first proposal of a search that goes on, and the median of those that follow it."""
    with Repository.open(f"sqlite:///{path.absolute()}") as repository:
        began = time.perf_counter()
        search = open_search(repository)
        times = []
        for _ in range(NUM_PROPOSALS):
            proposal = search.ask()
            times.append(time.perf_counter() - began)
            search._trials.fail(proposal.number, "made up", is_host_fault=False)  # type: ignore[union-attr]
            began = time.perf_counter()
    return times[0], sorted(times[1:])[(NUM_PROPOSALS - 1) // 2]


if __name__ == "__main__":
    main()
