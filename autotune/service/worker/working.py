"""The worker's loop: registers, leases a job, runs its search, tells the server, and drains on SIGTERM."""

from __future__ import annotations

import secrets
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

from autotune.client import Client, ServerError, UnreachableError
from autotune.client.connection import Connection
from autotune.errors import AutotuneError
from autotune.sandbox.process_tree import PR_SET_CHILD_SUBREAPER, prctl
from autotune.service.worker.leased_study import LeasedJob, search_words
from autotune.service.worker.leftovers import end_leftovers
from autotune.service.worker.machine_slot import MachineSlot
from autotune.service.worker.search_child import SearchChild
from autotune.study_file.search_options import VARIABLES

POLL_S = 20.0
"""Longest wait of one request for work, in seconds."""
DRAIN_S = 20.0
"""Time for the running trial after SIGTERM, in seconds; then the trial ends at once, and runs again elsewhere."""
LONGEST_PAUSE_S = 10.0
EVENTS_AT_ONCE = 200
EVENT_S = 1.0
"""Longest delay of an event, in seconds; without events a heartbeat has the pace asked for by the server."""
ATTEMPTS_TO_RESUME = 3
"""Another machine may change the stored facts between the agreement and the resume."""
USAGE, INTERRUPTED = 2, 130
_DONE = (0, 7, 8)
"""Exit codes of a search with a result: also where `--require-gain` finds none, or finds a gain in doubt."""
_OF_THE_JOB = (USAGE, 3)
"""Exit codes with the same outcome on every machine of a class."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerOptions:
    """What the user of the machine says to the worker."""

    name: str
    projects: Mapping[str, Path]
    slot: MachineSlot
    storage: str = ""
    """Resolved URL of the server's database, with the password; empty = as the server names it, without a password."""
    unprotected: bool = False
    """Searches may run where nothing protects the user's files."""
    network: bool = False
    """Trials may use the machine's network."""


