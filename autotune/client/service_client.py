"""The client of the API: typed calls for people's programs."""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote, urlencode

from autotune.client.connection import Connection, ServerError, UnreachableError
from autotune.client.token_file import default_token_file, read_token

DEFAULT_URL = "http://127.0.0.1:8642"
FINAL = ("done", "stopped", "cancelled", "failed")
"""States in which a job has ended."""
STREAM_TIMEOUT_S = 45.0
"""Three times the server's ping."""
RECONNECT_FOR_S = 60.0
MAX_LINE = 4 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """A job of the server."""

    id: str
    study: str
    status: str
    """queued, running, paused, done, stopped, cancelled or failed."""
    project: str
    script: str
    document: Mapping[str, Any]
    """The whole document: what `autotune jobs show --json` prints."""

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        """The job of a document."""
        named = {name: str(document.get(name, "")) for name in ("id", "study", "status", "project", "script")}
        return cls(**named, document=document)

    @property
    def is_over(self) -> bool:
        """Whether the job has ended."""
        return self.status in FINAL


@dataclass(frozen=True, kw_only=True, slots=True)
class ServiceEvent:
    """One event of a job."""

    id: int | None
    """Number of the event within the job, from 1; None for `trial_progress`."""
    name: str
    document: Mapping[str, Any]
    """The line of `autotune search --jsonl`."""


