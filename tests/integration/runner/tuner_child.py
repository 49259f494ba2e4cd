"""A tuner that can be killed: starts one run in a workspace and watches it. Arguments: workspace, project, command."""

from __future__ import annotations

import sys
from pathlib import Path

from autotune.runner.cold import ColdRunner
from autotune.runner.covered import covered_folders
from autotune.runner.device import choose_device
from autotune.runner.workspace import Covered, Workspace
from tests.integration.runner.ground import make_job


def main() -> None:
    folder, user, protection, *arguments = sys.argv[1:]
    covered = tuple(Covered(path) for path in covered_folders(Path(user), ()))
    workspace = Workspace(Path(folder), covered, has_layers=protection == "layers")
    handle = ColdRunner(workspace, choose_device("cpu")).start(make_job(Path(user), *arguments))
    handle.wait()
    print(handle.result().outcome)


if __name__ == "__main__":
    main()
