"""`/healthz` and `/metrics`: the state of the server for load balancers and Prometheus."""

from __future__ import annotations

import resource
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

from fastapi import APIRouter, Response

from autotune import __version__
from autotune.service.api.wiring import Queue, TheHub
from autotune.store.job_records import JobStatus, LeaseState, WorkerStatus

router = APIRouter(tags=["health"])
PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


@router.get("/healthz")
def healthz(queue: Queue) -> dict[str, Any]:
    """Whether the server and the database answer; a lost database gives 503."""
    queue.num_changes()
    return {"status": "ok", "version": __version__}


@router.get("/metrics", response_class=Response)
def metrics(queue: Queue, hub: TheHub) -> Response:
    """Figures of the queue, for Prometheus."""
    num_jobs, workers = queue.num_jobs(), queue.workers()
    since = datetime.now(UTC) - timedelta(seconds=hub.alive_s)
    states = Counter(worker.status for worker in workers)
    lines = [
        *_family("autotune_jobs", "Jobs by state.", {f'status="{s}"': num_jobs.get(s, 0) for s in JobStatus}),
        *_family("autotune_workers", "Workers by state.", {f'status="{s}"': states[s] for s in WorkerStatus}),
        *_family("autotune_workers_alive", "Living workers.", {"": sum(w.seen_at >= since for w in workers)}),
        *_family("autotune_leases_held", "Held leases.", {"": len(queue.leases(state=LeaseState.HELD))}),
        *_family("autotune_workers_waiting", "Workers that wait here for a lease.", {"": hub.num_waiting}),
        *_family("autotune_watchers", "Open event streams of this server.", {"": hub.num_watchers}),
        *_family("autotune_late_results", "Late results kept as evidence.", {"": len(queue.late_results())}),
        *_family(
            "autotune_server_peak_memory_bytes",
            "Largest resident memory of this server.",
            {"": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024},
        ),
    ]
    return Response("\n".join(lines) + "\n", media_type=PROMETHEUS)


def _family(name: str, description: str, values: dict[str, float]) -> list[str]:
    samples = [f"{name}{{{labels}}} {value}" if labels else f"{name} {value}" for labels, value in values.items()]
    return [f"# HELP {name} {description}", f"# TYPE {name} gauge", *samples]
