"""A search of a worker: a child process `autotune search` or `autotune resume`, with events and end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from autotune.store.secrets import mask_plain, mask_text

MAX_LINE = 1 << 20
"""Most bytes of one event; longer events are left out."""
MAX_TALK_LINES = 40
MAX_CONFIG = 1 << 20
# Sets the signal for the parent's death, then becomes the search. An earlier death of the parent shows in the parent's
# number.
_TIED = """\
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)
os.getppid() == int(sys.argv[1]) or os._exit(137)
os.execv(sys.argv[2], sys.argv[2:])
"""


def tied_to_parent(command: Sequence[str]) -> list[str]:
    """The command as a program; the kernel kills the program at the end of this process. Start from the main thread."""
    return [sys.executable, "-I", "-S", "-c", _TIED, str(os.getpid()), *command]


def our_command(*words: str) -> list[str]:
    """The command line of a verb of this installation; modules of the working directory are not imported."""
    return [sys.executable, "-P", "-m", "autotune", *words]


class SearchChild:
    """A running search. Events are read by a thread, so the child never waits for the server.

    Args:
        words: Verb and arguments of `autotune`; the verb prints events by `--jsonl`.
        folder: Working folder of the search.
        environment: Variables beside the variables of this process.
    """

    def __init__(self, words: Sequence[str], folder: Path, environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            tied_to_parent(our_command(*words)),
            cwd=folder,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # An interrupt at the worker's terminal drains the worker first.
        )
        self._lock = threading.Lock()
        self._events: list[dict[str, Any]] = []
        self._progress: dict[str, Any] | None = None
        self._talk: deque[str] = deque(maxlen=MAX_TALK_LINES)
        self._num_asked = 0
        self.document: dict[str, Any] | None = None
        """The result; None before the last line."""
        self._readers = [
            threading.Thread(target=self._read_events, args=(self._process.stdout,), daemon=True),
            threading.Thread(target=self._read_talk, args=(self._process.stderr,), daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    @property
    def pid(self) -> int:
        """Process id of the search."""
        return self._process.pid

    def wait(self, timeout_s: float) -> int | None:
        """Exit code, negative for a signal; None while the search runs."""
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None
        for reader in self._readers:
            reader.join(5.0)  # A leftover process may hold the pipe.
        return code

    def ask_to_stop(self) -> None:
        """Ends the search after the running trial; asked again, does nothing."""
        self._ask(1)

    def ask_to_cancel(self) -> None:
        """Ends the running trial and the search."""
        self._ask(2)

    def _ask(self, level: int) -> None:
        while self._num_asked < level:
            self._num_asked += 1
            with suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGTERM)
            if self._num_asked < level:
                self.wait(0.5)  # Two signals at once would arrive as one.

    def kill(self) -> None:
        """Kills the search; the supervisors end the running trial."""
        self._process.kill()

    def take_news(self) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
        """All events so far, and the latest progress since the previous call."""
        with self._lock:
            progress, self._progress = self._progress, None
            return list(self._events), progress

    @property
    def has_events(self) -> bool:
        """Whether the server has not stored all events."""
        return bool(self._events)

    def forget(self, num_events: int) -> None:
        """Drops the first events, which the server has stored."""
        with self._lock:
            del self._events[:num_events]

    @property
    def talk(self) -> str:
        """The last lines for people, without secrets."""
        return mask_text("\n".join(self._talk))

    def config_text(self) -> str | None:
        """The tuned config, as YAML; None without."""
        path = (self.document or {}).get("config")
        if not isinstance(path, str):
            return None
        with suppress(OSError, UnicodeDecodeError), Path(path).open("rb") as file:
            return file.read(MAX_CONFIG).decode()
        return None

    def _read_events(self, stream: IO[bytes]) -> None:
        with stream:
            while line := stream.readline(MAX_LINE):
                with suppress(ValueError, RecursionError):
                    self._note(json.loads(line))

    def _note(self, document: Any) -> None:
        if not isinstance(document, dict) or not isinstance(document.get("event"), str):
            return
        document = mask_plain(document)
        with self._lock:
            if document["event"] == "trial_progress":
                self._progress = document
                return
            if document["event"] == "result":
                self.document = {k: v for k, v in document.items() if k not in ("event", "at")}
            self._events.append(document)

    def _read_talk(self, stream: IO[bytes]) -> None:
        with stream:
            while line := stream.readline(MAX_LINE):
                self._talk.append(line.decode("utf-8", "replace").rstrip()[:2000])
