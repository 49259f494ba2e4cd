"""Rates of a copy-bound script: as it is, with a prefetcher class of its own, and unedited under `stream_prefetch`.

    python -m tests.gpu.copying --seconds 10 --rounds 3
    python -m tests.gpu.copying --script=--pinned-data

A search first writes a config with `stream_prefetch` and `pin_memory` and nothing else. Then all kinds of runs are made
in turns, in random order. Prints one JSON document: the search in short, the rate of every run, and medians.
"""

from __future__ import annotations

import argparse
import json
import random
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from autotune.settings import SETTINGS, Group
from tests.gpu.bench import SCRIPTS, variables_of_a_child
from tests.gpu.sharing import RATE, search

SCRIPT = "copies.py"
BATCH_SIZE = 256
"""The script's own."""
AHEAD = {"stream_prefetch": "true", "pin_memory": "true"}


def only_ahead() -> list[str]:
    """Options of a search that tries copies ahead alone, for a script with its own batch size."""
    names = [each for each in SETTINGS if each.domain and each.group not in (Group.MEMORY, Group.THREADS)]
    fixed = {each.name: str(each.default).lower() for each in names}
    own = {
        "batch_size": str(BATCH_SIZE),
        "intra_op_threads": str(torch.get_num_threads()),
        "omp_wait_policy": "default",
    }
    return [word for name, value in {**fixed, **own, **AHEAD}.items() for word in ("--fix", f"{name}={value}")]


def rate(command: list[str], folder: Path) -> float:
    """Samples per second that a run prints at its end."""
    ended = subprocess.run(
        command,
        cwd=folder,
        env=variables_of_a_child(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    found = RATE.findall(ended.stdout)
    if ended.returncode or not found:
        raise SystemExit(f"{shlex.join(command)} ended with {ended.returncode}:\n{ended.stdout[-3000:]}")
    return float(found[-1])


def measured(folder: Path, seconds: float, rounds: int, time_limit: str, script: list[str]) -> dict[str, Any]:
    """Everything: the search, and the runs in turns."""
    found = search(folder / SCRIPT, folder, "--time", time_limit, *only_ahead(), "--", *script)
    config = (folder / "tuned.yaml").read_text()
    own = [sys.executable, SCRIPT, *script, "--seconds", str(seconds)]
    tuned = [sys.executable, "-m", "autotune", "run", SCRIPT, "--config", str(folder / "tuned.yaml"), "--", *own[2:]]
    kinds = {"plain": own, "pinned": [*own, "--pin-memory"], "prefetcher": [*own, "--prefetcher"], "autotune": tuned}
    rates: dict[str, list[float]] = {kind: [] for kind in kinds}
    for _ in range(rounds):
        for kind in random.sample(list(kinds), len(kinds)):
            rates[kind].append(rate(kinds[kind], folder))
            print(kind, rates[kind][-1], file=sys.stderr, flush=True)
    medians = {kind: statistics.median(each) for kind, each in rates.items()}
    return {
        "is_ahead": "stream_prefetch: true" in config,
        "search": {name: found.get(name) for name in ("status", "ratio", "reason")},
        "samples_per_second": rates,
        "medians": medians,
        "autotune / plain": medians["autotune"] / medians["plain"],
        "autotune / prefetcher": medians["autotune"] / medians["prefetcher"],
    }


def main() -> int:
    """Measures and prints; 1 where the search did not take copies ahead."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0, help="of training in every run")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--time", default="2m", help="of the search")
    parser.add_argument("--script", default="", help="arguments of the script, in the search and in all runs")
    args = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="copying-")).resolve()
    try:
        shutil.copy(SCRIPTS / SCRIPT, root)
        figures = measured(root, args.seconds, args.rounds, args.time, shlex.split(args.script))
    finally:
        shutil.rmtree(root, ignore_errors=True)
    print(json.dumps(figures, indent=1))
    return 0 if figures["is_ahead"] else 1


if __name__ == "__main__":
    sys.exit(main())
