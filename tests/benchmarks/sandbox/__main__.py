"""What the sandbox costs: `python -m tests.benchmarks.sandbox [reading] [trials] [--turns N]`.

`reading` compares reads through the layers with plain reads, `trials` the start and rate of trials under each mode.

Many small files, a mapped file and a file that is read past the page cache, each in a fresh process, with layers and
without in turns. Printed are the shortest times, which other load on the machine lengthens least, and their ratio.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from autotune.protocol.codec import encode
from autotune.protocol.protection import Protection, ProtectionWish
from autotune.protocol.supervision import LayerPlan, SupervisorSpec
from autotune.sandbox.kept_whole import libraries
from autotune.sandbox.supervisor import main as run_supervisor
from autotune.sandbox.tree_removal import remove_tree
from tests.benchmarks.startup.trials import open_trials

NUM_FILES, FILE_BYTES = 20_000, 4096
LARGE_BYTES = 256 << 20
BLOCK_BYTES = 1 << 20
PARTS = ("reading", "trials")
WAYS = {
    "layers": ProtectionWish(mode=Protection.LAYERS),
    "layers, with the network": ProtectionWish(mode=Protection.LAYERS, keeps_network=True),
    "Landlock": ProtectionWish(mode=Protection.LANDLOCK),
    "none": ProtectionWish(mode=Protection.NONE),
}
"""Wishes for the protection of trials, by name."""


def read_small(folder: Path) -> None:
    """Opens and reads every small file, as a loader of images does."""
    for number in range(NUM_FILES):
        (folder / "small" / str(number % 100) / str(number)).read_bytes()


def read_mapped(folder: Path) -> None:
    """Touches every page of a mapped file."""
    with (folder / "large").open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        sum(mapped[::4096])


def read_direct(folder: Path) -> None:
    """Reads a file past the page cache."""
    descriptor = os.open(folder / "large", os.O_RDONLY | os.O_DIRECT)
    buffer = mmap.mmap(-1, BLOCK_BYTES)
    while os.readv(descriptor, [buffer]):
        pass
    os.close(descriptor)


def list_folders(folder: Path) -> None:
    """Lists and stats all entries, as the making of a dataset does."""
    for place, _, names in os.walk(folder / "small"):
        for name in names:
            Path(place, name).stat()


READINGS: dict[str, Callable[[Path], None]] = {
    "20,000 files of 4 KiB": read_small,
    "listing them": list_folders,
    "256 MiB mapped": read_mapped,
    "256 MiB by O_DIRECT": read_direct,
}


def measure(folder: Path) -> None:
    """Prints the seconds of every reading, each taken twice, of which the second counts: caches are warm."""
    seconds = {}
    for name, read in READINGS.items():
        read(folder)
        began = time.perf_counter()
        read(folder)
        seconds[name] = time.perf_counter() - began
    Path(sys.argv[3]).write_text(json.dumps(seconds))


def run_once(folder: Path, space: Path, *, has_layers: bool) -> dict[str, float]:
    """Seconds by reading, of one process under a supervisor, with layers or without."""
    trial = Path(tempfile.mkdtemp(dir=space))
    for name in ("root", "layer"):
        (trial / name).mkdir()
    plan = LayerPlan(
        root=str(trial / "root"),
        workspace=str(space),
        upper=str(trial / "layer"),
        plain=(str(trial),),
        read_only=libraries(sys.executable),
    )
    spec = SupervisorSpec(
        command=(sys.executable, "-m", "tests.benchmarks.sandbox", "measure", str(folder), str(trial / "found")),
        cwd=str(Path(__file__).parents[3]),
        layers=plan if has_layers else None,
        log=str(trial / "log"),
    )
    (trial / "spec").write_text(encode(spec))
    program = [sys.executable, "-m", "tests.benchmarks.sandbox", "supervise", str(trial / "spec")]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as supervisor:
        assert supervisor.stdout is not None
        ending = json.loads(supervisor.stdout.read())
        assert ending["status"] == 0, (ending, (trial / "log").read_text())
    found: dict[str, float] = json.loads((trial / "found").read_text())
    remove_tree(trial)
    return found


def compare(num_turns: int) -> None:
    """Prints a table of the shortest times, taken in turns."""
    folder = Path(tempfile.mkdtemp(dir=Path.home()))
    space = Path(tempfile.mkdtemp(dir="/var/tmp"))
    try:
        for number in range(NUM_FILES):
            place = folder / "small" / str(number % 100)
            place.mkdir(parents=True, exist_ok=True)
            (place / str(number)).write_bytes(os.urandom(FILE_BYTES))
        with (folder / "large").open("wb") as file:
            for _ in range(LARGE_BYTES // BLOCK_BYTES):
                file.write(os.urandom(BLOCK_BYTES))
        os.sync()
        found: dict[bool, list[dict[str, float]]] = {True: [], False: []}
        for turn in range(num_turns):
            for has_layers in (True, False) if turn % 2 else (False, True):
                found[has_layers].append(run_once(folder, space, has_layers=has_layers))
        for name in READINGS:
            with_s, without_s = (min(one[name] for one in found[how]) for how in (True, False))
            ratio = with_s / without_s
            sys.stdout.write(f"{name:24} {without_s:8.3f} s alone {with_s:8.3f} s in layers, ratio {ratio:.3f}\n")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        remove_tree(space)


def compare_trials(num_turns: int) -> None:
    """Prints a table of starts and rates of trials under each mode, taken in turns of random order."""
    starts: dict[tuple[str, str], list[float]] = {}
    rates: dict[str, list[float]] = {}
    with ExitStack() as stack:
        trials = {name: stack.enter_context(open_trials(wish=wish)) for name, wish in WAYS.items()}
        for turn in range(num_turns):
            for name in random.Random(turn).sample(sorted(trials), len(trials)):
                for kind in ("cold", "forked"):
                    starts.setdefault((name, kind), []).append(trials[name].first_step_s(kind))
                measured = trials[name].measured("forked").measurement
                assert measured is not None
                rates.setdefault(name, []).append(measured.samples_per_second)
    sys.stdout.write(
        "| protection | first step, cold | first step, forked | samples per second |\n| --- | --- | --- | --- |\n"
    )
    for name in WAYS:
        cold, forked = (starts[name, kind] for kind in ("cold", "forked"))
        sys.stdout.write(f"| {name} | {_spread(cold)} s | {_spread(forked)} s | {_spread(rates[name], 0)} |\n")


def _spread(values: Sequence[float], digits: int = 3) -> str:
    """Median, and in parentheses the smallest and the largest value."""
    return f"{median(values):,.{digits}f} ({min(values):,.{digits}f} to {max(values):,.{digits}f})"


def main() -> None:
    """Dispatches: `measure` and `supervise` are for the benchmark's own processes."""
    if sys.argv[1:2] == ["measure"]:
        measure(Path(sys.argv[2]))
    elif sys.argv[1:2] == ["supervise"]:
        run_supervisor(sys.argv[2])
    else:
        parser = argparse.ArgumentParser(description=__doc__)
        parser.add_argument("parts", nargs="*", choices=PARTS)
        parser.add_argument("--turns", type=int, default=7)
        asked = parser.parse_args()
        parts = asked.parts or PARTS
        if "reading" in parts:
            compare(asked.turns)
        if "trials" in parts:
            compare_trials(asked.turns)


if __name__ == "__main__":
    main()
