"""A whole search on a CUDA device, and what it is worth outside of the tuner: figures for a study's README.

Run from the repository's root, for a study whose script takes `--seconds` and prints `samples_per_second=`:

    python -m tests.gpu.study resnet50 --time 4m --expert="--workers 16 --pin-memory --persistent-workers --bf16"

The script as it is, with the arguments that an expert would give by hand, with those for bf16 alone, and `autotune run`
with the tuned config train in turns, in rounds of random order. What is printed, and written to OUT as JSON: the
search's own document and every trial of it, rates and ratios with their intervals, the device's utilization and memory
by NVML while they ran.

With `--work FOLDER` a call goes on where the last one with the same folder stopped; with `--limit-s` it begins nothing
that it could not end in time, and exits with 3 when something is missing.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import nullcontext
from importlib.metadata import version
from pathlib import Path
from typing import Any

from autotune.host import usable_cpus
from autotune.measure.paired import MIN_COMMON_ROUNDS, Final, compare
from autotune.runner.devices import cuda_devices, state, used_bytes
from autotune.units import format_bytes

STUDIES = Path(__file__).resolve().parents[2] / "studies"
RATE = re.compile(r"samples_per_second=([0-9.]+)")
LOOK_EVERY_S = 0.1
COUNTED_SHARE = 0.6
"""Of a run's seconds of training, its last: the utilization is theirs, without start and first steps."""
START_S = 75.0
"""That a run takes beside its training, at most: imports, data, compilation, its workers' end."""
KINDS = ("default", "expert", "bf16", "tuned")
PAIRS = (("tuned", "default"), ("tuned", "expert"), ("expert", "default"), ("bf16", "default"))
INCOMPLETE = 3


def search(folder: Path, work: Path, args: argparse.Namespace) -> dict[str, Any]:
    """The document of a search in the study's folder, begun or gone on with, and how it and its trials went; its talk
    goes to our standard error."""
    kept = work / "search.json"
    if kept.exists():
        return dict(json.loads(kept.read_text()))
    name, storage = f"gpu-{folder.name}", ["--storage", f"sqlite:///{work}/study.db"]
    if (work / "study.db").exists():
        command = [sys.executable, "-m", "autotune", "resume", name, "--json", *storage]
    else:
        command = [sys.executable, "-m", "autotune", "search", "train.py", "--study", name, "--json", *storage]
        command += ["--out", str(work / "tuned.yaml"), "--time", args.time]
        command += ["--memory-cap", args.memory_cap] if args.memory_cap else []
        command += [*shlex.split(args.search), *(["--", *shlex.split(args.script)] if args.script else [])]
    said = document_of(command, folder)
    shown = document_of([sys.executable, "-m", "autotune", "studies", "show", name, "--json", *storage], folder)
    course = {part: shown[part] for part in ("spent_s", "seconds_by_part", "trials")}
    found = {"command": shlex.join(command[1:]), **said, "course": course}
    kept.write_text(json.dumps(found))
    return found


def document_of(command: list[str], folder: Path) -> dict[str, Any]:
    """The JSON document that a command prints."""
    ended = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, check=False)
    if ended.returncode:
        raise SystemExit(f"{shlex.join(command)} ended with {ended.returncode}")
    return dict(json.loads(ended.stdout))


def train(command: list[str], folder: Path, seconds: float) -> dict[str, float]:
    """One run: its own rate, and what NVML saw of the device meanwhile."""
    device = cuda_devices()[0]
    before = used_bytes(device) or 0
    looks: list[tuple[float, float]] = []
    trained_at = None
    peak_bytes = 0
    with tempfile.TemporaryFile("w+") as printed:
        process = subprocess.Popen(command, cwd=folder, stdout=printed, stderr=subprocess.STDOUT)
        while process.poll() is None:
            seen = state(device)
            if trained_at is None and seen is not None and seen.utilization is not None:
                looks.append((time.monotonic(), seen.utilization))
            peak_bytes = max(peak_bytes, (used_bytes(device) or 0) - before)
            if trained_at is None and RATE.search(_written(printed)):
                trained_at = time.monotonic()
            time.sleep(LOOK_EVERY_S)
        text = _written(printed)
    found = RATE.findall(text)
    if process.returncode or not found:
        raise SystemExit(f"{shlex.join(command)} ended with {process.returncode}:\n{text}")
    end = trained_at or time.monotonic()
    busy = [share for moment, share in looks if end - COUNTED_SHARE * seconds <= moment <= end]
    return {
        "samples_per_second": float(found[-1]),
        "utilization": statistics.fmean(busy) if busy else 0.0,
        "peak_bytes": peak_bytes,
    }


def _written(printed: Any) -> str:
    """All that the run has printed: read at a place of our own, since the run's end shares the file's position."""
    size = os.fstat(printed.fileno()).st_size
    return os.pread(printed.fileno(), size, 0).decode(errors="replace")


