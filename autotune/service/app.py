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

`security.protect` wraps the whole application, so every route is behind the same door.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from autotune import __version__
from autotune.service.api import health_routes
from autotune.service.pages import add_pages
from autotune.service.problems import add_problem_handlers
from autotune.service.security import protect
from autotune.service.service_settings import ServiceSettings

OPENAPI_PATH = "/v1/openapi.json"


def create_app(settings: ServiceSettings) -> FastAPI:
    """The application of a server.

    Args:
        settings: The server's settings; `app.state.settings` keeps them for the routes.
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
    app.include_router(health_routes.router)
    add_pages(app)
    protect(app, settings)
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    yield
