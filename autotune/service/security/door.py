"""The way into the service: every request passes Host, token, rights, origin and body before any route runs.

The door never decides by the text of a URL. Anonymous requests reach a small router with sign-in, static files and
health. Every other route lies behind a valid token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Match, Route, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from autotune.service.security.audit import AuditLog
from autotune.service.security.bodies import (
    MAX_BODY_BYTES,
    MAX_SIGN_IN_BYTES,
    BodyTooLargeError,
    ClientGoneError,
    SlowBodyError,
    bounded,
)
from autotune.service.security.failed_tokens import FailedTokens
from autotune.service.security.origins import AllowedHosts, is_own_page
from autotune.service.security.refusal import RefusalError
from autotune.service.security.response_headers import add_headers
from autotune.service.security.sessions import OneTimeTokens, Sessions, cookie_name
from autotune.service.security.tokens import Caller, Role, TokenBook
from autotune.service.service_settings import ServiceSettings

READING = ("GET", "HEAD")
"""Methods without effect; a read-only token is refused every other method."""
CALLER = "autotune.caller"
"""Key of the scope with the `Caller`, or None for an anonymous request."""
IS_LOGGED = "autotune.is_logged"
"""Key of the scope: False keeps an open route's answer out of the audit log."""
LOGIN = "/login"
HEALTH = "/healthz"


@dataclass(frozen=True, slots=True)
class Security:
    """What the door knows."""

    book: TokenBook
    sessions: Sessions
    hosts: AllowedHosts
    audit: AuditLog
    one_time: OneTimeTokens = field(default_factory=OneTimeTokens)
    failed: FailedTokens = field(default_factory=FailedTokens)

    def browser_url(self, base: str) -> str:
        """A URL that signs the owner's browser in, once; the base itself without any token.

        Args:
            base: The service's URL, without a slash at the end.
        """
        owner = self.book.owner()
        return base if owner is None else f"{base}{LOGIN}?once={self.one_time.issue(owner)}"


def open_security(settings: ServiceSettings) -> Security:
    """The security of a server.

    Raises:
        UsageError: A token is too short.
    """
    book = TokenBook(settings.token, settings.read_only_tokens, settings.worker_tokens)
    hosts = AllowedHosts((settings.host, *settings.allowed_hosts))
    return Security(book, Sessions(book), hosts, AuditLog(settings.audit_log))


