"""What everybody may open without a token: the sign-in, the pages' own files, and the health of the server."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from autotune.service.pages.assets import ASSETS
from autotune.service.pages.rendering import render
from autotune.service.security.door import Security
from autotune.service.security.sign_in import sign_in_routes


def outside_routes(security: Security) -> list[BaseRoute]:
    """The routes in front of the door."""
    return [
        *sign_in_routes(security, _sign_in_page),
        Route("/assets/{name}", _asset, methods=["GET"], name="asset"),
    ]


def _sign_in_page(request: Request, status: int, *, signed_in: bool, problem: str = "") -> Response:
    return render(request, "login.html", status, signed_in=signed_in, problem=problem)


async def _asset(request: Request) -> Response:
    # Looked up by name in a table made at the start: no path of a request ever reaches the file system.
    found = ASSETS.get(request.path_params["name"])
    if found is None:
        return PlainTextResponse("There is no such file.", 404)
    return Response(found.content, media_type=found.media_type, headers={"Cache-Control": "public, max-age=31536000"})
