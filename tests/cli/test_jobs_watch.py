"""What `autotune jobs` tells of a job of the service, and its exit code."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from autotune.cli.jobs_verb import show, watch_job
from autotune.client import Job, ServiceEvent


class Service:
    """Answers as a server with one job does, which has ended."""

    def __init__(self, **document: Any) -> None:
        self._job = Job.from_document(
            {"id": "3f2a9c", "study": "train", "script": "train.py", "project": "p", **document}
        )

    def events(self, job_id: str) -> Iterator[ServiceEvent]:
        document = {"event": "notice", "at": "2026-01-01T12:00:00", "message": self._job.document.get("message", "")}
        yield ServiceEvent(id=1, name="notice", document=document)

    def job(self, job_id: str) -> Job:
        return self._job


@pytest.mark.parametrize(
    ("status", "exit_code", "expected"),
    [
        ("done", 0, 0),
        pytest.param("done", 7, 7, id="no gain, with --require-gain"),
        pytest.param("done", 8, 8, id="a gain in doubt, with --require-gain"),
        ("done", None, 0),
        ("failed", 4, 4),
        ("failed", None, 1),
        ("stopped", 130, 130),
        ("cancelled", -15, 130),
    ],
)
def test_the_exit_code_of_a_watch_is_the_searchs(status: str, exit_code: int | None, expected: int) -> None:
    client: Any = Service(status=status, exit_code=exit_code)
    assert watch_job(client, "3f2a9c", as_json=False) == expected


def test_what_a_worker_tells_cannot_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    hidden = "all is well\x1b[2K\x1b[1A"
    client: Any = Service(message=hidden, status="failed", exit_code=4)
    watch_job(client, "3f2a9c", as_json=False)
    show(Service(status="failed", message=hidden).job("3f2a9c"), as_json=False)
    out = capsys.readouterr().out
    assert out.count("all is well") == 2 and "\x1b" not in out
