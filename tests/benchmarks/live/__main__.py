"""Measures settings live and in fresh processes, in turns, and prints the ratio for every setting.

    python -m tests.benchmarks.live --device cpu
    python -m tests.benchmarks.live --device cuda --script train.py -- --epochs 90

Every setting of the script's space is changed alone, and 20 random pairs are changed together. Results are lines of
JSON at --out; a second call with the same file goes on where the first has ended, for machines with a limit per call.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from autotune.measure.window_stopping import WindowRule
from autotune.model.facts import ScriptFacts
from autotune.model.result import TrialResult
from autotune.protocol.codec import from_plain, to_plain
from autotune.runner.cold_runner import ColdRunner
from autotune.runner.devices import choose_device
from autotune.runner.fork_runner import ForkRunner
from autotune.runner.live_runner import LiveRunner
from autotune.runner.runner import Runner
from autotune.sandbox.workspace import Workspace
from autotune.settings import BY_NAME, Settings
from autotune.space.derive import derive_space
from autotune.space.search_space import SPLIT, SearchSpace
from autotune.study.jobs import Jobs
from autotune.study.target import make_target
from tests.benchmarks.live.tables import report
from tests.unit.facts import search_spec

JOB = Path(__file__).parent / "job.py"


def options_of(arguments: list[str]) -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.live", description=__doc__)
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--script", default=str(JOB), help="another script; its arguments follow --")
    parser.add_argument("--command", action="store_true", help="what follows -- is a whole command, such as torchrun")
    parser.add_argument("--nproc", type=int, default=1, help="ranks, by torchrun")
    parser.add_argument("--set", action="append", default=[], help="as of autotune search: compile=false,true")
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=1, help="times that each is measured in each way")
    parser.add_argument("--window-s", type=float, default=2.0, help="longest window")
    parser.add_argument("--limit-s", type=float, default=540.0, help="begin nothing new after so many seconds")
    parser.add_argument("--only", default="", help="names of settings, with commas")
    parser.add_argument("--live-only", action="store_true", help="without fresh processes: settings per minute")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", default="live.jsonl")
    parser.add_argument("arguments", nargs="*")
    return parser.parse_args(arguments)


def changes_of(space: SearchSpace, *, num_pairs: int, seed: int, only: str) -> list[dict[str, Any]]:
    """The baseline, every setting by itself at one or two other values, and pairs of settings."""
    chance = random.Random(seed)
    own = space.params(space.script_settings)
    alone: dict[str, list[dict[str, Any]]] = {}
    for name in space.searched:
        others = [value for value in space.allowed[name] if value != own.get(name)]
        if only and name not in only.split(","):
            continue
        chosen = [others[len(others) // 2], others[-1]] if len(others) > 2 else others
        alone[name] = [{name: value} for value in chosen]
    for name in ("prefetch_factor", "persistent_workers"):  # inert without workers
        workers = [value for value in space.allowed.get("num_workers", (0,)) if value]
        if name in alone and workers and not own.get("num_workers"):
            alone[name] = [{**change, "num_workers": workers[0]} for change in alone[name]]
    pairs = [
        {**first, **second}
        for (_, firsts), (_, seconds) in itertools.combinations(alone.items(), 2)
        for first in firsts
        for second in seconds
        if first.get("num_workers", 0) == second.get("num_workers", first.get("num_workers", 0))
    ]
    chance.shuffle(pairs)
    singles = [change for changes in alone.values() for change in changes]
    return [{}, *singles, *pairs[:num_pairs]]


def order_of(changes: list[dict[str, Any]], num_rounds: int, seed: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """All changes in random order, round by round; the script's own settings at begin, middle and end of each."""
    for number in range(num_rounds):
        chance = random.Random(f"{seed} {number}")
        others = changes[1:]
        chance.shuffle(others)
        half = len(others) // 2
        for change in ({}, *others[:half], {}, *others[half:], {}):
            yield number, change


