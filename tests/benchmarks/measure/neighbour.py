"""A search beside a program that keeps a core busy; then the config alone against the script's own settings.

`python -m tests.benchmarks.measure.neighbour` takes two cores, of which a busy loop holds one during the whole search.
Beside the loop one thread is several times as fast as two; alone it is slower. Whatever the search publishes must not
be slower than the script itself on the quiet machine: the command ends with 1 if it is, beyond the noise.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SCRIPT = """
import torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
data = TensorDataset(torch.randn(20000, 784), torch.randint(10, (20000,)))
model = torch.nn.Sequential(
    torch.nn.Linear(784, 800), torch.nn.ReLU(), torch.nn.Linear(800, 800), torch.nn.ReLU(), torch.nn.Linear(800, 10)
)
optimizer = torch.optim.Adam(model.parameters())
for epoch in range(10000):
    for x, y in DataLoader(data, batch_size=128, shuffle=True):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
"""
"""Two threads share every product; a neighbour on one core holds both up at each of them."""


@contextmanager
def neighbour(core: int) -> Iterator[None]:
    """A busy loop on one core."""
    loop = f"import os\nos.sched_setaffinity(0, {{{core}}})\nwhile True: pass"
    process = subprocess.Popen([sys.executable, "-S", "-c", loop])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def autotune(folder: Path, *words: str) -> tuple[int, dict[str, Any]]:
    """The exit code and the document of a command."""
    command = [sys.executable, "-m", "autotune", *words, "--json"]
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, text=True, check=False)
    return done.returncode, json.loads(done.stdout) if done.stdout.strip() else {}


def main() -> int:
    """Searches beside the neighbour, then verifies without."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--time", default="5m", help="what the search gets")
    parser.add_argument("--seconds", default="15", help="counted seconds of each run afterwards")
    asked = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))[:2]
    os.sched_setaffinity(0, set(cores))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "train.py").write_text(SCRIPT)
        with neighbour(cores[-1]):
            _, result = autotune(folder, "search", "train.py", "--time", asked.time)
        print(f"search: {result.get('status')} {result.get('speedup')} {result.get('beside_load')}")
        for note in result.get("notes", ()):
            print(f"  note: {note}")
        if result.get("status") != "improved":
            print("the script's own settings are kept: never slower")
            return 0
        changed = {k: v for k, v in result["best"]["settings"].items() if v != result["baseline"]["settings"][k]}
        _, found = autotune(folder, "verify", "train", "--seconds", asked.seconds)
        print(f"alone: {found['real']} {found['finding']}, with {changed}")
        return int(found["real"]["high"] < 1)


if __name__ == "__main__":
    sys.exit(main())