class Worker:
    """Runs the jobs of one slot, one after another, until a signal drains the worker.

    Args:
        client: The server.
        options: Name, slot and projects.
        say: Tells the user a line.
    """

    def __init__(self, client: Client, options: WorkerOptions, say: Callable[[str], None]) -> None:
        self._client, self._options, self._say = client, options, say
        self._server = client.connection
        self._session = secrets.token_hex(16)
        self._num_signals = 0
        self._drain_until = float("inf")

    def run(self) -> None:
        """Works until SIGTERM or SIGINT.

        Raises:
            ServerError: The server refuses the worker, or a later process has the same name.
        """
        prctl(PR_SET_CHILD_SUBREAPER, 1)  # Orphans of a search become children of the worker.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # Ray ignores the signal, and waiting for a child would fail.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        self._patiently(self._register)
        self._say(f"worker {self._options.name}: waits for jobs of {self._server.url}")
        while not self._num_signals:
            leased = self._lease()
            if leased is not None:
                self._work(leased)
        with suppress(AutotuneError):
            self._client.drain(self._options.name)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self._num_signals += 1
        if self._num_signals == 1:
            self._drain_until = time.monotonic() + DRAIN_S

    def _patiently(self, ask: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The answer of the server, asked until the server answers or a signal comes; empty after a signal."""
        pause_s = 0.5
        while True:
            try:
                return ask()
            except UnreachableError as error:
                if pause_s >= LONGEST_PAUSE_S / 2:
                    self._say(f"worker {self._options.name}: {error.message}")
            except ServerError as error:
                if error.status < 500 and error.status != 429:
                    raise
            if self._num_signals:
                return {}
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    def _register(self) -> dict[str, Any]:
        slot = self._options.slot
        body = {
            "id": self._options.name,
            "session": self._session,
            "machine": slot.machine,
            "class": slot.machine_class,
            "description": slot.description,
            "devices": list(slot.devices),
            "cpus": list(slot.cpus),
            "projects": {name: str(folder) for name, folder in self._options.projects.items()},
        }
        return self._server.json("POST", "/v1/workers", body)

    def _lease(self) -> LeasedJob | None:
        """The next job; None after a wait without work."""
        path = f"/v1/workers/{self._options.name}:lease"
        body = {"session": self._session, "wait_s": POLL_S}
        try:
            document = self._patiently(lambda: self._server.json("POST", path, body, timeout_s=POLL_S + 15.0))
        except ServerError as error:
            if error.status != 404:
                raise
            self._patiently(self._register)  # Another database: the server has forgotten this worker.
            return None
        if not document:
            return None
        return LeasedJob(
            lease=document["lease"],
            fence=document["fence"],
            heartbeat_s=document["heartbeat_s"],
            storage=self._options.storage or document["storage"],
            job=document["job"],
        )

    def _work(self, leased: LeasedJob) -> None:
        job_id = leased.job["id"]
        self._say(f"worker {self._options.name}: begins job {job_id}, study {leased.study}")
        attempt = LeasedRun(self._options, leased, self._server, self._patiently, lambda: self._asked)
        try:
            end = attempt.run()
        finally:
            left = end_leftovers()
        for line in left:
            self._say(f"worker {self._options.name}: {line}")
        if end is None:
            self._say(f"worker {self._options.name}: job {job_id} belongs to another worker now")
            return
        self._say(f"worker {self._options.name}: job {job_id} {end['state']}")
        path = f"/v1/leases/{leased.lease}:complete"
        with suppress(ServerError):
            self._patiently(lambda: self._server.json("POST", path, end))

    @property
    def _asked(self) -> str:
        """The order of this machine's user: `continue`, `stop` or `cancel`."""
        if not self._num_signals:
            return "continue"
        return "cancel" if self._num_signals > 1 or time.monotonic() > self._drain_until else "stop"


class LeasedRun:
    """One leased job: the search of the job, with heartbeats to the server.

    Args:
        options: Of the worker.
        leased: The job.
        server: The server.
        patiently: Asks the server until the server answers.
        order_here: The order of this machine's user: `continue`, `stop` or `cancel`.
    """

    def __init__(
        self,
        options: WorkerOptions,
        leased: LeasedJob,
        server: Connection,
        patiently: Callable[[Callable[[], dict[str, Any]]], dict[str, Any]],
        order_here: Callable[[], str],
    ) -> None:
        self._server, self._options, self._leased = server, options, leased
        self._patiently, self._order_here = patiently, order_here
        self._order = "continue"
        self._is_lost = False
        self._num_told = 0
        self._beaten_at = float("-inf")

    def run(self) -> dict[str, Any] | None:
        """The body of `:complete`; None when the lease was lost."""
        code, child, message = 1, None, ""
        for _ in range(ATTEMPTS_TO_RESUME):
            try:
                words = self._words()
            except AutotuneError as error:
                code, child, message = error.exit_code, None, str(error)
                break
            child = self._start(words)
            try:
                code = self._watch(child)
            except BaseException:
                child.kill()
                raise
            if code != USAGE or words[0] != "resume" or self._order != "continue":
                break
        if self._is_lost:
            return None
        return self._end(code, child, message)

    def _words(self) -> list[str]:
        folder = self._options.projects[str(self._leased.job["project"])]
        options = self._options
        return search_words(self._leased, folder, unprotected=options.unprotected, network=options.network)

    def _start(self, words: list[str]) -> SearchChild:
        folder = self._options.projects[str(self._leased.job["project"])]
        environment = {**self._options.slot.environment, VARIABLES["storage"]: self._leased.storage}
        return SearchChild(words, folder, environment)

    def _watch(self, child: SearchChild) -> int:
        """Exit code of the search, after the last heartbeat with all events."""
        while True:
            code = child.wait(0.2)
            self._obey(child)
            if code is not None:
                self._beat(child, is_last=True)
                return code
            pause_s = min(EVENT_S, self._leased.heartbeat_s) if child.has_events else self._leased.heartbeat_s
            if time.monotonic() >= self._beaten_at + pause_s:
                self._beat(child)

    def _path(self, verb: str) -> str:
        return f"/v1/leases/{self._leased.lease}:{verb}"

    def _obey(self, child: SearchChild) -> None:
        orders = (self._order, self._order_here())
        if self._is_lost or "cancel" in orders:
            child.ask_to_cancel()
        elif "stop" in orders:
            child.ask_to_stop()

    def _beat(self, child: SearchChild, *, is_last: bool = False) -> None:
        """Tells the server of life and news. The search goes on without a server."""
        self._beaten_at = time.monotonic()
        while not self._is_lost:
            events, progress = child.take_news()
            sent = events[:EVENTS_AT_ONCE]
            body = {"fence": self._leased.fence, "first_event": self._num_told, "events": sent, "progress": progress}
            ask = partial(self._server.json, "POST", self._path("heartbeat"), body, timeout_s=10.0)
            try:
                answer = self._patiently(ask) if is_last else ask()
            except UnreachableError:
                return
            except ServerError as error:
                self._is_lost = error.status in (404, 409)
                return
            if not answer:
                return
            self._order = str(answer["order"])
            num_new = int(answer["num_events"]) - self._num_told
            child.forget(num_new)
            self._num_told += num_new
            if num_new < len(events) and num_new > 0:
                continue
            return

    def _end(self, code: int, child: SearchChild | None, message: str) -> dict[str, Any]:
        is_asked = "cancel" in (self._order, self._order_here()) or "stop" in (self._order, self._order_here())
        document = child.document if child is not None else None
        if code in _DONE:
            state = "done"
        elif code == INTERRUPTED or (is_asked and code < 0):
            state = "stopped"
        else:
            state = "failed"
        return {
            "fence": self._leased.fence,
            "state": state,
            "exit_code": max(-64, min(255, code)),
            "message": "" if state == "done" else (message or _reason(child))[-4000:],
            "is_repeatable": code not in _OF_THE_JOB,
            "document": document,
            "config": child.config_text() if child is not None else None,
        }


def _reason(child: SearchChild | None) -> str:
    """The reason for an end without a result: the result's own, else the last lines for people."""
    if child is None:
        return ""
    reason = (child.document or {}).get("reason")
    return str(reason) if reason else child.talk