class Bench:
    """A script after its probe, with the ways to measure its settings."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        script = Path(options.script).resolve()
        command = (sys.executable, str(script), *options.arguments)
        if options.command:
            command = tuple(options.arguments)
        elif options.nproc > 1:
            torchrun = (sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={options.nproc}")
            command = (*torchrun, "--standalone", str(script), *options.arguments)
        cwd = Path.cwd() if options.command else script.parent
        ranges = tuple(tuple(text.split("=", 1)) for text in options.set)
        self.spec = search_spec(
            command=command,
            cwd=str(cwd),
            device=options.device,
            start="live",
            ranges=ranges,
            num_processes_per_node=options.nproc,
            share_gpu=True,
        )
        self.device = choose_device(options.device)
        self.workspace = Workspace.open(None, cwd=cwd, command=command)
        self.target = make_target(self.spec, self.device)
        self.cold = ColdRunner(self.workspace, self.device)

    def probe(self) -> ScriptFacts:
        """The facts of the script."""
        handle = self.cold.start(Jobs(spec=self.spec, target=self.target).probe())
        handle.wait()
        result = handle.probe_result()
        self.workspace.probe_is_through()
        if result.facts is None:
            sys.exit(f"{result.reason}\n{result.log_tail}")
        return replace(result.facts, outside_allocator_bytes=result.outside_allocator_bytes)

    def measure(self, runner: Runner, jobs: Jobs, settings: Settings, *, is_live: bool) -> TrialResult:
        """The result of one measurement."""
        job = jobs.trial(settings)
        rule = WindowRule(half_width_ratio=0.005, min_window_s=1.0, max_window_s=self.options.window_s)
        request = replace(job.request, window=rule, incumbent_samples_per_second=None)
        run = runner.start(replace(job, request=request, serves=is_live))
        while not run.poll():
            time.sleep(0.02)
        return run.result()


def line_of(kind: str, number: int, change: dict[str, Any], result: TrialResult, began: float) -> dict[str, Any]:
    """A result as a line of JSON."""
    measurement = result.measurement
    return {
        "way": kind,
        "round": number,
        "change": change,
        "start": result.start.value,
        "start_reason": result.start_reason,
        "outcome": result.outcome.value,
        "why": result.why,
        "rate": measurement.steady_samples_per_second if measurement else None,
        "low": measurement.low if measurement else None,
        "high": measurement.high if measurement else None,
        "whole": measurement.samples_per_second if measurement else None,
        "ceiling": measurement.compute_samples_per_second if measurement else None,
        "peak_bytes": result.peak_memory_bytes,
        "host_bytes": result.peak_host_bytes,
        "durations_s": dict(result.durations_s),
        "took_s": time.monotonic() - began,
    }


def is_changed_live(change: dict[str, Any]) -> bool:
    """Whether a running process can make the change."""
    return not any(name in BY_NAME and BY_NAME[name].not_live for name in change)


def run(options: argparse.Namespace) -> None:
    """Measures what is missing in the file, within the limit, and prints the table."""
    began, out = time.monotonic(), Path(options.out)
    lines = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    known = [line for line in lines if "facts" in line]
    bench = Bench(options)
    try:
        facts = from_plain(ScriptFacts, known[0]["facts"]) if known else bench.probe()
        if known:
            bench.workspace.probe_is_through()
        target = bench.target.as_probed(facts)
        space = derive_space(facts, target.machine, bench.spec)
        jobs = Jobs(spec=bench.spec, target=target, facts=facts, script_settings=space.script_settings)
        changes = changes_of(space, num_pairs=options.pairs, seed=options.seed, only=options.only)
        with out.open("a") as file:
            if not known:
                file.write(json.dumps({"facts": to_plain(facts), "own": space.script_settings.to_dict()}) + "\n")
            live = LiveRunner(ForkRunner(bench.cold, facts))
            fresh = ForkRunner(bench.cold, facts)
            done = len([line for line in lines if "way" in line])
            try:
                steps = list(steps_of(changes, options))
                for kind, number, change in steps[done:]:
                    if time.monotonic() - began > options.limit_s:
                        print(f"{done} of {len(steps)} are done; call again with the same --out for the rest")
                        break
                    started, runner = time.monotonic(), live if kind == "live" else fresh
                    result = bench.measure(runner, jobs, space.settings(change), is_live=kind == "live")
                    line = line_of(kind, number, change, result, started)
                    lines.append(line)
                    file.write(json.dumps(line) + "\n")
                    file.flush()
                    done += 1
                    rate = f"{line['rate']:.1f}" if line["rate"] else line["why"]
                    print(f"{kind:5} {line['start']:8} {line['took_s']:6.1f} s  {rate:>10}  {change}", flush=True)
            finally:
                live.close()
                fresh.close()
    finally:
        bench.workspace.remove()
        bench.workspace.leave()
    print(report([line for line in lines if "way" in line], device=bench.device.name, split=SPLIT))


def steps_of(changes: list[dict[str, Any]], options: argparse.Namespace) -> Iterator[tuple[str, int, dict[str, Any]]]:
    """All measurements in order: each change in both ways, in turns."""
    for position, (number, change) in enumerate(order_of(changes, options.rounds, options.seed)):
        if options.live_only:
            yield "live", number, change
        elif is_changed_live(change):
            yield from ((kind, number, change) for kind in (("live", "fresh"), ("fresh", "live"))[position % 2])


if __name__ == "__main__":
    run(options_of(sys.argv[1:]))
