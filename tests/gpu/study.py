"""A whole search on a CUDA device, and what it is worth outside of the tuner: figures for a study's README.

Run from the repository's root, for a study whose script takes `--seconds` and prints `samples_per_second=`:

    python -m tests.gpu.study resnet50 --time 4m --expert="--workers 16 --pin-memory --persistent-workers --bf16"

The script as it is, with the arguments that an expert would give by hand, and `autotune run` with the tuned config
train in turns, in rounds of random order. What is printed, and written to OUT as JSON: the search's own document, rates
and ratios with their intervals, the device's utilization and memory by NVML while they ran.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from autotune.measure.paired import Final, compare
from autotune.runner.device import cuda_devices, state, used_bytes
from autotune.units import format_bytes

STUDIES = Path(__file__).resolve().parents[2] / "studies"
RATE = re.compile(r"samples_per_second=([0-9.]+)")
LOOK_EVERY_S = 0.1
LAST_SHARE = 0.4
"""Of a run: its utilization counts, when start and first steps are over."""
KINDS = ("default", "expert", "tuned")


def search(folder: Path, work: Path, args: argparse.Namespace) -> dict[str, Any]:
    """The document of a search in the study's folder; its talk goes to our standard error."""
    command = [sys.executable, "-m", "autotune", "search", "train.py", "--study", f"gpu-{folder.name}", "--json"]
    command += ["--storage", f"sqlite:///{work}/study.db", "--out", str(work / "tuned.yaml"), "--time", args.time]
    command += ["--memory-cap", args.memory_cap] if args.memory_cap else []
    command += [*shlex.split(args.search), *(["--", *shlex.split(args.script)] if args.script else [])]
    began = time.monotonic()
    ended = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, check=False)
    if ended.returncode:
        raise SystemExit(f"{shlex.join(command)} ended with {ended.returncode}")
    return {"command": shlex.join(command[1:]), "wall_s": time.monotonic() - began, **json.loads(ended.stdout)}


def train(command: list[str], folder: Path) -> dict[str, float]:
    """One run: its own rate, and what NVML saw of the device meanwhile."""
    device = cuda_devices()[0]
    before = used_bytes(device) or 0
    looks: list[tuple[float, float]] = []
    with tempfile.TemporaryFile("w+") as printed:
        process = subprocess.Popen(command, cwd=folder, stdout=printed, stderr=subprocess.STDOUT)
        while process.poll() is None:
            seen = state(device)
            share = seen.utilization if seen is not None else None
            looks.append((share or 0.0, float((used_bytes(device) or 0) - before)))
            time.sleep(LOOK_EVERY_S)
        printed.seek(0)
        text = printed.read()
    found = RATE.findall(text)
    if process.returncode or not found:
        raise SystemExit(f"{shlex.join(command)} ended with {process.returncode}:\n{text}")
    busy = [share for share, _ in looks[int((1 - LAST_SHARE) * len(looks)) : -5]]
    return {
        "samples_per_second": float(found[-1]),
        "utilization": statistics.fmean(busy) if busy else 0.0,
        "peak_bytes": max(held for _, held in looks),
    }


def compare_in_turns(folder: Path, work: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Rates of every kind by round, and ratios to the default with their intervals."""
    arguments = [*shlex.split(args.script), "--seconds", str(args.seconds)]
    alone = [sys.executable, "train.py", *arguments]
    config = ["--config", str(work / "tuned.yaml"), "--", *arguments]
    commands = {
        "default": alone,
        "expert": [*alone, *shlex.split(args.expert)],
        "tuned": [sys.executable, "-m", "autotune", "run", "train.py", *config],
    }
    kinds = [kind for kind in KINDS if kind != "expert" or args.expert]
    runs: dict[str, list[dict[str, float]]] = {kind: [] for kind in kinds}
    rng = random.Random(0)
    for number in range(args.rounds):
        for kind in rng.sample(kinds, len(kinds)):
            runs[kind].append(train(commands[kind], folder))
            print(f"round {number + 1} {kind}: {runs[kind][-1]}", file=sys.stderr, flush=True)
    finals = [
        Final(
            round=number,
            candidate=KINDS.index(kind),
            samples_per_second=run["samples_per_second"],
            peak_memory_bytes=int(run["peak_bytes"]),
            feasible=True,
        )
        for kind in kinds
        for number, run in enumerate(runs[kind])
    ]
    ratios = {}
    for kind, against in (("tuned", "default"), ("tuned", "expert"), ("expert", "default")):
        if kind in kinds and against in kinds:
            found = compare(finals, KINDS.index(kind), KINDS.index(against))
            ratios[f"{kind} / {against}"] = [found.ratio, found.low, found.high]
    return {"commands": {kind: shlex.join(commands[kind][1:]) for kind in kinds}, "runs": runs, "ratios": ratios}


def report(figures: dict[str, Any]) -> str:
    """The figures as Markdown."""
    lines = ["| | samples/s | GPU utilization | peak by NVML |", "|---|---|---|---|"]
    for kind, runs in figures["comparison"]["runs"].items():
        rate, busy = (statistics.fmean(run[key] for run in runs) for key in ("samples_per_second", "utilization"))
        peak = format_bytes(int(max(run["peak_bytes"] for run in runs)))
        lines.append(f"| {kind} | {rate:,.0f} | {busy:.0%} | {peak} |")
    lines += [
        f"{name}: {ratio:.2f} [{low:.2f}, {high:.2f}]"
        for name, (ratio, low, high) in figures["comparison"]["ratios"].items()
    ]
    return "\n".join(lines)


def main() -> None:
    """Searches, compares, prints and writes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", help="name of a folder in studies/")
    parser.add_argument("--time", default="4m", help="of the search")
    parser.add_argument("--memory-cap", default="", help="of the search; without it the study's own")
    parser.add_argument("--search", default="", help="more options of the search")
    parser.add_argument("--script", default="", help="arguments of the script, in all runs")
    parser.add_argument("--expert", default="", help="arguments that an expert would give the script by hand")
    parser.add_argument("--seconds", type=float, default=15.0, help="of training, in every run of the comparison")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("gpu-study.json"))
    args = parser.parse_args()
    folder = STUDIES / args.study
    device = cuda_devices()[0]
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        figures: dict[str, Any] = {"device": device.name, "driver": device.driver, "date": time.strftime("%Y-%m-%d")}
        figures["search"] = search(folder, work, args)
        figures["config"] = (work / "tuned.yaml").read_text()
        figures["comparison"] = compare_in_turns(folder, work, args)
        # The raw reports of every trial, for a closer look.
        shutil.copy(work / "study.db", args.out.with_suffix(".db"))
    args.out.write_text(json.dumps(figures, indent=1))
    print(report(figures))


if __name__ == "__main__":
    main()
