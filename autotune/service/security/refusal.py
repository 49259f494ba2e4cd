"""Refusals of the door: a problem+json document for programs, a short page for browsers."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus

from starlette.responses import Response

from autotune.service.problems import problem_response


@dataclass(frozen=True, slots=True)
class RefusalError(Exception):
    """A refused request."""

    status: HTTPStatus
    detail: str
    """One sentence with the reason; never a part of a secret."""
    headers: tuple[tuple[str, str], ...] = ()
    is_logged: bool = True
    """False for failures above the limit: a flood of requests must not fill the audit log."""
    is_counted: bool = False
    """Whether the failure has been counted for its address."""

    def response(self) -> Response:
        """The answer as problem+json."""
        response = problem_response(self.status, self.status.name.lower(), self.detail)
        response.headers.update(dict(self.headers))
        return response
