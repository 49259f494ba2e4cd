"""What a trial costs beside its measurement: its start, forked against cold, and what stays behind.

    python -m tests.benchmarks.startup [PART ...] [--pairs 5] [--trials 30] [--database PATH] [--found PATH]

Parts: `first` (seconds to the end of the first step), `same` (losses of whole trials), `turns` (what a step
costs in trials that live side by side), `growth` (trials in a row), `preparation` (a script that works for seconds
before it trains, from its own beginning), `crashes` (from an error inside a trial to the next trial's start, over
`--crashes` of them), `rank_crashes` (the same of a spawned rank), `prepared_growth` (such trials in a row), `qualify`
(which of the repository's scripts begin in a way that trials can share; it goes on where it was ended if `--found`
names the same file again; `--device cuda --only studies/` asks about the studies on a GPU), `share` (a whole search of
studies/jpeg_cnn, 5 minutes; `--database` takes one that is finished), `hf` (GPT-2 by Hugging Face's Trainer; takes
transformers, accelerate and datasets; `--device cuda` for a GPU, `--size tiny` for a CPU). Without any all but `hf`
are measured.
`RESULTS.md` beside this file has a section for each; those of parts that were not asked for stay.
"""

from __future__ import annotations

import argparse
import os
import platform
import shlex
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from tests.benchmarks.startup.crashes import crashes, rank_crashes
from tests.benchmarks.startup.growth import growth
from tests.benchmarks.startup.qualify import qualify
from tests.benchmarks.startup.share import share
from tests.benchmarks.startup.starts import T_95, first_steps, hugging_face, preparation, same_training, side_by_side
from tests.benchmarks.startup.trials import CRASHING_JOB, CRASHING_RANKS, HF_JOB, JOB, PREPARING_JOB, open_trials
from tests.benchmarks.startup.turns import WITHIN_REACH

RESULTS = Path(__file__).with_name("RESULTS.md")
PARTS = (
    "first",
    "same",
    "turns",
    "growth",
    "preparation",
    "crashes",
    "rank_crashes",
    "prepared_growth",
    "qualify",
    "share",
    "hf",
)
DEFAULT_PARTS = PARTS[:-1]
FIRST = """## Seconds to the end of the first step

torch, torch._dynamo, sympy, numpy and PIL are imported."""
HEADING = "# What a trial costs beside its measurement\n\nBy `make bench-startup`; each part with its own command.\n"


def main() -> None:
    """Measures the parts that were asked for, and writes their sections."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.startup",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("parts", nargs="*", metavar="PART")
    parser.add_argument("--pairs", type=int, default=5, choices=[degrees + 1 for degrees in T_95])
    parser.add_argument("--trials", type=int, default=30, help="in a row")
    parser.add_argument("--crashes", type=int, default=20, help="for each kind of start")
    parser.add_argument("--database", type=Path, help="of a finished search of studies/jpeg_cnn")
    parser.add_argument("--found", type=Path, help="what `qualify` has found so far, and will")
    parser.add_argument(
        "--only", default="", metavar="WORD", help="scripts that `qualify` tries: with it in their names"
    )
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"], help="of `qualify` and `hf`")
    parser.add_argument("--size", default="gpt2", choices=["gpt2", "tiny"], help="of `hf`'s model")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    unknown = set(options.parts) - set(PARTS)
    if unknown:
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    parts = [part for part in PARTS if part in (options.parts or DEFAULT_PARTS)]
    for part in parts:
        _add(options.out, part, _measure(part, options))
    print(options.out.read_text())


def _measure(part: str, options: argparse.Namespace) -> str:
    """The section of a part."""
    if part == "share":
        return share(options.database)
    if part == "qualify":
        return qualify(options.found, options.device, options.only)
    if part == "hf":
        with open_trials(HF_JOB, options.size, device=options.device) as trials:
            return hugging_face(trials, options.pairs)
    if part == "turns":
        os.environ.setdefault("OMP_NUM_THREADS", "1")  # A second thread's work, and waits for it, are not its thread's.
    if part == "rank_crashes":
        with open_trials(CRASHING_RANKS) as trials:
            return rank_crashes(trials, options.crashes)
    if part == "crashes":
        with open_trials(CRASHING_JOB) as trials:
            return crashes(trials, options.crashes)
    wish = WITHIN_REACH if part == "turns" else None
    with open_trials(PREPARING_JOB if part.startswith("prepar") else JOB, wish=wish) as trials:
        if part == "first":
            return f"{FIRST}\n{first_steps(trials, options.pairs, 'forked')}"
        if part == "same":
            return same_training(trials, options.pairs)
        if part == "turns":
            return side_by_side(trials, options.pairs)
        if part == "preparation":
            return preparation(trials, options.pairs)
        return growth(trials, options.trials, "forked" if part == "growth" else "prepared")


def _add(path: Path, part: str, section: str) -> None:
    """Writes the report anew with that section: what was measured before is not lost with what comes after it."""
    sections = {**_known(path), part: f"{section}\n\n{_origin()}\n"}
    text = "\n".join([HEADING, *(f"<!-- {name} -->\n{sections[name]}" for name in PARTS if name in sections)])
    path.write_text(text)


def _known(path: Path) -> dict[str, str]:
    """The sections of an earlier report."""
    if not path.exists():
        return {}
    pieces = [piece.partition(" -->\n") for piece in path.read_text().split("<!-- ")[1:]]
    return {name: f"{body.rstrip()}\n" for name, _, body in pieces}


def _origin() -> str:
    """By which command, where and when."""
    command = f"python -m tests.benchmarks.startup {shlex.join(sys.argv[1:])}".strip()
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    machine = f"{names[0] if names else platform.machine()}, {len(os.sched_getaffinity(0))} usable cores"
    load = f"load {os.getloadavg()[0]:.1f} at the end"
    return f"`{command}`, {datetime.now(UTC):%Y-%m-%d}: {machine}, {load}, torch {version('torch')}."


if __name__ == "__main__":
    main()
