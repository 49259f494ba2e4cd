"""Writes a module, then imports it, as code generators do."""

import os
import sys
from pathlib import Path

import pretend

Path("generated").mkdir()
Path("generated/__init__.py").write_text("from generated.part import VALUE\n")
Path("generated/part.py").write_text("VALUE = 7\n")
sys.path.insert(0, os.getcwd())
import generated  # noqa: E402

assert generated.VALUE == 7
pretend.report()
