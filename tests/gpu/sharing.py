"""The least memory found by searches, and real runs in no more beside a neighbour with all the rest of the card.

    python -m tests.gpu.sharing studies/{gpt2,char_gpt,resnet50}/train.py --memory-cap 24GiB 90% --seconds 180

for scripts that take `--seconds` and print `samples_per_second=`. A search for each script; each script trains alone,
and with `--share` beside a neighbour that holds all other memory; at last all train at once with `--share`, and the
neighbour holds what is left. Prints one JSON document: the searches, and rates and peaks by NVML of all runs.
A second call with the same --work does not search again.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from autotune.runner.devices import cuda_devices, used_bytes
from autotune.units import MIB
from tests.gpu.bench import SCRIPTS, variables_of_a_child

RATE = re.compile(r"samples_per_second=([0-9.]+)")
ROOM_BYTES = 64 * MIB
"""Left free beside the run's own figure: CUDA hands out memory in pieces."""
SHORT_S = 20.0
"""Length of a run for a rate."""


def search(script: Path, work: Path, *options: str) -> dict[str, Any]:
    """The document of a search; its talk goes to our standard error."""
    command = [sys.executable, "-m", "autotune", "search", script.name, "--json", "--device", "cuda"]
    command += ["--storage", f"sqlite:///{work}/study.db", "--out", str(work / "tuned.yaml"), *options]
    ended = subprocess.run(command, cwd=script.parent, env=variables_of_a_child(), stdout=subprocess.PIPE, check=True)
    return dict(json.loads(ended.stdout))


@contextmanager
def neighbour(leave_bytes: int) -> Iterator[int]:
    """A process with all memory of the card but so many bytes; gives the bytes that it left."""
    command = [sys.executable, str(SCRIPTS / "fills.py"), str(leave_bytes)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        word, _, left = process.stdout.readline().partition(" ")
        if word != "ready":
            raise RuntimeError("the neighbour found no memory")
        yield int(left)
        process.stdin.close()


class Run:
    """A real run of a tuned script in the background."""

    def __init__(self, script: Path, work: Path, seconds: float, *options: str) -> None:
        self._printed = tempfile.TemporaryFile("w+")  # noqa: SIM115 -- closed by `ended`
        command = [sys.executable, "-m", "autotune", "run", script.name, "--config", str(work / "tuned.yaml"), *options]
        self._process = subprocess.Popen(
            [*command, "--", "--seconds", str(seconds)],
            cwd=script.parent,
            env=variables_of_a_child(),
            stdout=self._printed,
            stderr=subprocess.STDOUT,
        )

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def ended(self) -> dict[str, Any]:
        """Waits for the end; exit code, rate, and the end of what the run printed."""
        exit_code = self._process.wait()
        with self._printed as printed:
            printed.seek(0)
            text = printed.read()
        rates = RATE.findall(text)
        rate = float(rates[-1]) if rates else None
        return {"exit_code": exit_code, "samples_per_second": rate, "said": text[-2000:]}


def train(script: Path, work: Path, seconds: float, *options: str) -> dict[str, Any]:
    """A real run of the tuned script: exit code, rate, and how much memory of the card it took by NVML."""
    device = cuda_devices()[0]
    before, peak = used_bytes(device) or 0, 0
    run = Run(script, work, seconds, *options)
    while run.is_running:
        peak = max(peak, (used_bytes(device) or 0) - before)
        time.sleep(0.1)
    return {**run.ended(), "peak_bytes": peak}


def kept_search(script: Path, work: Path, *options: str) -> dict[str, Any]:
    """The document of the search in this folder; searches when there is none."""
    work.mkdir(parents=True, exist_ok=True)
    kept = work / "found.json"
    if not kept.exists():
        kept.write_text(json.dumps(search(script, work, *options)))
    return dict(json.loads(kept.read_text()))


def measured(script: Path, work: Path, seconds: float, *options: str) -> dict[str, Any]:
    """The search, a run alone, and a run that shares the card."""
    found = kept_search(script, work, *options)
    alone = train(script, work, min(SHORT_S, seconds))
    with neighbour(found["memory"]["reserved_bytes"] + ROOM_BYTES) as left:
        shared = train(script, work, seconds, "--share")
    return {"search": found, "alone": alone, "left_bytes": left, "shared": shared}


def at_once(works: dict[str, tuple[Path, Path]], need_bytes: int, seconds: float) -> dict[str, Any]:
    """Runs of all scripts with `--share` at the same time, beside a neighbour with all memory that they do not need."""
    with neighbour(need_bytes) as left:
        runs = {name: Run(script, work, seconds, "--share") for name, (script, work) in works.items()}
        return {"left_bytes": left, **{name: run.ended() for name, run in runs.items()}}


def all_parts(args: argparse.Namespace, root: Path) -> dict[str, Any]:
    """The figures of all parts that were asked for, by script and cap."""
    caps = {cap: cap.strip("%") for cap in args.memory_cap}
    works = {
        f"{script.parent.name}-{short}": (script.resolve(), root / f"{script.parent.name}-{short}", cap)
        for cap, short in caps.items()
        for script in args.scripts
    }
    figures: dict[str, Any] = {}
    for name, (script, work, cap) in works.items():
        options = ("--memory-cap", cap, "--time", args.time, *args.search_options.split())
        if "pairs" in args.parts:
            figures[name] = measured(script, work, SHORT_S, *options)
        else:
            figures[name] = {"search": kept_search(script, work, *options)}
    if "at_once" in args.parts:
        need = sum(each["search"]["memory"]["reserved_bytes"] + ROOM_BYTES for each in figures.values())
        runs = at_once({name: (script, work) for name, (script, work, _) in works.items()}, need, args.seconds)
        figures["at_once"] = runs
    return figures


def main() -> int:
    """Measures and prints; the number of failed runs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scripts", type=Path, nargs="+")
    parser.add_argument("--memory-cap", nargs="+", default=["90%"])
    parser.add_argument("--time", default="3m", help="of each search")
    parser.add_argument("--search-options", default="", help="further options of each search")
    parser.add_argument("--parts", nargs="*", choices=("pairs", "at_once"), default=["pairs", "at_once"])
    parser.add_argument("--seconds", type=float, default=180.0, help="of the runs at once beside the neighbour")
    parser.add_argument("--work", type=Path, help="folder for searches, to go on with")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() if args.work is None else nullcontext(args.work) as name:
        figures = all_parts(args, Path(name).resolve())
    print(json.dumps(figures, indent=1))
    runs = [run for each in figures.values() for run in each.values() if isinstance(run, dict)]
    return sum(run.get("exit_code", 0) != 0 for run in runs)


if __name__ == "__main__":
    sys.exit(main())
