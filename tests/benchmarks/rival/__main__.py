"""Compares autotune with pytorch-autotune on the three example models of pytorch-autotune, each with a loader.

    python -m tests.benchmarks.rival --models resnet18 transformer --out rival.json
    python -m tests.benchmarks.rival --models resnet18 --kinds default compile ours --rounds 3
    python -m tests.benchmarks.rival --tiny --time 60 --seconds 2

A search of autotune reads `train.py` alone, and `train_by_rival.py` calls pytorch-autotune as its documentation shows.
Afterwards all variants train in turns, outside of either search, and print their own rates: the script as it is,
plainly compiled, by the rival's choice with the script's loader, by the rival's choice with a loader as large as the
machine (`rival_fed`), and by `autotune run`. The result is one document of JSON. A second call with the same --work
goes on where the first has ended. A model takes about seven minutes on a GPU.

Kinds without the rival need neither its package nor its search, take four minutes, and all train in every round: the
second line shows how far the tuned settings lead a plain call of torch.compile on a launch-bound model.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import nullcontext
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from autotune.host import usable_cpus
from tests.street.runner import tuner_commit

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[2]
MODELS = ("resnet50", "resnet18", "transformer")
ONCE = ("default", "compile")
"""Variants with a single run, for the scale."""
OURS = "ours"
OF_RIVAL = frozenset(("rival", "rival_fed"))
TURNS = ("rival", "rival_fed", OURS)
RATE = re.compile(r"samples_per_second=([0-9.]+)")
LONGEST_RUN_S = 420.0
TAIL = 1500
"""Characters of a failed command's output to keep."""


