"""Routes of pages: an error becomes a page with the same words as on the command line."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from http import HTTPStatus
from typing import Any

from fastapi import APIRouter
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from autotune.errors import AutotuneError
from autotune.service.pages.rendering import render
from autotune.service.problems import of_error


class PageRoute(APIRoute):
    """A route with pages in place of problem documents."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler, with errors as pages."""
        handler = super().get_route_handler()

        async def run(request: Request) -> Response:
            try:
                return await handler(request)
            except AutotuneError as error:
                status, _ = of_error(error)
                return problem_page(request, status, error.message, error.hint)
            except HTTPException as error:
                return problem_page(request, HTTPStatus(error.status_code), str(error.detail))

        return run


def problem_page(request: Request, status: HTTPStatus, message: str, hint: str = "") -> Response:
    """A page that says what is wrong."""
    title = "Not found" if status is HTTPStatus.NOT_FOUND else status.phrase
    return render(request, "problem.html", status, title=title, message=message, hint=hint)


def page_router() -> APIRouter:
    """A router of pages, outside the description of the API."""
    return APIRouter(route_class=PageRoute, include_in_schema=False)
