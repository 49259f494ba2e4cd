"""The command `autotune` for tests of the service: `python -m tests.service.driver serve ...`.

Children are started by this driver again. No search waits for a quiet machine.

| variable | effect |
| --- | --- |
| TEST_MACHINE | the process seems to be on a machine of this name; dead searches elsewhere are given up after seconds |
| TEST_TRIAL_S | trials take so many seconds and are answered by a function: no script is run |
| TEST_DRAIN_S | time of the running trial after SIGTERM |
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

from autotune.cli.main import main
from autotune.runner import quiet_wait
from autotune.service import local_worker
from autotune.service.worker import search_child, working
from autotune.store import records
from autotune.store.study_leases import StudyLeases
from autotune.study import trial_loop

ROOT = Path(__file__).parents[2]
STALE_AFTER_S = 12.0


def our_command(*words: str) -> list[str]:
    return [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r}); {_RUN}", *words]


_RUN = "from tests.service import driver; sys.exit(driver.run(sys.argv[1:]))"


class Slow:
    """A runner with runs that take their time, and renew the lease of their study meanwhile."""

    def __init__(self, runner: Any, seconds: float) -> None:
        self.runner, self.seconds = runner, seconds

    def start(self, job: Any) -> Any:
        run = self.runner.start(job)
        ends_at = time.monotonic() + self.seconds
        run.poll = lambda: time.monotonic() >= ends_at
        return run

    def close(self) -> None:
        """Keeps no process."""


def imagine_trials(seconds: float) -> None:
    """Makes searches of this process ask a function in place of the script: more workers, more samples."""
    from autotune.lab.function_runner import FunctionRunner, Measured
    from autotune.sandbox import layer_permission
    from autotune.study import searching, together
    from tests.unit.facts import script_facts

    def measure(settings):
        return Measured(samples_per_second=100.0 * (1 + min(settings.num_workers, 2)), peak_memory_bytes=1 << 28)

    runner = FunctionRunner(measure, script_facts(num_batch_norms=3, modules=()))
    for function in (searching.search, searching.resume):
        function.__kwdefaults__["open_runner"] = lambda workspace, device, facts=None: Slow(runner, seconds)
    layer_permission.is_permitted = lambda scratch, folders=(): False
    together.LOOK_EVERY_S = 0.2


def run(words: list[str]) -> int:
    quiet_wait.WAIT_LIMIT_S = 0.0
    search_child.our_command = local_worker.our_command = our_command
    working.DRAIN_S = local_worker.DRAIN_S = float(os.environ.get("TEST_DRAIN_S", working.DRAIN_S))
    if "TEST_TRIAL_S" in os.environ:
        imagine_trials(float(os.environ["TEST_TRIAL_S"]))
    machine = os.environ.get("TEST_MACHINE")
    if machine:
        namespace = Path("/proc/self/ns/pid").readlink()
        records._boot = lambda: f"boot-of-{machine} {namespace}"
        records.socket.gethostname = lambda: machine
        trial_loop.RENEW_EVERY_S = STALE_AFTER_S / 12
        for name in ("acquire_lease", "leave_to_others", "live_owners"):
            getattr(StudyLeases, name).__kwdefaults__["stale_after_s"] = STALE_AFTER_S
    return main(words)


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
