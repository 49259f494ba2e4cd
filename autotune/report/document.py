"""JSON on standard output: exactly one document."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from autotune.report.streams import write_result


def document_text(document: Mapping[str, Any]) -> str:
    """The document as indented JSON in ASCII, ending in a newline.

    Raises:
        ValueError: A number in it is not finite, which JSON cannot say.
    """
    return json.dumps(document, indent=2, ensure_ascii=True, allow_nan=False) + "\n"


def write_document(document: Mapping[str, Any]) -> None:
    """Writes the document to standard output.

    Raises:
        HostError: It cannot be written.
    """
    write_result(document_text(document))
