"""Run where something is mounted inside the user's folder: starts runs there, and looks at what they changed.

Arguments: a folder, the protection of the runs, and the places for real writes. The folder has an empty `home`, and a
`project` with a mount at `data` and a mounted file `one.txt`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from autotune.protocol.protection import ProtectionWish
from autotune.runner.cold_runner import ColdRunner
from autotune.runner.devices import choose_device
from autotune.sandbox.mounts import mounts_below
from autotune.sandbox.workspace import Workspace
from tests.integration.runner.ground import digest, make_job

SCRIPT = """
import os, pretend
assert open("data/kept.txt").read() == "kept", "what is mounted is not seen"
open("data/kept.txt", "w").write("changed")
os.makedirs("data/new/folder")
open("data/new/folder/file", "w").write("new")
assert open("data/kept.txt").read() == "changed" and os.listdir("data/new") == ["folder"]
assert open("data/nested/kept.txt").read() == "nested"
open("data/nested/kept.txt", "a").write("more")
assert open("one.txt").read() == "one"
try:
    open("one.txt", "w").write("changed")
except OSError:
    pass
open("kept.txt", "w").write("changed")
pretend.report()
"""
REAL = """
import os, pretend
assert open("data/kept.txt").read() == "kept", "what is mounted is not seen"
assert open("data/nested/kept.txt").read() == "nested"
assert open("one.txt").read() == "one"
open("data/new.txt", "a").write("new")
open("data/nested/new.txt", "a").write("new")
open("../home/new.txt", "w").write("new")
pretend.report()
"""


def main() -> None:
    root, writable = Path(sys.argv[1]), tuple(sys.argv[3:])
    project = root / "project"
    os.environ["HOME"] = str(root / "home")
    os.environ["TMPDIR"] = str(root)
    (project / "mounts.py").write_text(REAL if writable else SCRIPT)
    before = digest(project)
    wish = ProtectionWish(writable=writable)
    workspace = Workspace.open(None, cwd=project, command=(sys.executable, "mounts.py"), wish=wish)
    assert workspace.protection == sys.argv[2]
    assert len(mounts_below(str(project))) == 3
    for _ in range(2):
        handle = ColdRunner(workspace, choose_device("cpu")).start(make_job(project, "mounts.py"))
        result = handle.result()
        print(result.outcome, result.reason, result.log_tail)
        assert result.outcome == "ok"
    workspace.remove()
    if writable:
        assert [(project / path).read_text() for path in ("data/new.txt", "data/nested/new.txt")] == ["newnew"] * 2
        assert (root / "home" / "new.txt").exists() == (str(root) in writable)
        return
    after = digest(project)
    assert before == after, sorted(path for path in {*before, *after} if before.get(path) != after.get(path))


if __name__ == "__main__":
    main()
