"""A tuner that can be killed: starts one run and watches it.

Arguments: workspace, project, protection, start, command.
"""

from __future__ import annotations

import math
import sys
import time
from pathlib import Path

from autotune.protocol.job import TrialJob
from autotune.protocol.protection import Protection
from autotune.runner.cold_runner import ColdRunner
from autotune.runner.devices import choose_device
from autotune.runner.fork_runner import ForkRunner
from autotune.runner.live_runner import LiveRunner
from autotune.runner.runner import Runner
from autotune.sandbox.covered_folders import covered_folders
from autotune.sandbox.workspace import Workspace
from tests.integration.runner.ground import make_job
from tests.integration.runner.study import BRIEF
from tests.jobs import changed
from tests.unit.facts import script_facts


def main() -> None:
    folder, user, protection, start, *arguments = sys.argv[1:]
    covered = covered_folders(Path(user), ())
    workspace = Workspace(Path(folder), covered, protection=Protection(protection))
    runner: Runner = ColdRunner(workspace, choose_device("cpu"))
    if start in ("forked", "prepared"):
        least_s = math.inf if start == "forked" else 0.0
        runner = ForkRunner(runner, script_facts(), least_preparation_s=least_s)
    job = make_job(Path(user), *arguments)
    if start == "live":
        serve(LiveRunner(ForkRunner(ColdRunner(workspace, choose_device("cpu")), script_facts())), job)
    print(runner.start(job).result().outcome)


def serve(runner: LiveRunner, job: TrialJob) -> None:
    """Measures one job again and again, by optimizer steps alone, and live from the second time on."""
    job = changed(job, serves=True, window=BRIEF, facts=script_facts(loader=None))
    while True:
        run = runner.start(job)
        while not run.poll():
            time.sleep(0.01)
        print(run.result().start, flush=True)


if __name__ == "__main__":
    main()
