"""The workers, with drain and enable."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from typing import Any

from fastapi import Request
from starlette.responses import RedirectResponse, Response

from autotune.errors import StudyNotFoundError
from autotune.service.api import worker_routes
from autotune.service.api.wiring import Queue, TheHub
from autotune.service.hub import Hub
from autotune.service.pages.page_route import page_router
from autotune.service.pages.rendering import render
from autotune.store.job_queue import JobQueue
from autotune.units import format_bytes

CHANGES: Mapping[str, Callable[[str, JobQueue, Hub], Any]] = {
    "drain": worker_routes.drain,
    "enable": worker_routes.enable,
}
"""What a page may do with a worker; the API does the same."""

router = page_router()


@router.get("/workers")
def workers_page(request: Request, queue: Queue, hub: TheHub) -> Response:
    """The workers, by name."""
    workers = [_shown(worker) for worker in worker_routes.list_workers(queue, hub)["workers"]]
    base = f"{request.scope['scheme']}://{request.headers['host']}"
    return render(request, "workers.html", here="Workers", workers=workers, base=base)


@router.post("/workers/{worker_id}/{change}")
def change_worker(worker_id: str, change: str, queue: Queue, hub: TheHub) -> Response:
    """Drains or enables a worker."""
    if change not in CHANGES:
        raise StudyNotFoundError(f"There is no way to {change!r} a worker.", f"The ways are {', '.join(CHANGES)}.")
    CHANGES[change](worker_id, queue, hub)
    return RedirectResponse("/workers", HTTPStatus.SEE_OTHER)


def _shown(worker: Mapping[str, Any]) -> dict[str, Any]:
    """A worker's document with the words and the lamp of its state."""
    lamp, words = worker["status"], worker["status"]
    if not worker["is_alive"]:
        lamp, words = "lost", "no sign of life"
    elif worker["job"] and lamp == "ready":
        lamp = words = "busy"
    return {**worker, "lamp": lamp, "words": words, "facts": [fact for fact in _facts(worker) if fact[1]]}


def _facts(worker: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    about = worker["description"]
    cores, memory = about.get("usable_cpus"), about.get("memory_bytes")
    yield "host", str(about.get("host") or worker["machine"])
    yield (
        "device",
        " x ".join(str(about[name]) for name in ("num_devices", "device") if about.get(name) not in (None, 1)),
    )
    yield "cores", f"{cores:g}" if isinstance(cores, (int, float)) else ""
    yield "memory", format_bytes(memory) if isinstance(memory, (int, float)) else ""
    yield "torch", str(about.get("torch") or "")
    yield "driver", str(about.get("driver") or "")
    yield "Python", str(about.get("python") or "")
    yield "projects", ", ".join(worker["projects"])
    yield "class", worker["class"]
