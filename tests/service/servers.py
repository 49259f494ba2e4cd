"""Servers and workers of the tests: real processes on a free port, below one folder."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from autotune.client import Client, Job
from autotune.client.connection import Connection
from tests.service.driver import our_command

LIMIT_S = 240.0
T = TypeVar("T")


def wait_until(look: Callable[[], T], what: str, limit_s: float = LIMIT_S) -> T:
    """The first true answer."""
    deadline = time.monotonic() + limit_s
    while not (answer := look()):
        assert time.monotonic() < deadline, f"not within {limit_s:g} s: {what}"
        time.sleep(0.05)
    return answer


class Process:
    """A verb of `autotune`, with its talk in a file."""

    def __init__(self, words: list[str], folder: Path, log: Path, variables: Mapping[str, str] | None = None) -> None:
        self.log = log
        with log.open("ab") as file:
            self.popen = subprocess.Popen(
                our_command(*words),
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env={**os.environ, "PYTHONUNBUFFERED": "1", **(variables or {})},
            )

    @property
    def pid(self) -> int:
        return self.popen.pid

    def talk(self) -> str:
        return self.log.read_text()

    def end(self, how: int = signal.SIGTERM) -> int:
        """The exit code after a signal."""
        if self.popen.poll() is None:
            self.popen.send_signal(how)
        return self.popen.wait(LIMIT_S)


class Service:
    """One or several servers and workers on one database."""

    def __init__(self, root: Path, projects: Mapping[str, Path], storage: str = "") -> None:
        self.root, self.projects, self.storage = root, dict(projects), storage or str(root / "service.db")
        self.token_file = root / "token"
        self.processes: list[Process] = []
        self.url = ""
        self.port = 0

    def serve(self, *words: str, variables: Mapping[str, str] | None = None) -> Process:
        """A server, once it answers; a later server takes the port of an ended one."""
        log = self.root / f"serve-{len(self.processes)}.log"
        own = [f"--port={self.port}", f"--token-file={self.token_file}", f"--storage={self.storage}"]
        process = self._start(["serve", *own, *self._projects(), *words], log, variables)
        found = wait_until(lambda: re.search(r"http://127\.0\.0\.1:(\d+)", _checked(process)), "the server's URL")
        self.url, self.port = found[0], int(found[1])
        wait_until(self._answers, f"an answer: {process.talk()}")
        return process

    def worker(self, name: str, *words: str, variables: Mapping[str, str] | None = None) -> Process:
        """A worker; returns before it has registered."""
        log = self.root / f"worker-{len(self.processes)}.log"
        own = [f"--server={self.url}", f"--token-file={self.token_file}", f"--name={name}"]
        return self._start(["worker", *own, *self._projects(), *words], log, variables)

    @property
    def client(self) -> Client:
        return Client(self.url, token_file=self.token_file)

    @property
    def api(self) -> Connection:
        return self.client.connection

    def end(self) -> None:
        """Ends all processes; no process may need to be killed."""
        for process in reversed(self.processes):
            if process.popen.poll() is None:
                process.popen.kill()
                process.popen.wait()

    def until(self, job_id: str, *statuses: str, limit_s: float = LIMIT_S) -> Job:
        """The job in one of these states."""

        def look() -> Job | None:
            job = self.client.job(job_id)
            return job if job.status in statuses else None

        try:
            return wait_until(look, f"{job_id} {statuses}", limit_s)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.client.job(job_id).document}\n{self.all_talk()}") from None

    def until_event(self, job_id: str, name: str) -> dict[str, Any]:
        """The first event of this name."""
        for event in self.client.events(job_id):
            if event.name == name:
                return dict(event.document)
        raise AssertionError(f"the job ended without {name}\n{self.client.job(job_id).document}\n{self.all_talk()}")

    def all_talk(self) -> str:
        return "\n".join(f"--- {process.log.name}\n{process.talk()}" for process in self.processes)

    def _projects(self) -> list[str]:
        return [f"--project={name}={folder}" for name, folder in self.projects.items()]

    def _start(self, words: list[str], log: Path, variables: Mapping[str, str] | None) -> Process:
        process = Process(words, self.root, log, variables)
        self.processes.append(process)
        return process

    def _answers(self) -> bool:
        try:
            return self.api.json("GET", "/healthz")["status"] == "ok"
        except Exception:
            return False


def _checked(process: Process) -> str:
    assert process.popen.poll() is None, process.talk()
    return process.talk()


@contextmanager
def service(root: Path, projects: Mapping[str, Path], storage: str = "") -> Iterator[Service]:
    """A service, ended at the end of the block."""
    made = Service(root, projects, storage)
    try:
        yield made
    finally:
        made.end()


def cli(service: Service, *words: str) -> subprocess.CompletedProcess[str]:
    """A verb that speaks to the server, on the command line."""
    asked = [f"--server={service.url}", f"--token-file={service.token_file}"]
    position = words.index("--") if "--" in words else len(words)
    command = [sys.executable, "-m", "autotune", *words[:position], *asked, *words[position:]]
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, cwd=service.root, check=False)
