"""The queue, and the live page of one job."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode

from fastapi import Request
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.concurrency import run_in_threadpool
from starlette.responses import RedirectResponse, Response

from autotune.errors import AutotuneError, StudyNotFoundError
from autotune.model.search_result import Status
from autotune.report.summary_text import status_sentence
from autotune.service.api import job_routes
from autotune.service.api.wiring import Queue, TheHub
from autotune.service.hub import Hub
from autotune.service.pages.live_job import LiveJob, tell
from autotune.service.pages.page_route import page_router
from autotune.service.pages.rendering import drawn, fragment, render
from autotune.service.security.door import CALLER
from autotune.store.job_queue import JobQueue
from autotune.store.job_records import JobRecord, JobStatus
from autotune.store.repository import Repository
from autotune.store.secrets import mask_text
from autotune.units import format_seconds

PAGE_SIZE = 50
REFRESH_S = 0.7
"""Shortest time between two updates of a page, in seconds."""
LOOK_S = 15.0
"""Longest time between two looks at a job, in seconds."""
PARTS = ("state", "gauges", "trials")
CHANGES: Mapping[str, Callable[[str, JobQueue, Hub], Any]] = {
    "pause": job_routes.pause,
    "resume": job_routes.resume,
    "stop": job_routes.stop,
    "cancel": job_routes.cancel,
}
"""What a page may do with a job; the API does the same."""

router = page_router()


@router.get("/")
def queue_page(request: Request, queue: Queue, hub: TheHub, status: str = "", before: int | None = None) -> Response:
    """The queue, the newest jobs first."""
    chosen = status if status in list(JobStatus) else ""
    records = queue.jobs(statuses=[JobStatus(chosen)] if chosen else [], before=before, limit=PAGE_SIZE + 1)
    shown, numbers = records[:PAGE_SIZE], queue.num_jobs()
    parameters = {"status": chosen} if chosen else {}
    older = f"/?{urlencode({**parameters, 'before': shown[-1].number})}" if len(records) > PAGE_SIZE else ""
    address = urlencode({**parameters, **({"before": before} if before is not None else {})})
    since = datetime.now(UTC) - timedelta(seconds=hub.alive_s)
    keys = [record.number for record in shown]
    heads, documents = queue.heads(keys), queue.documents(keys)
    jobs = [
        {**_job(job), "so_far": _so_far(job, heads.get(job.number, (0, "", None))[2], documents.get(job.number, {}))}
        for job in shown
    ]
    counts = [(name.value, numbers.get(name, 0)) for name in JobStatus]
    return render(
        request,
        "queue.html",
        here="Queue",
        jobs=jobs,
        counts=[(name, count) for name, count in counts if count or name in ("running", "queued", chosen)],
        chosen=chosen,
        older=older,
        address=f"/?{address}" if address else "/",
        num_workers=sum(worker.seen_at >= since for worker in queue.workers()),
    )


@router.get("/jobs/{job_id}")
def job_page(request: Request, job_id: str, queue: Queue) -> Response:
    """One job with trials, gauges and controls."""
    watched = _Watched(request, queue.job(job_id))
    watched.look()
    job = watched.job
    return render(request, "job.html", **watched.values(), options=_options(job), is_live=job.status.is_active)


@router.get("/jobs/{job_id}/parts")
async def job_parts(request: Request, job_id: str, queue: Queue, hub: TheHub) -> EventSourceResponse:
    """Changing parts of a job's page, as server-sent events of HTML."""
    watch = _Watched(request, await run_in_threadpool(queue.job, job_id))
    return EventSourceResponse(_changes(watch, hub), ping=15, send_timeout=30)


@router.get("/jobs/{job_id}/config")
def job_config(job_id: str, queue: Queue) -> Response:
    """The tuned config of a job, as a file."""
    text = queue.job(job_id).config
    if text is None:
        raise StudyNotFoundError(f"The job {job_id} has no config yet.", "Wait for its end.")
    return config_file(text)


@router.post("/jobs/{job_id}/{change}")
def change_job(job_id: str, change: str, queue: Queue, hub: TheHub) -> Response:
    """Pauses, resumes, stops or cancels a job."""
    if change not in CHANGES:
        raise StudyNotFoundError(f"There is no way to {change!r} a job.", f"The ways are {', '.join(CHANGES)}.")
    CHANGES[change](job_id, queue, hub)
    return RedirectResponse(f"/jobs/{job_id}", HTTPStatus.SEE_OTHER)


def config_file(text: str) -> Response:
    """A tuned config as a file to save."""
    headers = {"Content-Disposition": 'attachment; filename="autotune.yaml"'}
    return Response(text, media_type="application/yaml", headers=headers)


