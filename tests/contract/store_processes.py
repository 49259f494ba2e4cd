"""Other processes at the database of a test."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

CHILDREN = Path(__file__).with_name("store_children.py")
CHILD_LIMIT_S = 60


class Child:
    """Another process at the same database."""

    def __init__(self, verb: str, *arguments: str) -> None:
        roots = (str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")]))
        self.process = subprocess.Popen(
            [sys.executable, str(CHILDREN), verb, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(roots)},
        )

    def read(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the child ended with {self.process.wait(CHILD_LIMIT_S)}"
        return line.strip()

    def go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=CHILD_LIMIT_S)
