"""What a trial's meter costs per optimizer step: alternating blocks with and without it, in one process.

    python tests/benchmarks/metering.py [--pairs 60] [--width 0]

Runs itself as a training script: once as a probe, then as a trial that never has enough. Width 0 is a step of about
0.2 ms, where the cost shows best; width 640 is one of about 3 ms. Times are CPU time of the one thread that trains: the
meter neither waits nor starts threads, and on a shared machine wall time says more of the neighbours.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

BLOCK_STEPS = 40
WARM_UP_S = 3.0
"""Of metered steps: until the trial's own warm-up is through, and its window runs."""
ROOT = Path(__file__).resolve().parents[2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=60, help="pairs of blocks")
    parser.add_argument("--width", type=int, default=0, help="of the model's layers")
    parser.add_argument("--body", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.body:
        train(options.pairs, options.width)
    else:
        compare(options)


# The script that is measured ---------------------------------------------------------------------------------


def train(num_pairs: int, width: int) -> None:
    """An ordinary loop; every so many steps it switches the seams off or on."""
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    torch.set_num_threads(1)
    size = width or 16
    layers = [torch.nn.Sequential(torch.nn.Linear(size, size), torch.nn.ReLU()) for _ in range(4 if width else 1)]
    model = torch.nn.Sequential(*layers, torch.nn.Linear(size, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    loader = DataLoader(TensorDataset(torch.randn(4096, size), torch.randint(4, (4096,))), batch_size=32)

    def batches() -> Iterator[Any]:
        while True:
            yield from loader

    stream = batches()

    def steps(num_steps: int) -> float:
        """Seconds of CPU time per step."""
        began = time.thread_time()
        for _ in range(num_steps):
            x, y = next(stream)
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        return (time.thread_time() - began) / num_steps

    end = time.monotonic() + WARM_UP_S
    while time.monotonic() < end:
        steps(BLOCK_STEPS)
    seams = Seams(type(optimizer))
    differences, plain = [], []
    for number in range(num_pairs):
        pair = {}
        for is_on in (True, False) if number % 2 else (False, True):
            seams.switch(is_on)
            steps(4)
            pair[is_on] = steps(BLOCK_STEPS)
        differences.append(pair[True] - pair[False])
        plain.append(pair[False])
    seams.switch(True)
    print(json.dumps({"differences": differences, "plain": plain, "seams": seams.names}), flush=True)
    os._exit(0)


class Seams:
    """The wrappers on the path of a step, and what is beneath them."""

    def __init__(self, optimizer_class: Any) -> None:
        import torch
        from torch.utils.data import dataloader

        places = [
            (dataloader._BaseDataLoaderIter, "__next__"),
            (torch.autograd, "backward"),
            (optimizer_class, "step"),
            (torch.optim.Optimizer, "zero_grad"),
            (torch.nn.Module, "__call__"),
        ]
        self._places = [(owner, name, getattr(owner, name), _beneath(getattr(owner, name))) for owner, name in places]
        self.names = [name for _, name, outer, inner in self._places if outer is not inner]

    def switch(self, is_on: bool) -> None:
        """Puts the wrappers in place, or takes them off."""
        for owner, name, outer, inner in self._places:
            setattr(owner, name, outer if is_on else inner)


def _beneath(function: Any) -> Any:
    """What autotune's wrappers call."""
    while "autotune/trial" in getattr(getattr(function, "__code__", None), "co_filename", "").replace(os.sep, "/"):
        function = function.__wrapped__
    return function


# The two runs of it ------------------------------------------------------------------------------------------


def compare(options: argparse.Namespace) -> None:
    """Probes the body, runs it as a trial, and prints what a step costs more."""
    sys.path.insert(0, str(ROOT))
    from autotune.measure.stopping import WindowRule
    from autotune.model.job import Mode, TrialJob, TrialPaths
    from autotune.model.result import RankResult
    from autotune.plain import from_plain, to_plain
    from autotune.space.derive import natural_settings

    command = (
        sys.executable,
        str(Path(__file__).resolve()),
        "--body",
        *("--pairs", str(options.pairs), "--width", str(options.width)),
    )
    endless = WindowRule(half_width_ratio=1e-9, min_window_s=1e6, max_window_s=1e6)

    def run(folder: Path, **values: Any) -> str:
        paths = TrialPaths(folder)
        paths.results.mkdir(parents=True)
        job = TrialJob(
            command=command,
            cwd=str(ROOT),
            cap_bytes=1 << 40,
            window=endless,
            start_limit_s=600.0,
            total_limit_s=600.0,
            **values,
        )
        paths.job.write_text(json.dumps(to_plain(job)))
        environment = {
            **os.environ,
            "AUTOTUNE_TRIAL": str(folder),
            "PYTHONPATH": os.pathsep.join([str(ROOT / "autotune" / "trial" / "inject"), str(ROOT)]),
        }
        return subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout

    with tempfile.TemporaryDirectory() as folder:
        probe, trial = Path(folder, "probe"), Path(folder, "trial")
        run(probe, mode=Mode.PROBE, settings=None, natural=None, facts=None)
        report = from_plain(RankResult, json.loads(TrialPaths(probe).result(0).read_text()))
        assert report.facts is not None
        natural = natural_settings(report.facts)
        output = run(trial, mode=Mode.TRIAL, settings=natural, natural=natural, facts=report.facts)
        said = json.loads(output.splitlines()[-1])
    microseconds = sorted(1e6 * seconds for seconds in said["differences"])
    quarter = len(microseconds) // 4
    step_us = 1e6 * statistics.median(said["plain"])
    print(
        f"a step of {step_us:.0f} us costs {statistics.median(microseconds):.1f} us more with the meter "
        f"[{microseconds[quarter]:.1f}, {microseconds[-quarter - 1]:.1f}] (quartiles of {options.pairs} pairs of "
        f"{BLOCK_STEPS} steps), at {', '.join(said['seams'])}"
    )


if __name__ == "__main__":
    main()
