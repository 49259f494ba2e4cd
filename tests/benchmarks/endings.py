"""How long it takes until nothing of a trial is left, on a quiet machine: `python -m tests.benchmarks.endings`.

The fast tests wait for each of these ends, however busy the machine is. Here every end has a limit in seconds, and the
command ends with 1 where one took longer.
"""

from __future__ import annotations

import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from autotune.protocol.protection import Protection
from autotune.sandbox.layer_permission import is_permitted
from autotune.sandbox.tree_removal import remove_tree
from tests.integration.runner.ground import Ground
from tests.integration.runner.test_tuner_death import start_tuner, wait_until_nothing_is_left
from tests.integration.trial import loops
from tests.integration.trial.ground import Ground as TrialGround


def cancelled(ground: Ground) -> float:
    """Seconds from the cancellation of a trial with 50 strays to the end."""
    handle = ground.runner.start(ground.job("strays.py", "waits"))
    ground.wait_for_line(b"ready")
    began = time.monotonic()
    handle.cancel()
    handle.wait()
    took_s = time.monotonic() - began
    handle.result()
    return took_s


def deaf_to_sigterm(ground: Ground) -> float:
    """Seconds of a trial that ignores SIGTERM, with limits of 0.5 and 0.8 s."""
    began = time.monotonic()
    ground.run("ends.py", "ignores_sigterm", start_limit_s=0.5, total_limit_s=0.8)
    return time.monotonic() - began


def tuner_killed(ground: Ground) -> float:
    """Seconds from the death of the tuner to the end of the trial's 50 strays."""
    tuner = start_tuner(ground, "strays.py", "waits", "waits")
    ground.wait_for_line(b"ready")
    tuner.send_signal(signal.SIGKILL)
    tuner.wait()
    return wait_until_nothing_is_left(ground)


def unread_workers(folder: Path) -> float:
    """Seconds of a trial with unread loader workers; torch alone waits five seconds for each."""
    ground = TrialGround(folder)
    try:
        path = ground.script(loops.PRELUDE + loops.PLAIN)
        return ground.trial(path, ground.probe(path), num_workers=2, prefetch_factor=4).wall_s
    finally:
        ground.close()


CASES: tuple[tuple[str, float, Callable[[Ground], float]], ...] = (
    ("cancelled, 50 strays", 2.0, cancelled),
    ("ignores SIGTERM", 4.0, deaf_to_sigterm),
    ("tuner killed, 50 strays", 2.0, tuner_killed),
)


def main() -> int:
    """Prints a line for each end; 1 where a limit was passed."""
    num_late = 0
    is_layered = is_permitted(Path(tempfile.mkdtemp()))
    for name, limit_s, measure in CASES:
        root = Path(tempfile.mkdtemp(prefix="ground-")).resolve()
        took_s = measure(Ground(root, Protection.LAYERS if is_layered else Protection.NONE))
        remove_tree(root)
        num_late += _told(name, took_s, limit_s)
    with tempfile.TemporaryDirectory() as scratch:
        num_late += _told("unread loader workers", unread_workers(Path(scratch)), 15.0)
    return int(num_late > 0)


def _told(name: str, took_s: float, limit_s: float) -> bool:
    """Prints the line; whether the limit was passed."""
    print(f"{name:<26} {took_s:6.2f} s, limit {limit_s:g} s", flush=True)
    return took_s > limit_s


if __name__ == "__main__":
    sys.exit(main())
