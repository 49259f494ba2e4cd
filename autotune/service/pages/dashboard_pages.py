"""Optuna's dashboard behind the same door, for reading alone.

The dashboard is an optional package with fixed paths: `/dashboard`, `/api`, `/static`, `/csv`. The package has no
sign-in, and accepts changes from pages of other sites, so only GET reaches the dashboard here.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from http import HTTPStatus
from importlib.util import find_spec
from threading import Lock
from typing import Any

from fastapi import Request
from starlette.responses import RedirectResponse, Response

from autotune.service.api.wiring import Studies
from autotune.service.pages.page_route import page_router, problem_page
from autotune.store.repository import Repository

PACKAGE = "optuna_dashboard"
LOCK = Lock()
WsgiApp = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]

router = page_router()


@router.get("/optuna")
def optuna_page(request: Request) -> Response:
    """Leads to the dashboard, or says how to install it."""
    if find_spec(PACKAGE) is not None:
        return RedirectResponse("/dashboard", HTTPStatus.SEE_OTHER)
    words = "Optuna's dashboard is not installed at the server."
    return problem_page(request, HTTPStatus.NOT_FOUND, words, "Install it there: pip install optuna-dashboard")


@router.get("/dashboard{rest:path}")
@router.get("/api/{rest:path}")
@router.get("/static/{rest:path}")
@router.get("/csv/{rest:path}")
def dashboard(request: Request, studies: Studies) -> Response:
    """An answer of the dashboard."""
    if find_spec(PACKAGE) is None:
        return optuna_page(request)
    return _answer(_application(request, studies), request)


def _application(request: Request, studies: Repository) -> WsgiApp:
    """The dashboard's application, made once for a server."""
    with LOCK:
        state = request.app.state
        if not hasattr(state, "optuna_dashboard"):
            import optuna_dashboard

            state.optuna_dashboard = optuna_dashboard.wsgi(studies.optuna_storage)
        application: WsgiApp = state.optuna_dashboard
        return application


def _answer(application: WsgiApp, request: Request) -> Response:
    scope = request.scope
    environ = {
        "REQUEST_METHOD": "GET",
        "SCRIPT_NAME": "",
        "PATH_INFO": scope["path"].encode("utf-8", "surrogateescape").decode("latin-1"),
        "QUERY_STRING": scope["query_string"].decode("latin-1"),
        "SERVER_NAME": "localhost",
        "SERVER_PORT": "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
        # The dashboard reads the first without asking; no other header of the request reaches the package.
        "HTTP_ACCEPT_ENCODING": request.headers.get("accept-encoding", ""),
        "HTTP_IF_MODIFIED_SINCE": request.headers.get("if-modified-since", ""),
        "wsgi.version": (1, 0),
        "wsgi.input": io.BytesIO(),
        "wsgi.errors": io.StringIO(),
        "wsgi.url_scheme": "http",
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
    }
    started: list[tuple[str, list[tuple[str, str]]]] = []
    parts = application(environ, lambda status, headers, *_: started.append((status, headers)))
    try:
        body = b"".join(parts)
    finally:
        if hasattr(parts, "close"):  # an open file
            parts.close()
    status, headers = started[-1]
    response = Response(body, int(status.split()[0]))
    for name, value in headers:
        if name.lower() not in ("content-length", "connection", "set-cookie"):
            response.headers[name] = value
    return response
