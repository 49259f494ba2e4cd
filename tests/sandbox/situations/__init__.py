"""Hostile and careless scripts, as a table: every mode of protection runs the same rows.

A script runs in `project` below a folder of the user's, beside `checkpoints`, `runs` and `shared`. The arguments are
the process id of the tuner and the user's folder. Everywhere must hold: no file outside is changed without a name, and
no process is left.
"""

from tests.sandbox.situations import escapes, processes, writes
from tests.sandbox.situations.groups import GROUPS
from tests.sandbox.situations.situation import EVERYWHERE, LANDLOCK, LAYERS, NONE, Situation

KINDS: dict[str, tuple[Situation, ...]] = {
    "Writes": writes.WRITES,
    "Writes by unusual calls": writes.CALLS,
    "Writes by programs": writes.PROGRAMS,
    "Writes by libraries": writes.LIBRARIES,
    "Amounts, names and output": writes.AMOUNTS,
    "Ways out": escapes.ESCAPES,
    "The tuner": escapes.PROCESSES_OF_OTHERS,
    "The machine": escapes.KERNEL,
    "Services and shared memory": escapes.SERVICES,
    "The trial's own folder": escapes.OWN_FOLDER,
    "Processes": (*processes.PROCESSES, *processes.MORE_PROCESSES),
    "Folders of a group": GROUPS,
}
"""All situations by kind."""
SITUATIONS = tuple(situation for kind in KINDS.values() for situation in kind)

__all__ = ["EVERYWHERE", "GROUPS", "KINDS", "LANDLOCK", "LAYERS", "NONE", "SITUATIONS", "Situation"]
