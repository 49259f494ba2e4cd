"""The studies of the database: list, report, config and comparison."""

from __future__ import annotations

from typing import Any

from fastapi import Request
from markupsafe import Markup
from starlette.responses import Response

from autotune.errors import AutotuneError, StudyNotFoundError
from autotune.report.comparison_text import comparison_lines
from autotune.report.html import content, page
from autotune.service.api.study_routes import list_studies
from autotune.service.api.wiring import Queue, Studies
from autotune.service.pages.job_pages import config_file
from autotune.service.pages.page_route import page_router
from autotune.service.pages.rendering import drawn, render
from autotune.store.repository import Repository
from autotune.store.secrets import mask_text
from autotune.study.comparison import comparison, found_by_study
from autotune.study.study_list import gain_text
from autotune.study.view import tell

REPORT_POLICY = "sandbox; default-src 'none'; style-src 'unsafe-inline'"
"""A saved report has the style within the page, and needs nothing more."""

router = page_router()


@router.get("/studies")
def studies_page(request: Request, studies: Studies) -> Response:
    """The studies, newest first."""
    document = list_studies(studies)
    entries = [entry | {"gain": gain_text(entry)} for entry in document["studies"]]
    return render(request, "studies.html", here="Studies", studies=entries, left_out=document["left_out"])


@router.get("/studies/{study:path}/config")
def study_config(study: str, studies: Studies, queue: Queue) -> Response:
    """The tuned config of a study, as a file."""
    studies.study(study)
    text = queue.config_of(study)
    if text is None:
        raise StudyNotFoundError(
            f"No job has written a config of study {study!r}.", "A finished job writes the config."
        )
    return config_file(text)


@router.get("/studies/{study:path}/report")
def report_file(study: str, studies: Studies) -> Response:
    """The report as a file to save, like the file of `autotune report`."""
    text = mask_text(page(tell(study, studies, with_importances=True, on_unreadable=lambda number, error: None)))
    headers = {
        "Content-Disposition": 'attachment; filename="report.html"',
        "Content-Security-Policy": REPORT_POLICY,
    }
    return Response(text, media_type="text/html; charset=utf-8", headers=headers)


@router.get("/studies/{study:path}")
def study_page(request: Request, study: str, studies: Studies, queue: Queue) -> Response:
    """The report of a study."""
    view = tell(study, studies, with_importances=True, on_unreadable=lambda number, error: None)
    report = Markup(mask_text("".join(map(drawn, content(view)))))
    has_config = queue.config_of(study) is not None
    return render(request, "study.html", here="Studies", name=study, report=report, has_config=has_config)


@router.get("/compare")
def compare_page(request: Request, studies: Studies, first: str = "", second: str = "") -> Response:
    """Two finished searches side by side."""
    compared: dict[str, Any] | None = None
    problem = ""
    if first and second:
        try:
            compared = _compared(first, second, studies)
        except AutotuneError as error:
            problem = str(error)
    return render(
        request,
        "compare.html",
        here="Compare",
        names=studies.names(),
        first=first,
        second=second,
        comparison=compared,
        problem=problem,
    )


def _compared(first: str, second: str, studies: Repository) -> dict[str, Any]:
    found = [found_by_study(name, studies.study(name)) for name in (first, second)]
    answer, rows, basis = comparison_lines(comparison(*found))
    return {"answer": answer, "rows": rows, "basis": basis}