class Client:
    """Calls of one server.

    Args:
        url: Base URL of the server.
        token: The token; None = read `token_file`.
        token_file: File with the token; None = the file of `autotune serve` of this user.
        timeout_s: Longest wait for a part of an answer, in seconds.

    Raises:
        UsageError: The URL is not of a server, or the token cannot be read.
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        token: str | None = None,
        token_file: str | os.PathLike[str] | None = None,
        timeout_s: float = 30.0,
    ) -> None:
        if token is None:
            token = read_token(Path(token_file) if token_file is not None else default_token_file())
        self._connection = Connection(url, token, timeout_s=timeout_s)

    @property
    def connection(self) -> Connection:
        """The connection, for calls without a method here."""
        return self._connection

    def projects(self) -> list[str]:
        """Names of the registered projects."""
        return [str(entry["name"]) for entry in self._connection.json("GET", "/v1/projects")["projects"]]

    def submit(
        self,
        project: str,
        script: str,
        args: Sequence[str] = (),
        options: Mapping[str, Any] | None = None,
        *,
        machines: int = 1,
        key: str | None = None,
    ) -> Job:
        """Queues a search; a lost answer is asked for again, and never queues a second job.

        Args:
            project: Name of a registered project.
            script: Path of the script within the project.
            args: Arguments of the script; no secrets.
            options: Options of the search, as in a study file.
            machines: Number of workers of one class that search together.
            key: Idempotency key; None = a new random key.

        Raises:
            ServerError: The server refused the job.
            UnreachableError: The server does not answer.
        """
        body = {
            "project": project,
            "script": script,
            "args": list(args),
            "options": dict(options or {}),
            "machines": machines,
        }
        headers = {"Idempotency-Key": key or secrets.token_hex(16)}
        try:
            return Job.from_document(self._connection.json("POST", "/v1/jobs", body, headers=headers))
        except UnreachableError:
            time.sleep(1.0)
            return Job.from_document(self._connection.json("POST", "/v1/jobs", body, headers=headers))

    def jobs(self, *, statuses: Sequence[str] = (), limit: int = 100) -> list[Job]:
        """The jobs, newest first."""
        query = urlencode([("limit", limit), *(("status", status) for status in statuses)])
        return [Job.from_document(entry) for entry in self._connection.json("GET", f"/v1/jobs?{query}")["jobs"]]

    def job(self, job_id: str) -> Job:
        """The job with its workers, gauges and result."""
        return Job.from_document(self._connection.json("GET", f"/v1/jobs/{_quoted(job_id)}"))

    def pause(self, job_id: str) -> Job:
        """Ends the search after the running trial; `resume` goes on."""
        return self._ask(job_id, "pause")

    def resume(self, job_id: str) -> Job:
        """Queues a paused or stopped job again."""
        return self._ask(job_id, "resume")

    def stop(self, job_id: str) -> Job:
        """Ends the search after the running trial, with the best so far."""
        return self._ask(job_id, "stop")

    def cancel(self, job_id: str) -> Job:
        """Ends the running trial and the search at once."""
        return self._ask(job_id, "cancel")

    def _ask(self, job_id: str, verb: str) -> Job:
        return Job.from_document(self._connection.json("POST", f"/v1/jobs/{_quoted(job_id)}:{verb}", {}))

    def events(self, job_id: str, *, after: int = 0) -> Iterator[ServiceEvent]:
        """The events of the job until the job ends; a lost connection is opened again without a gap.

        Args:
            job_id: The job.
            after: Number of the last known event.

        Raises:
            ServerError: The server refused the request.
            UnreachableError: The server has not answered for a minute.
        """
        lost_at: float | None = None
        while True:
            headers = {"Accept": "text/event-stream", "Last-Event-ID": str(after)}
            path = f"/v1/jobs/{_quoted(job_id)}/events"
            try:
                with self._connection.open("GET", path, None, headers, timeout_s=STREAM_TIMEOUT_S) as response:
                    if response.status == 204:
                        return
                    for event in parse_events(iter(lambda: response.readline(MAX_LINE), b"")):
                        lost_at = None
                        after = event.id if event.id is not None else after
                        yield event
            except (UnreachableError, ServerError) as error:
                if isinstance(error, ServerError) and error.status < 500:
                    raise
                lost_at = lost_at or time.monotonic()
                if time.monotonic() - lost_at > RECONNECT_FOR_S:
                    raise
            time.sleep(0.5)

    def wait(self, job_id: str) -> Job:
        """The job after its end."""
        for _ in self.events(job_id):
            pass
        return self.job(job_id)

    def studies(self) -> dict[str, Any]:
        """The document of `autotune studies list --json`."""
        return self._connection.json("GET", "/v1/studies")

    def best(self, study: str) -> dict[str, Any]:
        """The document of `autotune best --json`."""
        return self._connection.json("GET", f"/v1/studies/{_quoted(study)}/best")

    def trials(self, study: str) -> list[dict[str, Any]]:
        """The trials of a study."""
        found: list[dict[str, Any]] = self._connection.json("GET", f"/v1/studies/{_quoted(study)}/trials")["trials"]
        return found

    def config(self, study: str) -> str:
        """The tuned config of a finished job, as YAML."""
        return self._connection.request("GET", f"/v1/studies/{_quoted(study)}/config")[1].decode()

    def workers(self) -> list[dict[str, Any]]:
        """The workers, by name."""
        found: list[dict[str, Any]] = self._connection.json("GET", "/v1/workers")["workers"]
        return found

    def drain(self, worker_id: str) -> dict[str, Any]:
        """Gives the worker no further job; its running search ends after the running trial."""
        return self._connection.json("POST", f"/v1/workers/{_quoted(worker_id)}:drain", {})

    def enable(self, worker_id: str) -> dict[str, Any]:
        """Gives the worker jobs again."""
        return self._connection.json("POST", f"/v1/workers/{_quoted(worker_id)}:enable", {})


def parse_events(lines: Iterator[bytes]) -> Iterator[ServiceEvent]:
    """The events in the lines of a stream of server-sent events."""
    fields: dict[str, str] = {}
    for line in lines:
        text = line.decode("utf-8", "replace").rstrip("\r\n")
        if text:
            name, _, value = text.partition(":")
            value = value.removeprefix(" ")
            fields[name] = f"{fields[name]}\n{value}" if name == "data" and name in fields else value
            continue
        if "data" in fields:
            number = fields.get("id", "")
            yield ServiceEvent(
                id=int(number) if number.isdigit() else None,
                name=fields.get("event", "message"),
                document=json.loads(fields["data"]),
            )
        fields = {}


def _quoted(text: str) -> str:
    return quote(text, safe="")
