"""Writes to the folders that its arguments name, making them first."""

import os
import sys
from pathlib import Path

import pretend

for argument in sys.argv[1:]:
    folder = Path(os.path.expanduser(argument.rpartition("=")[2]))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "written.txt").write_text("written")
    assert (folder / "written.txt").read_text() == "written"
pretend.report()
