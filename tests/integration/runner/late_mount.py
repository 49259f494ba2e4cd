"""Mounts a folder in a shared place during a trial, and prints whether the trial's view of the files shows it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from autotune.protocol.supervision import LayerPlan
from autotune.sandbox import overlay


def main(root: Path) -> None:
    """Enters the layers in a child, mounts in this process, and lets the child look."""
    place = root / "automounted"
    (root / "root").mkdir()
    plan = LayerPlan(
        root=str(root / "root"), workspace=str(root), upper=str(root / "upper"), known=(str(root / "project"),)
    )
    entered, mounted = os.pipe(), os.pipe()
    pid = os.fork()
    if not pid:
        overlay.enter(plan)
        os.write(entered[1], b"e")
        os.read(mounted[0], 1)
        late = place / "data" / "late.txt"
        os.write(1, f"{late.exists() and late.read_text()}\n".encode())
        os._exit(0)
    os.read(entered[0], 1)
    subprocess.run(["mount", "-t", "tmpfs", "none", str(place / "data")], check=True)
    (place / "data" / "late.txt").write_text("late")
    os.write(mounted[1], b"m")
    os.waitpid(pid, 0)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
