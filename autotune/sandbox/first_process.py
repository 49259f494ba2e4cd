"""The first process of a trial's process namespace: reaps orphans, and the kernel ends all processes with the first.

Standard library only. No process of the namespace can signal the first.
"""

from __future__ import annotations

import os
from contextlib import suppress

from autotune.protocol.entry_points import FIRST_PROCESS, INTERPRETER
from autotune.sandbox.descriptors import readable

START_S = 0.5
"""Time that the script has the processor for its start: a fresh interpreter beside it would delay the first step."""


def stay(pid: int, status: int, *, is_forked: bool) -> None:
    """Waits for the script as `wait` does; never returns.

    Args:
        pid: Of the script.
        status: Descriptor of a pipe.
        is_forked: Whether this process holds the memory of a fork server; a fresh interpreter replaces the process if
            possible, once the script has started.
    """
    try:
        os.closerange(0, status)
        os.closerange(status + 1, 4096)
        os.chdir("/")
        if is_forked and not _ends_soon(pid):
            os.set_inheritable(status, True)
            with suppress(OSError):
                os.execv(INTERPRETER, FIRST_PROCESS.command(str(pid), str(status)))
        wait(pid, status)
    finally:
        os._exit(0)


def _ends_soon(pid: int) -> bool:
    """Whether the script ends within the time of its start; False on a system without descriptors of processes."""
    try:
        script = os.pidfd_open(pid)
    except OSError:
        return False
    ended = readable(script, limit_s=START_S)
    os.close(script)
    return bool(ended)


def resume(pid: str, status: str) -> None:
    """Goes on in a fresh interpreter: `wait` with numbers as text."""
    wait(int(pid), int(status))


def wait(pid: int, status: int) -> None:
    """Waits for the script, reports the status, and ends all other processes.

    Args:
        pid: Of the script.
        status: Descriptor of the pipe for the script's wait status, as a decimal number.
    """
    ended = 0
    while ended != pid:
        ended, how = os.wait()
    with suppress(OSError):
        os.write(status, str(how).encode())
    os._exit(0)
