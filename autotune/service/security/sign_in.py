"""Signs browsers in: by the printed URL with a token for a single use, or by a token typed into a form."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from autotune.service.security.door import CALLER, IS_LOGGED, LOGIN, Security, failed_token
from autotune.service.security.refusal import RefusalError
from autotune.service.security.sessions import SESSION_S, cookie_name
from autotune.service.security.tokens import Caller, Role

LOGOUT = "/logout"
Page = Callable[..., Response]
"""Renders the page of the sign-in: (request, status, **values)."""


def sign_in_routes(security: Security, page: Page) -> list[Route]:
    """The routes `/login` and `/logout`.

    Args:
        security: Tokens, sessions and the audit.
        page: Renders the sign-in page with the values `signed_in`, `problem`.
    """

    async def show(request: Request) -> Response:
        token = request.query_params.get("once")
        if token is None:
            return page(request, HTTPStatus.OK, signed_in=request.scope[CALLER] is not None)
        caller = security.one_time.redeem(token)
        if caller is None:
            refusal = failed_token(security, _address(request))
            if refusal.is_logged:
                _log(security, request, None, refusal.status, "The one-time token was used before, or is too old.")
            return _refused(page, request, refusal, "This link was used before, or is too old.")
        return _welcome(security, request, caller, page)

    async def enter(request: Request) -> Response:
        fields = parse_qs((await request.body()).decode("utf-8", "replace"), max_num_fields=4)
        caller = security.book.caller_of(fields.get("token", [""])[0].strip())
        if caller is None or caller.role is Role.WORKER:  # There is no page for workers.
            refusal = failed_token(security, _address(request))
            request.scope[IS_LOGGED] = refusal.is_logged
            return _refused(page, request, refusal, "This token is not valid.")
        return _welcome(security, request, caller, page)

    async def leave(request: Request) -> Response:
        response = RedirectResponse(LOGIN, HTTPStatus.SEE_OTHER)
        response.delete_cookie(cookie_name(request.headers["host"]), httponly=True, samesite="strict")
        return response

    return [
        Route(LOGIN, show, methods=["GET"], name="login"),
        Route(LOGIN, enter, methods=["POST"], name="login_enter"),
        Route(LOGOUT, leave, methods=["POST"], name="logout"),
    ]


def _welcome(security: Security, request: Request, caller: Caller, page: Page) -> Response:
    """A page with a cookie for the session; the page opens the service without a click.

    After a click on a foreign page, browsers take a redirect for the foreign site's, and hold a strict cookie back.
    """
    _log(security, request, caller, HTTPStatus.OK, "signed in")
    response = page(request, HTTPStatus.OK, signed_in=True)
    response.set_cookie(
        cookie_name(request.headers["host"]),
        security.sessions.start(caller),
        max_age=SESSION_S,
        httponly=True,
        samesite="strict",
        secure=request.scope["scheme"] == "https",
    )
    return response


def _refused(page: Page, request: Request, refusal: RefusalError, problem: str) -> Response:
    words = problem if refusal.status is HTTPStatus.UNAUTHORIZED else refusal.detail
    response = page(request, refusal.status, signed_in=False, problem=words)
    for name, value in refusal.headers:
        if name != "WWW-Authenticate":  # browsers would ask for a password
            response.headers[name] = value
    return response


def _log(security: Security, request: Request, caller: Caller | None, status: int, reason: str) -> None:
    security.audit.write(
        address=_address(request),
        caller=caller.name if caller is not None else "",
        method=request.method,
        path=request.scope["path"],
        status=status,
        reason=reason,
    )


def _address(request: Request) -> str:
    client: Any = request.scope.get("client") or ("", 0)
    return str(client[0])