class Comparison:
    """The searches and runs of one model.

    Args:
        model: Name of the model.
        work: Folder for scripts, results and configs.
        args: The command's options.
    """

    def __init__(self, model: str, work: Path, args: argparse.Namespace) -> None:
        self._args, self._work = args, work / model
        self._work.mkdir(parents=True, exist_ok=True)
        for name in ("train.py", "train_by_rival.py"):
            shutil.copy(HERE / name, self._work / name)
        self._script = ["--model", model, *(["--tiny"] if args.tiny else [])]
        self._fed = ["--workers", str(max(1, int(usable_cpus()))), "--pin-memory"]
        self._environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])]),
            "PYTORCH_AUTOTUNE_CACHE": str(self._work / "rival" / "cache.json"),
        }

    def figures(self) -> dict[str, Any]:
        """Both searches, and the rates of all variants."""
        found = {"rival_search": self._kept("rival_search", self._rival_search)} if self._has_rival else {}
        if OURS in self._args.kinds:
            found["our_search"] = self._kept("our_search", self._our_search)
        runs = self._runs()
        rates = {kind: [run["rate"] for run in runs if run["kind"] == kind and run["rate"]] for kind in (*ONCE, *TURNS)}
        medians = {kind: statistics.median(each) for kind, each in rates.items() if each}
        ratios = {
            f"{OURS} / {kind}": medians[OURS] / medians[kind] for kind in medians if kind != OURS and OURS in medians
        }
        return {**found, "runs": runs, "samples_per_second": medians, "ratios": ratios}

    @property
    def _has_rival(self) -> bool:
        """Whether the rival takes part."""
        return not OF_RIVAL.isdisjoint(self._args.kinds)

    def _rival_search(self) -> dict[str, Any]:
        report = self._work / "rival.json"
        command = [sys.executable, "train_by_rival.py", *self._script, "--budget", str(self._args.budget)]
        ended = self._run([*command, "--report", str(report)])
        if not report.exists():
            return {**ended, "refused": "the search failed"}
        found = dict(json.loads(report.read_text()))
        refused = [trial for trial in found["trials"] if trial["status"] != "ok"]
        return {**found, "wall_s": ended["wall_s"], "refused": refused}

    def _our_search(self) -> dict[str, Any]:
        command = [sys.executable, "-m", "autotune", "search", "train.py", "--json", "--time", f"{self._args.time}s"]
        command += ["--study", "ours", "--storage", f"sqlite:///{self._work}/study.db", "--out", "tuned.yaml"]
        ended = self._run([*command, "--", *self._script])
        try:
            found = dict(json.loads(ended.pop("said")))
        except ValueError:
            return {**ended, "refused": "the search failed"}
        show = [sys.executable, "-m", "autotune", "studies", "show", "ours", "--json"]
        shown = self._run([*show, "--storage", f"sqlite:///{self._work}/study.db"])["said"]
        course = json.loads(shown) if shown.startswith("{") else {}
        return {"wall_s": ended["wall_s"], **found, "course": course}

    def _runs(self) -> list[dict[str, Any]]:
        kept = self._work / "runs.jsonl"
        runs = [json.loads(line) for line in kept.read_text().splitlines()] if kept.exists() else []
        rng = random.Random(0)
        for number in range(self._args.rounds):
            first, turns = (ONCE, TURNS) if self._has_rival else ((), tuple(self._args.kinds))
            kinds = [*(first if number == 0 else ()), *rng.sample(turns, len(turns))]
            for kind in kinds:
                if kind not in self._args.kinds or any((r["round"], r["kind"]) == (number, kind) for r in runs):
                    continue
                runs.append({"round": number, "kind": kind, **self._train(kind)})
                with kept.open("a") as rows:
                    rows.write(json.dumps(runs[-1]) + "\n")
                print(runs[-1], file=sys.stderr, flush=True)
        return runs

    def _train(self, kind: str) -> dict[str, Any]:
        script = [*self._script, "--seconds", str(self._args.seconds)]
        config = ["--config", "tuned.yaml", "--", *script]
        commands = {
            "default": ["train.py", *script],
            "compile": ["train.py", *script, "--compile"],
            "rival": ["train_by_rival.py", *script],
            "rival_fed": ["train_by_rival.py", *script, *self._fed],
            "ours": ["-m", "autotune", "run", "train.py", *config],
        }
        ended = self._run([sys.executable, *commands[kind]])
        found = RATE.findall(ended["said"])
        if ended["code"] or not found:
            return {"rate": None, **ended}
        return {"rate": float(found[-1]), "wall_s": ended["wall_s"]}

    def _kept(self, name: str, make: Any) -> dict[str, Any]:
        """The stored figures of an earlier call, or new figures."""
        file = self._work / f"{name}.kept.json"
        if not file.exists():
            file.write_text(json.dumps(make()))
        return dict(json.loads(file.read_text()))

    def _run(self, command: list[str]) -> dict[str, Any]:
        """Runs a command to its end: exit code, seconds, standard output, and the end of its talk after a failure."""
        print(" ".join(command[1:]), file=sys.stderr, flush=True)
        began = time.monotonic()
        try:
            ended = subprocess.run(
                command,
                cwd=self._work,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
                timeout=LONGEST_RUN_S,
            )
            code, said, talk = ended.returncode, ended.stdout, ended.stderr
        except subprocess.TimeoutExpired:
            code, said, talk = -1, "", f"still running after {LONGEST_RUN_S:.0f} s"
        found: dict[str, Any] = {"code": code, "wall_s": time.monotonic() - began, "said": said}
        if code:
            print(talk[-TAIL:], file=sys.stderr, flush=True)
            found["talk"] = talk[-TAIL:]
        return found


def installed(package: str) -> str | None:
    """The version of a package; None without the package."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def options() -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--kinds", nargs="+", choices=(*ONCE, *TURNS), default=[*ONCE, *TURNS])
    parser.add_argument("--time", type=int, default=180, help="seconds of autotune's search")
    parser.add_argument("--budget", type=int, default=120, help="seconds of the rival's search, 120 by its word `fast`")
    parser.add_argument("--seconds", type=float, default=5.0, help="of training in each run of the comparison")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--tiny", action="store_true", help="small models, for a CPU")
    parser.add_argument("--work", type=Path, help="folder for all results, to go on with")
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


def main() -> int:
    """Compares, and prints the document."""
    args = options()
    with tempfile.TemporaryDirectory() if args.work is None else nullcontext(args.work) as name:
        work = Path(name).resolve()
        figures = {
            "versions": {each: installed(each) for each in ("torch", "pytorch-autotune")},
            "usable_cpus": usable_cpus(),
            "date": time.strftime("%Y-%m-%d"),
            "autotune": tuner_commit(),
            "models": {model: Comparison(model, work, args).figures() for model in args.models},
        }
    text = json.dumps(figures, indent=1)
    if args.out is not None:
        args.out.write_text(text)
    print(text)
    return 0 if all(each["ratios"] for each in figures["models"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
