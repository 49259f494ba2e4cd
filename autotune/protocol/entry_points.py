"""Functions of ours that other processes run, and the sources for `python -c`.

No other file names a module of ours in a string. A caller imports the program by name from here, and thereby depends on
the program's module; `tests/unit/test_rooms.py` follows these edges.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

PACKAGE_PARENT = str(Path(__file__).resolve().parents[2])
"""Folder for sys.path in a process that is to import autotune."""
INTERPRETER = sys.executable
"""This interpreter, as at the import: a script may set another."""
INJECT = str(Path(__file__).resolve().parents[1] / "trial" / "inject")
"""Folder for PYTHONPATH in a trial; Python runs the folder's sitecustomize.py at the start of every process."""

SOURCE = "import sys; sys.path.append(sys.argv[1]); from {module} import {function}; {function}(*sys.argv[2:])"  # `-c`
FORK_SERVER_SOURCE = """
import sys
there = frozenset(sys.modules)
sys.path.append(sys.argv[1])
import os
from autotune.protocol.environment import REDIRECT
if os.environ.get(REDIRECT):
    from autotune.sandbox.redirect import install
    install()  # Comes first: modules keep the functions of `os` that they import by name.
from {module} import {function}
{function}(there, *sys.argv[2:])
"""
"""Notes the modules of a bare interpreter before any import, and redirects writes where trials have redirected writes.
"""


class Program(NamedTuple):
    """A function of ours that a fresh interpreter runs; the function takes the words of the command as arguments."""

    module: str
    function: str
    source: str = SOURCE

    def command(self, *words: str) -> list[str]:
        """The command in this interpreter, isolated from the user's variables and packages."""
        return self.command_by(INTERPRETER, *words, options=("-I", "-S"))

    def command_by(self, python: str, *words: str, options: tuple[str, ...] = ()) -> list[str]:
        """The command in an interpreter of the user's.

        Args:
            python: The interpreter.
            words: Arguments of the function.
            options: Options of the interpreter.
        """
        # Both processes must agree on how bytes in paths become text.
        utf8 = ("-X", "utf8") if sys.flags.utf8_mode else ()
        source = self.source.format(module=self.module, function=self.function)
        return [python, *options, *utf8, "-c", source, PACKAGE_PARENT, *words]


SUPERVISOR = Program("autotune.sandbox.supervisor", "main")
"""Takes the path of a supervisor's spec."""
LIGHT_SUPERVISOR = Program("autotune.sandbox.supervisor", "resume")
"""Goes on for a forked supervisor, without the memory of the fork server; takes the state of the trial as JSON."""
FIRST_PROCESS = Program("autotune.sandbox.first_process", "resume")
"""Goes on for the first process of a namespace; takes a process id and a descriptor."""
LAYERS_ATTEMPT = Program("autotune.sandbox.layer_permission", "attempt")
"""Tries overlay mounts; reads what to try from standard input."""
SERVER_LAUNCH = Program("autotune.sandbox.server_launch", "main")
"""Enters layers and executes a fork server; takes the path of the server's spec, a descriptor, and the command."""
FORK_SERVER = Program("autotune.trial.start.fork_server_loop", "main", FORK_SERVER_SOURCE)
"""Imports and forks for the script; takes the path of the server's spec and a descriptor."""
PACK_WORKER = Program("autotune.storage.pack_worker", "main")
"""Packs parts of a dataset; takes file, function, folder and format."""
