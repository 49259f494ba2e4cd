"""Renders the templates. Every text is escaped, and texts of scripts lose their control characters."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any
from urllib.parse import quote
from xml.etree.ElementTree import Element, tostring

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse

from autotune.report.words import clean, value_text
from autotune.service.pages.assets import ASSETS
from autotune.service.security.door import CALLER
from autotune.units import format_bytes, format_rate, format_seconds

MAX_LOG_CHARS = 8000
"""Most characters shown of a failed trial's last output."""


def render(request: Request, template: str, status: int = HTTPStatus.OK, **values: Any) -> HTMLResponse:
    """A page from a template, with the caller's rights for the template's controls."""
    return HTMLResponse(fragment(template, **{"caller": request.scope.get(CALLER), **values}), status)


def fragment(template: str, **values: Any) -> str:
    """A piece of a page from a template."""
    return _ENVIRONMENT.get_template(template).render(**values)


def drawn(element: Element | None) -> Markup:
    """A picture of a report as a piece of HTML; its own writer escapes the texts."""
    return Markup("") if element is None else Markup(tostring(element, encoding="unicode", method="html"))


def _ago(moment: str | None) -> str:
    """The time since a moment in ISO 8601, in words."""
    if not moment:
        return ""
    then = datetime.fromisoformat(moment)
    seconds = (datetime.now(UTC) - (then if then.tzinfo else then.replace(tzinfo=UTC))).total_seconds()
    if seconds < 5:
        return "just now"
    if seconds < 2 * 86400:
        return f"{format_seconds(math.floor(seconds))} ago"
    return f"{seconds // 86400:.0f} days ago"


def _log(text: str) -> str:
    """Lines of a script's output with their indentation, without control characters."""
    lines = text[-MAX_LOG_CHARS:].expandtabs(4).splitlines()
    return "\n".join("".join(char if char.isprintable() else " " for char in line) for line in lines)


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.0%}"


def _or_dash(words: Any) -> Any:
    def filtered(value: Any) -> str:
        return "-" if value is None else words(value)

    return filtered


def _changes(settings: Mapping[str, Any], baseline: Mapping[str, Any]) -> str:
    """Settings in a document that differ from the baseline's, as `num_workers=4 precision=bf16`."""
    ours, theirs = _flat(settings), _flat(baseline)
    changed = (f"{clean(name)}={value_text(value)}" for name, value in ours.items() if theirs.get(name) != value)
    return " ".join(changed)


def _flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    plain = dict(settings)
    knobs = plain.pop("knobs", None) or {}
    return {**plain, **knobs}


def _join(words: Iterable[Any]) -> str:
    return clean(" ".join(map(str, words)))


_ENVIRONMENT = Environment(
    loader=PackageLoader("autotune", "service/pages/templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_ENVIRONMENT.globals["asset"] = lambda name: ASSETS[name].address(name)
_ENVIRONMENT.filters.update(
    ago=_ago,
    bytes=_or_dash(format_bytes),
    changes=_changes,
    clean=lambda text: clean(str(text)),
    drawn=drawn,
    joined=_join,
    log=_log,
    percent=_percent,
    rate=_or_dash(format_rate),
    seconds=_or_dash(format_seconds),
    segment=lambda text: quote(str(text), safe="", errors="surrogateescape"),
)
