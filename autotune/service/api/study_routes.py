"""`/v1/studies`: the stored studies, as the commands that read them print with `--json`."""

from __future__ import annotations

from datetime import UTC, datetime
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse

from autotune.errors import StoreError
from autotune.report.document import without_infinite
from autotune.report.html import page
from autotune.report.markdown import markdown
from autotune.report.study_page import report_document, study_document
from autotune.service.api.wiring import Queue, Studies
from autotune.service.documents import SCHEMA
from autotune.service.problems import Problem
from autotune.store.repository import Repository
from autotune.store.secrets import mask_plain, mask_text
from autotune.study.status import left_out_in, overview_in, status_document
from autotune.study.study_list import list_entry
from autotune.study.view import tell

router = APIRouter(prefix="/v1/studies", tags=["studies"])
YAML = "application/yaml"


@router.get("")
def list_studies(studies: Studies) -> dict[str, Any]:
    """The studies, newest first: the document of `autotune studies list --json`."""
    now, entries, left_out = datetime.now(UTC), [], []

    def leave_out(name: str, error: StoreError) -> None:
        left_out.append({"study": name, "reason": error.message})

    for record in studies.studies(leave_out):
        try:
            entries.append(list_entry(record, studies, now=now))
        except StoreError as error:
            leave_out(record.name, error)
    return _plain({"schema": SCHEMA, "studies": entries, "left_out": left_out})


@router.get("/{study:path}/trials")
def trials(study: str, studies: Studies) -> dict[str, Any]:
    """The trials of a study."""
    document = study_document(_told(study, studies))
    return _plain({"schema": SCHEMA, "study": study, "trials": document["trials"]})


@router.get("/{study:path}/best")
def best(study: str, studies: Studies) -> dict[str, Any]:
    """The best settings: the document of `autotune best --json`."""
    record = studies.study(study)
    overview = overview_in(studies, record)
    return _plain(status_document(record, overview, left_out_in(studies, record, overview)))


@router.get("/{study:path}/config", response_class=PlainTextResponse)
def config(study: str, studies: Studies, queue: Queue) -> Response:
    """The tuned config of a finished job, as YAML."""
    studies.study(study)
    text = queue.config_of(study)
    if text is None:
        raise Problem(
            HTTPStatus.NOT_FOUND, "not_found", f"No job has written a tuned config of study {study!r}.", "Wait for it."
        )
    return Response(text, media_type=YAML, headers={"Content-Disposition": 'attachment; filename="autotune.yaml"'})


@router.get("/{study:path}/report", response_class=HTMLResponse)
def report(
    study: str, studies: Studies, form: Annotated[str, Query(alias="format", pattern="^(html|md|json)$")] = "html"
) -> Response:
    """The report of a study, as `autotune report` writes it."""
    view = tell(study, studies, with_importances=True, on_unreadable=lambda number, error: None)
    if form == "json":
        return JSONResponse(_plain(report_document(view)))
    if form == "md":
        return Response(mask_text(markdown(view)), media_type="text/markdown; charset=utf-8")
    return HTMLResponse(mask_text(page(view)))


@router.get("/{study:path}")
def show_study(study: str, studies: Studies) -> dict[str, Any]:
    """A study: the document of `autotune studies show --json`."""
    return _plain(study_document(_told(study, studies)))


def _plain(document: dict[str, Any]) -> dict[str, Any]:
    """The document without infinite numbers and without secrets."""
    plain: dict[str, Any] = mask_plain(without_infinite(document))
    return plain


def _told(study: str, studies: Repository) -> Any:
    return tell(study, studies, on_unreadable=lambda number, error: None)
