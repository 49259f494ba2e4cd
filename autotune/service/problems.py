"""Errors of the API as documents of the type `application/problem+json`, with the names of our exit codes."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from autotune.errors import (
    AutotuneError,
    EveryTrialFailedError,
    HostError,
    LeaseLostError,
    NoFeasibleSettingsError,
    StoreError,
    StudyExistsError,
    StudyNotFoundError,
    UsageError,
)

MEDIA_TYPE = "application/problem+json"
_KINDS: tuple[tuple[type[AutotuneError], HTTPStatus, str], ...] = (
    (StudyNotFoundError, HTTPStatus.NOT_FOUND, "not_found"),
    (StudyExistsError, HTTPStatus.CONFLICT, "exists"),
    (LeaseLostError, HTTPStatus.CONFLICT, "lease_lost"),
    (UsageError, HTTPStatus.UNPROCESSABLE_ENTITY, "usage"),
    (NoFeasibleSettingsError, HTTPStatus.CONFLICT, "no_feasible_settings"),
    (EveryTrialFailedError, HTTPStatus.CONFLICT, "every_trial_failed"),
    (StoreError, HTTPStatus.SERVICE_UNAVAILABLE, "store"),
    (HostError, HTTPStatus.CONFLICT, "host"),
    (AutotuneError, HTTPStatus.INTERNAL_SERVER_ERROR, "error"),
)
"""Status and name of each error, subclasses first."""


class Problem(HTTPException):
    """An error of a request, with a name for programs.

    Args:
        status: Status of the response.
        name: Stable name of the error, such as `not_found`.
        message: One sentence with the name of the thing and its value.
        hint: One sentence of advice; empty for none.
    """

    def __init__(self, status: HTTPStatus, name: str, message: str, hint: str = "") -> None:
        super().__init__(status, message)
        self.name, self.hint = name, hint


def problem_document(status: HTTPStatus, name: str, message: str, hint: str = "", **more: Any) -> dict[str, Any]:
    """The document of an error, after RFC 9457."""
    document = {"type": f"urn:autotune:{name}", "title": status.phrase, "status": int(status), "detail": message}
    return {**document, "code": name, **({"hint": hint} if hint else {}), **more}


def problem_response(status: HTTPStatus, name: str, message: str, hint: str = "", **more: Any) -> JSONResponse:
    """The response for an error; middleware may use the function too."""
    return JSONResponse(problem_document(status, name, message, hint, **more), int(status), media_type=MEDIA_TYPE)


def of_error(error: AutotuneError) -> tuple[HTTPStatus, str]:
    """Status and name for an error of ours."""
    return next((status, name) for kind, status, name in _KINDS if isinstance(error, kind))


def add_problem_handlers(app: FastAPI) -> None:
    """Makes every error of the application a problem document."""

    @app.exception_handler(AutotuneError)
    async def _ours(_: Request, error: AutotuneError) -> JSONResponse:
        status, name = of_error(error)
        return problem_response(status, name, error.message, error.hint, exit_code=error.exit_code)

    @app.exception_handler(HTTPException)
    async def _http(_: Request, error: HTTPException) -> JSONResponse:
        status = HTTPStatus(error.status_code)
        if isinstance(error, Problem):
            return problem_response(status, error.name, str(error.detail), error.hint)
        response = problem_response(status, status.name.lower(), str(error.detail))
        response.headers.update(error.headers or {})
        return response

    @app.exception_handler(RequestValidationError)
    async def _invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        wrong = [{"at": ".".join(map(str, item["loc"])), "message": item["msg"]} for item in error.errors()]
        message = f"The request is not valid: {wrong[0]['at']}: {wrong[0]['message']}." if wrong else "Not valid."
        return problem_response(HTTPStatus.UNPROCESSABLE_ENTITY, "usage", message, errors=wrong, exit_code=2)
