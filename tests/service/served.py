"""A real server of the service in a thread of this process, on a free port and a database in a folder."""

from __future__ import annotations

import json
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from http.client import HTTPConnection
from typing import Any

import uvicorn

from autotune.service.app import create_app
from autotune.service.security.slow_clients import BoundedProtocol
from autotune.service.service_settings import ServiceSettings
from autotune.store.job_queue import JobQueue
from autotune.store.job_records import Heartbeat, LeaseEnd, LeaseState, WorkerRecord

TOKEN, READER, WORKER = "t" * 43, "r" * 43, "w" * 43
PROJECT = "demo"


@dataclass
class Reply:
    """One answer."""

    status: int
    headers: dict[str, str]
    text: str
    cookies: list[str]

    @property
    def json(self) -> Any:
        return json.loads(self.text)


@dataclass
class Served:
    """A running server; `ask` speaks to the server with the full token unless told otherwise."""

    app: Any
    port: int
    storage: str

    @property
    def base(self):
        return f"http://127.0.0.1:{self.port}"

    def ask(self, method, target, body=None, *, token: str | None = TOKEN, headers=None):
        connection = HTTPConnection("127.0.0.1", self.port, timeout=30)
        sent = {"Authorization": f"Bearer {token}"} if token else {}
        if isinstance(body, (dict, list)):
            body, sent["Content-Type"] = json.dumps(body), "application/json"
        try:
            connection.request(method, target, body, {**sent, **(headers or {})})
            answer = connection.getresponse()
            pairs = [(name.lower(), value) for name, value in answer.getheaders()]
            cookies = [value for name, value in pairs if name == "set-cookie"]
            return Reply(answer.status, dict(pairs), answer.read().decode(), cookies)
        finally:
            connection.close()

    def get(self, target, **kwargs):
        return self.ask("GET", target, **kwargs)

    def browser(self):
        """Headers of a signed-in browser on our own pages."""
        target = self.app.state.security.browser_url("")
        cookie = self.get(target, token=None).cookies[0].partition(";")[0]
        return {"Cookie": cookie, "Origin": self.base, "Sec-Fetch-Site": "same-origin"}

    def submit(self, **changes):
        """The id of a new job."""
        body = {"project": PROJECT, "script": "train.py", **changes}
        answer = self.ask("POST", "/v1/jobs", body)
        assert answer.status == 202, answer.text
        return answer.json["id"]

    def work(self, events=(), *, progress=None, end: LeaseEnd | None = None):
        """A worker takes the next job, tells events, and may end the job."""
        now = datetime.now(UTC)
        with JobQueue.open(self.storage) as queue:
            queue.register(
                WorkerRecord(
                    worker_id="node-1",
                    session="s" * 16,
                    machine="node-1",
                    machine_class="c",
                    description={"host": "node-1", "memory_bytes": 64 << 30, "usable_cpus": 8.0, "torch": "2.13.0"},
                    devices=(),
                    cpus=(0, 1),
                    projects={PROJECT: "/projects/demo"},
                    registered_at=now,
                    seen_at=now,
                )
            )
            granted = queue.grant("node-1", "s" * 16, now=now, alive_s=60.0)
            assert granted is not None
            lease, _ = granted
            texts = [json.dumps({"schema": 1, "at": now.isoformat(), **event}) for event in events]
            told = json.dumps(progress) if progress is not None else None
            beat = Heartbeat(lease_id=lease.lease_id, fence=lease.fence, new_events=tuple(texts), progress=told)
            queue.heartbeat(beat, now=now)
            if end is not None:
                queue.complete(lease.lease_id, lease.fence, end, now=now, alive_s=60.0)


@contextmanager
def served(folder, **changes):
    """A server with the project `demo`, which holds `train.py`."""
    project = folder / PROJECT
    project.mkdir(exist_ok=True)
    (project / "train.py").write_text("print('hello')\n")
    storage = f"sqlite:///{folder / 'service.db'}"
    settings = {"storage": storage, "projects": {PROJECT: project}, "token": TOKEN, "read_only_tokens": (READER,)}
    settings = {**settings, "worker_tokens": (WORKER,), **changes}
    app = create_app(ServiceSettings(**settings))
    config = uvicorn.Config(
        app, host="127.0.0.1", port=0, log_level="error", access_log=False, http=BoundedProtocol, ws="none"
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive(), "the server has not started"
            time.sleep(0.02)
        yield Served(app, server.servers[0].sockets[0].getsockname()[1], settings["storage"])
    finally:
        app.state.hub.close()
        server.should_exit = True
        thread.join(20)


def done(**document) -> LeaseEnd:
    """A search that ended well."""
    ratio = {"speedup": {"ratio": 1.86, "low": 1.41, "high": 2.46}}
    return LeaseEnd(state=LeaseState.DONE, exit_code=0, document={**ratio, **document}, config="schema: 1\n")