def _job(record: JobRecord) -> dict[str, Any]:
    request = record.request
    return {
        "id": record.job_id,
        "study": record.study,
        "status": record.status.value,
        "wanted": record.wanted.value if record.status.is_active else "",
        "project": request.project,
        "script": request.script,
        "args": request.args,
        "created_at": record.created_at.isoformat(),
        "message": record.message,
    }


def _options(record: JobRecord) -> list[tuple[str, str]]:
    rows = [
        (name, format_seconds(value) if name == "time" and isinstance(value, (int, float)) else _words(value))
        for name, value in record.request.options.items()
    ]
    return [*rows, ("machines", str(record.request.machines))] if record.request.machines > 1 else rows


def _words(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={_words(item)}" for name, item in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_words, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _so_far(record: JobRecord, progress: str | None, document: Mapping[str, Any]) -> str:
    """The gain of an ended search, the phase of a running search, or the reason of a failure."""
    if record.status is JobStatus.FAILED:
        return record.message or f"exit code {record.exit_code}"
    speedup = document.get("speedup")
    if speedup and not record.status.is_active:
        return f"{speedup['ratio']:.2f}x [{speedup['low']:.2f}, {speedup['high']:.2f}]"
    if record.status is JobStatus.DONE:
        return str(document.get("status") or "").replace("_", " ")
    if record.status is not JobStatus.RUNNING or not progress:
        return ""
    return str((json.loads(progress).get("gauges") or {}).get("phase", "")).replace("_", " ")


def _ending(document: Mapping[str, Any]) -> str:
    """The end of a search without a gain in one sentence; empty for a gain, and without a result."""
    if document.get("speedup") or document.get("status") not in list(Status):
        return ""
    return status_sentence(Status(document["status"]), document.get("memory_cap_bytes"))


class _Watched:
    """One watcher's knowledge of a job: every event is read and folded once."""

    def __init__(self, request: Request, job: JobRecord) -> None:
        state = request.app.state
        self._queue: JobQueue = state.queue
        self._studies: Repository = state.repository
        self._caller = request.scope[CALLER]
        self._seen = 0
        self.job = job
        self.live = LiveJob()
        self._parts: dict[str, str] = {}

    def look(self) -> None:
        """Reads the job and its new events."""
        self.job = self._queue.job(self.job.job_id)
        while self._seen < self.job.num_events:
            for event_id, text in self._queue.events(self.job.number, after=self._seen):
                self._seen = event_id
                tell(self.live, json.loads(text))
        if self.job.status is JobStatus.RUNNING and self.job.progress is not None and self.live.is_measuring:
            self.live.gauges = self.job.progress.get("gauges") or {}
        self._read_logs()

    def values(self) -> dict[str, Any]:
        """What the templates show."""
        document = self.job.document or {}
        return {
            "job": _job(self.job),
            "live": self.live,
            "chart": drawn(self.live.chart()),
            "speedup": document.get("speedup"),
            "ending": "" if self.job.status.is_active else _ending(document),
            "has_config": self.job.config is not None,
            "has_report": bool(self.live.started),
            "budget_s": self.live.started.get("budget_s"),
            "spent_s": self.live.spent_s(datetime.now(UTC), is_running=self.job.status is JobStatus.RUNNING),
            "caller": self._caller,
        }

    def changed(self) -> list[tuple[str, str]]:
        """(name, HTML) of the parts that have changed since the last call."""
        self.look()
        values = self.values()
        parts = {name: fragment(f"job_{name}.html", **values) for name in PARTS}
        found = [(name, html) for name, html in parts.items() if self._parts.get(name) != html]
        self._parts = parts
        return found

    def _read_logs(self) -> None:
        failed = [trial for trial in self.live.ended if trial.kind == "failed" and not trial.has_log]
        if not failed:
            return
        try:
            stored = self._studies.trials(self.job.study, with_ranks=False, on_unreadable=lambda number, error: None)
            tails = {trial.number: mask_text(trial.result.log_tail) for trial in stored}
        except AutotuneError:  # the page goes without the logs
            return
        for trial in failed:
            trial.log_tail, trial.has_log = tails.get(trial.number, ""), True


async def _changes(watched: _Watched, hub: Hub) -> AsyncIterator[ServerSentEvent]:
    async with hub.watching(watched.job.number) as watch:
        while not hub.is_closing:
            changed = watch.changed
            for name, html in await run_in_threadpool(watched.changed):
                yield ServerSentEvent(html, event=name, sep="\n")
            if not watched.job.status.is_active:
                yield ServerSentEvent("ended", event="end", sep="\n")
                return
            with suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), LOOK_S)
            await asyncio.sleep(REFRESH_S)
