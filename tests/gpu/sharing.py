"""The least memory found by a search, and a real run in no more beside a neighbour with all the rest of the card.

    python -m tests.gpu.sharing studies/resnet50/train.py --memory-cap 24GiB --time 3m --seconds 180

for a script that takes `--seconds` and prints `samples_per_second=`. Prints one JSON document: the search's memory, the
rates of a run alone and of a run with `--share` beside the neighbour, and the peak of the latter by NVML.
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
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from autotune.runner.devices import cuda_devices, used_bytes
from autotune.units import MIB
from tests.gpu.bench import SCRIPTS, variables_of_a_child

RATE = re.compile(r"samples_per_second=([0-9.]+)")
ROOM_BYTES = 64 * MIB
"""Left free beside the run's own figure: CUDA hands out memory in pieces."""


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


def train(script: Path, work: Path, seconds: float, *options: str) -> dict[str, Any]:
    """A real run of the tuned script: exit code, rate, and how much memory of the card it took by NVML."""
    device = cuda_devices()[0]
    before, peak = used_bytes(device) or 0, 0
    command = [sys.executable, "-m", "autotune", "run", script.name, "--config", str(work / "tuned.yaml"), *options]
    command += ["--", "--seconds", str(seconds)]
    with tempfile.TemporaryFile("w+") as printed:
        process = subprocess.Popen(
            command, cwd=script.parent, env=variables_of_a_child(), stdout=printed, stderr=subprocess.STDOUT
        )
        while process.poll() is None:
            peak = max(peak, (used_bytes(device) or 0) - before)
            time.sleep(0.1)
        printed.seek(0)
        text = printed.read()
    rates = RATE.findall(text)
    return {
        "exit_code": process.returncode,
        "samples_per_second": float(rates[-1]) if rates else None,
        "peak_bytes": peak,
        "said": text[-2000:],
    }


def measured(script: Path, work: Path, seconds: float, *options: str) -> dict[str, Any]:
    """Everything: the search, a run alone, and a run that shares the card."""
    found = search(script, work, *options)
    memory = found["memory"]
    alone = train(script, work, min(20.0, seconds))
    with neighbour(memory["reserved_bytes"] + ROOM_BYTES) as left:
        shared = train(script, work, seconds, "--share")
    return {"search": found, "alone": alone, "left_bytes": left, "shared": shared}


def main() -> int:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("script", type=Path)
    parser.add_argument("--memory-cap", default="90%")
    parser.add_argument("--time", default="3m")
    parser.add_argument("--seconds", type=float, default=180.0, help="of the run beside the neighbour")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        figures = measured(
            args.script.resolve(), Path(work), args.seconds, "--memory-cap", args.memory_cap, "--time", args.time
        )
    print(json.dumps(figures, indent=1))
    return int(figures["shared"]["exit_code"])


if __name__ == "__main__":
    sys.exit(main())
