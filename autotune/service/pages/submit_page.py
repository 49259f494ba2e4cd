"""The form of a new search, made from the table of options."""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from fastapi import Request
from pydantic import ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.responses import RedirectResponse, Response

from autotune.errors import AutotuneError, UsageError
from autotune.protocol.protection import BEST, Protection
from autotune.service.api import job_routes
from autotune.service.api.job_routes import JobBody
from autotune.service.api.wiring import Queue, Settings, Studies, TheHub
from autotune.service.pages.page_route import page_router
from autotune.service.pages.rendering import render
from autotune.study_file.search_options import IN_JOB, Kind, SearchOption
from autotune.study_file.study_schema import read_values

FIRST = ("study", "time", "trials", "memory_cap", "device")
"""Options in sight; all others are under `More options`."""
CHOICES = {"protection": ("", BEST, *(str(kind) for kind in Protection if kind is not Protection.NONE))}
MAX_FIELDS = 100
MAX_SCRIPTS = 200
MACHINES = "machines"
_MACHINES_HELP = "Workers of one class that search together."

router = page_router()


@dataclass(frozen=True, kw_only=True, slots=True)
class Field:
    """One control of the form."""

    name: str
    label: str
    kind: str
    """text, count, lines, switch or choice."""
    help: str
    placeholder: str = ""
    value: str = ""
    choices: tuple[str, ...] = ()


@router.get("/submit")
def submit_page(request: Request, settings: Settings, queue: Queue) -> Response:
    """The empty form; values in the query fill it in."""
    return _form(request, settings, queue, dict(request.query_params))


@router.post("/submit")
async def submit(request: Request, settings: Settings, queue: Queue, studies: Studies, hub: TheHub) -> Response:
    """Queues the search of the form, once, however often the form is sent."""
    pairs = parse_qsl((await request.body()).decode("utf-8", "replace"), max_num_fields=MAX_FIELDS)
    values = {name: value.strip() for name, value in pairs if value.strip()}

    def send() -> Response:
        try:
            body = _body(values)
            key = values.get("key", "")[:64] or None
            job = job_routes.submit(body, Response(), settings, queue, studies, hub, key)
        except AutotuneError as error:
            return _form(request, settings, queue, values, problem=str(error), status=HTTPStatus.UNPROCESSABLE_ENTITY)
        return RedirectResponse(f"/jobs/{job['id']}", HTTPStatus.SEE_OTHER)

    return await run_in_threadpool(send)


def _form(
    request: Request,
    settings: Settings,
    queue: Queue,
    values: Mapping[str, str],
    *,
    problem: str = "",
    status: HTTPStatus = HTTPStatus.OK,
) -> Response:
    fields = [_field(option, values) for option in IN_JOB]
    machines = Field(name=MACHINES, label=MACHINES, kind="count", help=_MACHINES_HELP, placeholder="1")
    more = [field for field in fields if field.name not in FIRST] + [_filled(machines, values)]
    first = [field for name in FIRST for field in fields if field.name == name]
    elsewhere = {name for worker in queue.workers() for name in worker.projects}
    return render(
        request,
        "submit.html",
        status,
        here="Submit",
        key=secrets.token_urlsafe(12),
        problem=problem,
        projects=sorted({*settings.projects, *elsewhere}),
        scripts=_scripts(settings.projects),
        values={name: values.get(name, "") for name in ("project", "script", "args")},
        first=first,
        more=more,
        has_more=any(field.value for field in more),
    )


def _scripts(projects: Mapping[str, Path]) -> list[str]:
    """Names of the Python files right within the projects, as suggestions."""
    found = {path.name for folder in projects.values() for path in islice(folder.glob("*.py"), MAX_SCRIPTS)}
    return sorted(found)[:MAX_SCRIPTS]


def _field(option: SearchOption, values: Mapping[str, str]) -> Field:
    choices = CHOICES.get(option.name, ())
    if option.kind is Kind.SWITCH:
        kind = "switch"
    elif option.kind is Kind.TABLE:
        kind = "lines"
    elif choices:
        kind = "choice"
    else:
        kind = "count" if option.kind in (Kind.COUNT, Kind.SEED) else "text"
    field = Field(
        name=option.name,
        label=option.name.replace("_", " "),
        kind=kind,
        help=option.help_text("search").replace("Repeatable.", "One a line."),
        placeholder=option.metavar or "",
        choices=choices,
    )
    return _filled(field, values)


def _filled(field: Field, values: Mapping[str, str]) -> Field:
    return Field(**{**{name: getattr(field, name) for name in field.__slots__}, "value": values.get(field.name, "")})


def _body(values: Mapping[str, str]) -> JobBody:
    """The request of a filled form, as the API takes it.

    Raises:
        UsageError: A field is unusable; names the field.
    """
    typed = {option.name: _typed(option, values[option.name]) for option in IN_JOB if option.name in values}
    options, problems = read_values(typed, is_text=True)
    if problems:
        name, sentence = problems[0]
        raise UsageError(f"{name.replace('_', ' ')}: {sentence}.", "Mend the field and send the form again.")
    try:
        args = shlex.split(values.get("args", ""))
    except ValueError as error:
        raise UsageError(f"The arguments cannot be split into words: {error}.", "Close every quote.") from error
    machines = values.get(MACHINES, "1")
    if not machines.isdecimal() or len(machines) > 4:
        raise UsageError(f"machines: {machines!r} is not a whole number.", "Leave the field empty for one machine.")
    try:
        return JobBody(
            project=values.get("project", ""),
            script=values.get("script", ""),
            args=args,
            options=options,
            machines=int(machines),
        )
    except ValidationError as error:
        wrong = error.errors(include_url=False)[0]
        place = ".".join(map(str, wrong["loc"]))
        raise UsageError(f"{place}: {wrong['msg']}.", "Mend the field and send the form again.") from error


def _typed(option: SearchOption, text: str) -> Any:
    """The text of a field in the form that flags have; a table has one KEY=VALUE a line."""
    if option.kind is not Kind.TABLE:
        return text
    pairs = [line.partition("=") for line in text.splitlines() if line.strip()]
    for key, equals, _ in pairs:
        if not equals or not key.strip():
            raise UsageError(f"{option.name}: {key!r} is not KEY=VALUE.", "Write one KEY=VALUE a line.")
    return {key.strip(): value.strip() for key, _, value in pairs}