def train_in_turns(folder: Path, work: Path, args: argparse.Namespace, ends_at: float) -> list[dict[str, Any]]:
    """Every run that there is, of every kind by round; those that time is left for are made."""
    arguments = [*shlex.split(args.script), "--seconds", str(args.seconds)]
    alone = [sys.executable, "train.py", *arguments]
    config = ["--config", str(work / "tuned.yaml"), "--", *arguments]
    commands = {
        "default": alone,
        "expert": [*alone, *shlex.split(args.expert)],
        "bf16": [*alone, *shlex.split(args.bf16)],
        "tuned": [sys.executable, "-m", "autotune", "run", "train.py", *config],
    }
    kinds = kinds_of(args)
    kept = work / "runs.jsonl"
    runs = [json.loads(line) for line in kept.read_text().splitlines()] if kept.exists() else []
    rng = random.Random(0)
    for number in range(args.rounds):
        for kind in rng.sample(kinds, len(kinds)):
            if any((run["round"], run["kind"]) == (number, kind) for run in runs):
                continue
            if time.monotonic() + args.seconds + START_S > ends_at:
                return runs
            run = {"round": number, "kind": kind, "command": shlex.join(commands[kind][1:])}
            runs.append(run | train(commands[kind], folder, args.seconds))
            with kept.open("a") as rows:
                rows.write(json.dumps(runs[-1]) + "\n")
            print(runs[-1], file=sys.stderr, flush=True)
    return runs


def kinds_of(args: argparse.Namespace) -> list[str]:
    """What is compared: the script as it is, the tuned config, and what arguments were given for."""
    return [kind for kind in KINDS if getattr(args, kind, True)]


def compared(runs: list[dict[str, Any]]) -> dict[str, list[float]]:
    """Ratios of the kinds with their intervals, of the rounds that are whole."""
    finals = [
        Final(
            round=run["round"],
            candidate=KINDS.index(run["kind"]),
            samples_per_second=run["samples_per_second"],
            peak_memory_bytes=int(run["peak_bytes"]),
            feasible=True,
        )
        for run in runs
    ]
    num_rounds = {kind: sum(run["kind"] == kind for run in runs) for kind in KINDS}
    ratios = {}
    for kind, against in PAIRS:
        if min(num_rounds[kind], num_rounds[against]) >= MIN_COMMON_ROUNDS:
            found = compare(finals, KINDS.index(kind), KINDS.index(against))
            ratios[f"{kind} / {against}"] = [found.ratio, found.low, found.high]
    return ratios


def report(figures: dict[str, Any]) -> str:
    """The figures as Markdown."""
    lines = ["| | samples/s (median) | in the rounds | GPU utilization | peak by NVML |", "|---|---|---|---|---|"]
    for kind in KINDS:
        runs = [run for run in figures["runs"] if run["kind"] == kind]
        if runs:
            rates = [run["samples_per_second"] for run in runs]
            busy = statistics.fmean(run["utilization"] for run in runs)
            peak = format_bytes(int(max(run["peak_bytes"] for run in runs)))
            each = ", ".join(f"{rate:,.0f}" for rate in rates)
            lines.append(f"| {kind} | {statistics.median(rates):,.0f} | {each} | {busy:.0%} | {peak} |")
    lines += [f"{name}: {ratio:.3f} [{low:.3f}, {high:.3f}]" for name, (ratio, low, high) in figures["ratios"].items()]
    return "\n".join([*lines, course_text(figures["search"])])


def course_text(found: dict[str, Any]) -> str:
    """How a search went, in one sentence."""
    course, counts = found["course"], found["trials"]
    peaks = [trial["peak_memory_bytes"] or 0 for trial in course["trials"]]
    return (
        f"search: {course['spent_s']:.0f} s, {found['measuring_s'] / course['spent_s']:.0%} of it measuring; "
        f"{counts['total']} trials, {counts['infeasible']} infeasible; none held more than "
        f"{format_bytes(max(peaks))} of {format_bytes(found['memory_cap_bytes'])}"
    )


def main() -> int:
    """Searches, compares, prints and writes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", help="name of a folder in studies/")
    parser.add_argument("--time", default="4m", help="of the search")
    parser.add_argument("--memory-cap", default="", help="of the search; without it the study's own")
    parser.add_argument("--search", default="", help="more options of the search")
    parser.add_argument("--script", default="", help="arguments of the script, in all runs")
    parser.add_argument("--expert", default="", help="arguments that an expert would give the script by hand")
    parser.add_argument("--bf16", default="", help="arguments by which the script trains in bf16, and nothing else")
    parser.add_argument("--seconds", type=float, default=15.0, help="of training, in every run of the comparison")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--work", type=Path, help="folder that keeps database, config and runs")
    parser.add_argument("--limit-s", type=float, default=float("inf"))
    parser.add_argument("--out", type=Path, default=Path("gpu-study.json"))
    args = parser.parse_args()
    ends_at = time.monotonic() + args.limit_s
    folder = STUDIES / args.study
    device = cuda_devices()[0]
    with tempfile.TemporaryDirectory() if args.work is None else nullcontext(args.work) as name:
        work = Path(name).resolve()
        work.mkdir(parents=True, exist_ok=True)
        figures: dict[str, Any] = {
            "command": shlex.join(sys.argv),
            "device": device.name,
            "driver": device.driver,
            "torch": version("torch"),
            "usable_cpus": usable_cpus(),
            "date": time.strftime("%Y-%m-%d"),
        }
        figures["search"] = search(folder, work, args)
        figures["config"] = (work / "tuned.yaml").read_text()
        figures["runs"] = train_in_turns(folder, work, args, ends_at)
        figures["ratios"] = compared(figures["runs"])
    args.out.write_text(json.dumps(figures, indent=1))
    print(report(figures))
    return 0 if len(figures["runs"]) == args.rounds * len(kinds_of(args)) else INCOMPLETE


if __name__ == "__main__":
    sys.exit(main())
