"""Makes the ASGI application of the service.

| path | file | what |
| --- | --- | --- |
| `/v1/jobs...` | `api/job_routes.py` | submit, list, show, pause, resume, stop, cancel |
| `/v1/jobs/{id}/events` | `api/event_routes.py` | events of a job, as server-sent events |
| `/v1/studies...` | `api/study_routes.py` | studies, trials, best, config, report |
| `/v1/workers...` | `api/worker_routes.py` | register, list, lease, drain, enable |
| `/v1/leases/{id}:...` | `api/lease_routes.py` | heartbeat, complete |
| `/healthz`, `/metrics` | `api/health_routes.py` | state of the server, and figures for Prometheus |
| `/v1/openapi.json` | FastAPI | the description of the API |
| `/`, `/jobs`, ... | `pages/` | pages for browsers |

`security.door.Door` wraps the whole application, so every route is behind the same door; `pages/outside.py` has the few
routes in front of the door, and `FOR_WORKERS` the routes that a worker's token opens.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from autotune import __version__
from autotune.service.api import event_routes, health_routes, job_routes, lease_routes, study_routes, worker_routes
from autotune.service.hub import Hub
from autotune.service.pages import dashboard_pages, job_pages, study_pages, submit_page, worker_pages
from autotune.service.pages.outside import outside_routes
from autotune.service.problems import add_problem_handlers
from autotune.service.security.door import Door, open_security
from autotune.service.service_settings import ServiceSettings
from autotune.store.job_queue import JobQueue
from autotune.store.repository import Repository

OPENAPI_PATH = "/v1/openapi.json"
FOR_WORKERS = (worker_routes.for_workers, lease_routes.router)
ROUTERS = (
    *(job_routes.router, event_routes.router, study_routes.router, worker_routes.router, *FOR_WORKERS),
    *(health_routes.router, job_pages.router, study_pages.router, worker_pages.router, submit_page.router),
    dashboard_pages.router,
)


def create_app(settings: ServiceSettings) -> FastAPI:
    """The application of a server.

    While the application runs, `app.state` has `settings`, `repository` (studies), `queue` (`JobQueue`) `hub`
    (`Hub`) and `security` (`Security`).

    Args:
        settings: The server's settings.
    """
    app = FastAPI(
        title="autotune",
        version=__version__,
        openapi_url=OPENAPI_PATH,
        docs_url=None,
        redoc_url=None,
        lifespan=_lifespan,
    )
    app.state.settings = settings
    add_problem_handlers(app)
    for router in ROUTERS:
        app.include_router(router)
    security = app.state.security = open_security(settings)
    for_workers = [route for router in FOR_WORKERS for route in router.routes]
    app.add_middleware(Door, outside=outside_routes(security), security=security, for_workers=for_workers)
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Keeps the queue open, and the hub running, while the application runs."""
    storage = app.state.settings.storage
    with Repository.open(storage) as repository, JobQueue.open(storage) as queue:
        app.state.repository, app.state.queue = repository, queue
        app.state.hub = Hub(queue, lease_ttl_s=app.state.settings.lease_ttl_s)
        try:
            async with app.state.hub.running():
                yield
        finally:
            app.state.security.audit.close()