class Door:
    """The guarded service, as an ASGI application.

    Args:
        app: The application behind the door.
        outside: Routes open to everybody; so is the application's health check.
        security: Tokens, hosts and the audit log.
        for_workers: Routes for workers: all that a worker's token opens, and closed to browsers.
    """

    def __init__(
        self, app: ASGIApp, outside: Sequence[BaseRoute], security: Security, for_workers: Sequence[BaseRoute] = ()
    ) -> None:
        self._inside, self._security, self._for_workers = app, security, tuple(for_workers)
        self._outside_routes = (*outside, Route(HEALTH, app, methods=list(READING)))
        self._outside = Router(self._outside_routes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request, or passes the request on."""
        if scope["type"] == "lifespan":
            await self._inside(scope, receive, send)
        elif scope["type"] != "http":  # the service has no WebSockets
            await send({"type": "websocket.close", "code": 1008})
        else:
            is_outside = any(match is not Match.NONE for match in _matches(self._outside_routes, scope))
            visit = _Visit(self._security, scope, send, lambda: Match.FULL in _matches(self._for_workers, scope))
            await visit.run(receive, self._inside, self._outside, is_outside)


def _matches(routes: Sequence[BaseRoute], scope: Scope) -> Iterator[Match]:
    # A copy, because matching a route may write to the scope.
    return (route.matches(dict(scope))[0] for route in routes)


class _Visit:
    """One request at the door."""

    def __init__(self, security: Security, scope: Scope, send: Send, is_for_workers: Callable[[], bool]) -> None:
        self._security, self._scope, self._raw_send = security, scope, send
        self._is_for_workers = is_for_workers
        self._headers = Headers(scope=scope)
        self._address = (scope.get("client") or ("", 0))[0]
        self._caller: Caller | None = None
        self._reason = ""
        self._is_logged = scope["method"] not in READING

    async def run(self, receive: Receive, inside: ASGIApp, outside: ASGIApp, is_outside: bool) -> None:
        """Checks the request, and lets it in or refuses it."""
        try:
            self._check_host()
            self._caller = self._scope[CALLER] = self._identify()
            if not is_outside:
                self._check_rights()
            self._check_origin(is_outside)
            receive = await self._body(receive, MAX_SIGN_IN_BYTES if is_outside else MAX_BODY_BYTES)
        except RefusalError as refusal:
            self._reason, self._is_logged = refusal.detail, refusal.is_logged and not self._is_flood(refusal)
            await self._refused(refusal)(self._scope, receive, self._send)
        except ClientGoneError:
            return
        else:
            await (outside if is_outside else inside)(self._scope, receive, self._send)

    def _is_flood(self, refusal: RefusalError) -> bool:
        """Counts a refusal of an unknown caller; whether the address has had too many."""
        is_known = self._caller is not None or refusal.is_counted
        return not is_known and self._security.failed.count(self._address) > 0

    def _check_host(self) -> None:
        refusal = self._security.hosts.refusal(self._headers.getlist("host"))
        if refusal is not None:
            malformed = len(self._headers.getlist("host")) != 1 or "malformed" in refusal
            status = HTTPStatus.BAD_REQUEST if malformed else HTTPStatus.MISDIRECTED_REQUEST
            raise RefusalError(status, refusal)

    def _identify(self) -> Caller | None:
        """The caller; None for an anonymous request.

        Raises:
            RefusalError: The request has an invalid token.
        """
        given = self._headers.getlist("authorization")
        if given:
            kind, _, token = given[0].partition(" ")
            caller = self._security.book.caller_of(token.strip())
            if len(given) > 1 or kind.lower() != "bearer" or caller is None:
                raise failed_token(self._security, self._address)
            return caller
        cookies = cookie_parser(self._headers.get("cookie", ""))
        cookie = cookies.get(cookie_name(self._headers["host"]))
        return self._security.sessions.caller_of(cookie) if cookie else None

    def _check_rights(self) -> None:
        if self._caller is None:
            raise RefusalError(
                HTTPStatus.UNAUTHORIZED, "The request has no token.", (("WWW-Authenticate", "Bearer"),), is_logged=False
            )
        if self._caller.role is Role.READ_ONLY and self._scope["method"] not in READING:
            raise RefusalError(HTTPStatus.FORBIDDEN, "The token is read-only.")
        if self._caller.role is Role.WORKER and not self._is_for_workers():
            raise RefusalError(HTTPStatus.FORBIDDEN, "The token is for workers alone.")
        if self._caller.by_cookie and self._is_for_workers():
            raise RefusalError(HTTPStatus.FORBIDDEN, "A browser is no worker.")

    def _check_origin(self, is_outside: bool) -> None:
        by_browser = is_outside or (self._caller is not None and self._caller.by_cookie)
        if self._scope["method"] in READING or not by_browser:
            return
        if not is_own_page(self._headers, self._headers["host"]):
            raise RefusalError(HTTPStatus.FORBIDDEN, "The request comes from a page of another site.")

    async def _body(self, receive: Receive, max_bytes: int) -> Receive:
        close = (("Connection", "close"),)
        try:
            return await bounded(self._scope, receive, max_bytes)
        except BodyTooLargeError:
            words = f"The body has more than {max_bytes} bytes."
            raise RefusalError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, words, close) from None
        except SlowBodyError:
            raise RefusalError(HTTPStatus.REQUEST_TIMEOUT, "The body did not arrive in time.", close) from None

    def _refused(self, refusal: RefusalError) -> Response:
        wants_page = "text/html" in self._headers.get("accept", "") and self._scope["method"] in READING
        if refusal.status is HTTPStatus.UNAUTHORIZED and wants_page:
            return RedirectResponse(LOGIN, HTTPStatus.SEE_OTHER)
        return refusal.response()

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            add_headers(MutableHeaders(scope=message))
            if self._is_logged and self._scope.get(IS_LOGGED, True):
                self._log(message["status"])
        await self._raw_send(message)

    def _log(self, status: int) -> None:
        self._security.audit.write(
            address=self._address,
            caller=self._caller.name if self._caller is not None else "",
            method=self._scope["method"],
            path=self._scope["path"],
            status=status,
            reason=self._reason,
        )


def failed_token(security: Security, address: str) -> RefusalError:
    """Counts a failed token of the address; gives the refusal."""
    seconds = security.failed.count(address)
    if seconds:
        words = "Too many failed tokens came from this address."
        headers = (("Retry-After", str(seconds)),)
        return RefusalError(HTTPStatus.TOO_MANY_REQUESTS, words, headers, is_logged=False, is_counted=True)
    headers = (("WWW-Authenticate", "Bearer"),)
    return RefusalError(HTTPStatus.UNAUTHORIZED, "The token is not valid.", headers, is_counted=True)
