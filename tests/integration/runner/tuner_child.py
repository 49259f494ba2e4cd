"""A tuner that can be killed: starts one run and watches it.

Arguments: workspace, project, protection, start, command.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path

from autotune.protocol.protection import Protection
from autotune.runner.cold_runner import ColdRunner
from autotune.runner.devices import choose_device
from autotune.runner.fork_runner import ForkRunner
from autotune.runner.runner import Runner
from autotune.sandbox.covered_folders import covered_folders
from autotune.sandbox.workspace import Workspace
from tests.integration.runner.ground import make_job
from tests.unit.facts import script_facts


def main() -> None:
    folder, user, protection, start, *arguments = sys.argv[1:]
    covered = covered_folders(Path(user), ())
    workspace = Workspace(Path(folder), covered, protection=Protection(protection))
    runner: Runner = ColdRunner(workspace, choose_device("cpu"))
    if start != "cold":
        least_s = math.inf if start == "forked" else 0.0
        runner = ForkRunner(runner, script_facts(), least_preparation_s=least_s)
    print(runner.start(make_job(Path(user), *arguments)).result().outcome)


if __name__ == "__main__":
    main()
