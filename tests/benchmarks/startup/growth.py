"""What many trials leave behind in the server and on the machine."""

from __future__ import annotations

import os
import time
from pathlib import Path

from tests.benchmarks.startup.trials import Trials

NUM_BEFORE = 10
"""Trials before the first look: what is allocated once is there then."""
MEMORY = "server's resident memory, KiB"
"""Of what is looked at."""


def look(server_pid: int, workspace: Path) -> dict[str, int]:
    """What the process has that trials are forked from, and what lies around it.

    Args:
        server_pid: Of that process.
        workspace: The folder that has the trials' own.
    """
    place = Path(f"/proc/{server_pid}")
    pages = int((place / "statm").read_text().split()[1])
    tasks = list((place / "task").iterdir())
    return {
        MEMORY: pages * os.sysconf("SC_PAGE_SIZE") // 1024,
        "server's descriptors": len(list((place / "fd").iterdir())),
        "server's tasks": len(tasks),
        "server's children": sum(len((task / "children").read_text().split()) for task in tasks),
        "server's layers": _num_layers(place),
        "tuner's descriptors": len(os.listdir("/proc/self/fd")),
        "tuner's layers": _num_layers(Path("/proc/self")),
        "entries of /dev/shm": len(os.listdir("/dev/shm")),
        "folders of trials": len(list((workspace / "trials").iterdir())),
    }


def _num_layers(process: Path) -> int:
    """Overlays that it sees."""
    return sum(line.split()[2] == "overlay" for line in (process / "mounts").read_text().splitlines())


def growth(trials: Trials, num_trials: int, kind: str) -> str:
    """The section on trials in a row."""
    steps = "1" if kind == "prepared" else "0"
    for _ in range(NUM_BEFORE):
        trials.run(kind, steps)
    (server,) = trials.prepared._preparations.values() if kind == "prepared" else trials.forked._servers.values()
    before, began = look(server.pid, trials.cold.workspace.folder), time.monotonic()
    for _ in range(num_trials):
        trials.run(kind, steps)
    each_s = (time.monotonic() - began) / num_trials
    time.sleep(0.2)  # The last supervisor's pipe may still be closing.
    after = look(server.pid, trials.cold.workspace.folder)
    rows = [f"| {name} | {before[name]:,} | {after[name]:,} |" for name in before]
    script = Path(trials.job.command[1]).name
    return "\n".join(
        [
            f"## {num_trials} {kind} trials in a row\n",
            f"Of `{script} {steps}`, after {NUM_BEFORE} others; {each_s:.3f} s each, all included.\n",
            "| | before | after |",
            "|---|---|---|",
            *rows,
        ]
    )
