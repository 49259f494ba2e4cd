"""The actor on one node of a Ray cluster: starts `autotune worker` and waits for the end. Imports nothing of Ray."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
from collections.abc import Sequence

from autotune import __version__
from autotune.service.engines.ray_checklist import environment_of, missing_at_start, users_environment
from autotune.service.worker.search_child import our_command, tied_to_parent


class RayNode:
    """A node with a worker. Ray makes the object an actor, and runs `run` and `drain` in separate threads.

    Args:
        words: Arguments of `autotune worker`.
        label: Ending of the worker's name, since a machine may have several nodes.
    """

    def __init__(self, words: Sequence[str], label: str) -> None:
        # With the subreaper Ray ignores SIGCHLD in its workers, and waiting for a child would fail. The call goes to
        # the C library, because Python sets handlers in the main thread alone.
        ctypes.CDLL(None).signal(int(signal.SIGCHLD), 0)
        self._words = (*words, f"--name={socket.gethostname()}-{label}")
        self._raylet = environment_of(os.getppid())
        self._worker: subprocess.Popen[bytes] | None = None
        self._is_drained = False

    def describe(self) -> tuple[str, str, tuple[str, ...], tuple[str, ...]]:
        """Name of the machine, version of autotune, fatal gaps and other gaps of the node."""
        found = missing_at_start(self._raylet)
        words = [(f"Missing at its start: {gap.setting}. {gap.reason}", gap.is_fatal) for gap in found]
        fatal, others = (tuple(text for text, is_fatal in words if is_fatal is kind) for kind in (True, False))
        return socket.gethostname(), __version__, fatal, others

    def run(self) -> int:
        """The exit code of the worker, after its end."""
        if self._is_drained:
            return 0
        # The kernel kills the worker at the end of this thread, which waits for the worker below.
        command = tied_to_parent(our_command("worker", *self._words))
        environment = users_environment(self._raylet)
        # A session of its own: Ray's signals go to the actor, and the actor's wish comes by `drain`.
        self._worker = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, start_new_session=True)
        if self._is_drained:
            self._worker.terminate()
        return self._worker.wait()

    def drain(self) -> None:
        """Asks the worker to finish the running trial and end."""
        self._is_drained = True
        if self._worker is not None and self._worker.poll() is None:
            self._worker.terminate()
