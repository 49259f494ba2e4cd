"""JSON on standard output: exactly one document."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from autotune.report.streams import write_result


def document_text(document: Mapping[str, Any]) -> str:
    """The document as indented JSON in ASCII, ending in a newline."""
    return json.dumps(without_infinite(document), indent=2, ensure_ascii=True, allow_nan=False) + "\n"


def without_infinite(value: Any) -> Any:
    """The plain value with None for NaN and infinite numbers, since JSON has neither."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: without_infinite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_infinite(item) for item in value]
    return value


def write_document(document: Mapping[str, Any]) -> None:
    """Writes the document to standard output.

    Raises:
        HostError: When the document cannot be written.
    """
    write_result(document_text(document))
