"""The worker on the server's machine, started by the server."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from autotune.service.worker.search_child import our_command, tied_to_parent
from autotune.service.worker.working import DRAIN_S

RESTART_S = 2.0
"""Pause before a worker that ended by itself starts again, in seconds."""
SLACK_S = 10.0


class LocalWorker:
    """A process `autotune worker`, started again when it ends by itself; the kernel ends the worker with the server.

    Args:
        words: Arguments of `autotune worker`.
        say: Tells the user a line.
        variables: Variables of the worker beside those of this process; other users cannot read variables.
    """

    def __init__(self, words: Sequence[str], say: Callable[[str], None], variables: Mapping[str, str]) -> None:
        self._words, self._say = list(words), say
        self._environment = {**os.environ, **variables}
        self._process: asyncio.subprocess.Process | None = None
        self._is_ending = False

    async def keep_running(self) -> None:
        """Runs the worker until a drain; the calling thread must live as long as the server."""
        while not self._is_ending:
            command = tied_to_parent(our_command("worker", *self._words))
            self._process = await asyncio.create_subprocess_exec(
                *command, start_new_session=True, env=self._environment
            )
            code = await self._process.wait()
            if not self._is_ending:
                self._say(f"The worker of this machine ended with {code}, and is started again.")
                await asyncio.sleep(RESTART_S)

    async def drain(self) -> None:
        """Ends the worker: the running trial may end first, within a bounded time."""
        self._is_ending = True
        process = self._process
        if process is None or process.returncode is not None:
            return
        with suppress(ProcessLookupError):
            process.terminate()
        try:
            await asyncio.wait_for(process.wait(), DRAIN_S + SLACK_S)
        except TimeoutError:
            self.kill()
            await process.wait()

    def kill(self) -> None:
        """Kills the worker; its running trial runs again at the next start."""
        self._is_ending = True
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.kill()
