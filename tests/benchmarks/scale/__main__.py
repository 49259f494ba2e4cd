"""Times of the verbs that read a large study, and of one proposal of its search."""

from __future__ import annotations

import argparse
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from autotune.search.study_search import Proposal
from autotune.store.repository import Repository
from tests.benchmarks.scale.made_up import STUDY, ending, open_search, write_database

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
        times = {name: _verb_times(words, path, folder, options.repeats) for name, (words, _) in VERBS.items()}
        first, times["one proposal"] = _proposal_times(path, Path(folder))
    limits = {**{name: limit_s for name, (_, limit_s) in VERBS.items()}, "one proposal": PROPOSAL_S}
    print(f"{'':14} {'wall':>8} {'processor':>10} {'limit':>7}")
    for name, taken in times.items():
        print(f"{name:14} {taken.wall_s:6.2f} s {taken.cpu_s:8.2f} s {limits[name]:5g} s")
    print(f"The first proposal of a resume, which reads all trials, took {first.wall_s:.1f} s.")
    sys.exit(any(taken.wall_s > limits[name] for name, taken in times.items()))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--database", type=Path, help="Kept, and used again where it is there already.")
    parser.add_argument("--repeats", type=int, default=3, help="Runs of each verb; the fastest counts.")
    return parser.parse_args()


@dataclass(frozen=True, order=True)
class Taken:
    """What something took. On a machine with neighbours the wall time is theirs as well."""

    wall_s: float
    cpu_s: float


def _verb_times(words: tuple[str, ...], path: Path, folder: str, repeats: int) -> Taken:
    """Of the fastest run of a verb, the interpreter's start included."""
    command = [sys.executable, "-m", "autotune", *words, "--storage", str(path.absolute())]
    found = []
    for _ in range(repeats):
        began, before = time.perf_counter(), _cpu_s(resource.RUSAGE_CHILDREN)
        subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        found.append(Taken(time.perf_counter() - began, _cpu_s(resource.RUSAGE_CHILDREN) - before))
    return min(found)


def _proposal_times(path: Path, folder: Path) -> tuple[Taken, Taken]:
    """Of the first proposal of a search that goes on, and the median of those that follow it."""
    copy = shutil.copy(path, folder / "asked.db")
    found = []
    with Repository.open(f"sqlite:///{copy}") as repository:
        began, before = time.perf_counter(), _cpu_s(resource.RUSAGE_SELF)
        search = open_search(repository)
        for _ in range(NUM_PROPOSALS + 1):
            proposal = search.ask()
            assert isinstance(proposal, Proposal), proposal
            found.append(Taken(time.perf_counter() - began, _cpu_s(resource.RUSAGE_SELF) - before))
            search.tell(proposal.number, ending(proposal.settings, proposal.number))
            began, before = time.perf_counter(), _cpu_s(resource.RUSAGE_SELF)
    return found[0], sorted(found[1:])[NUM_PROPOSALS // 2]


def _cpu_s(who: int) -> float:
    usage = resource.getrusage(who)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
