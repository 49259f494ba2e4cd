"""The audit log: changes and refusals by caller, a JSON object for each line, without secrets."""

from __future__ import annotations

import json
import logging
import os
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import IO

from autotune.errors import UsageError

MAX_BYTES = 8 << 20
"""Size of one file of the log; three older files are kept."""
MAX_PATH_CHARS = 200


class _PrivateFile(RotatingFileHandler):
    """A rotating log for the eyes of the user alone."""

    def _open(self) -> IO[str]:  # type: ignore[override]
        return open(self.baseFilename, self.mode, encoding="utf-8", opener=_private)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


class AuditLog:
    """Writes the audit log.

    A line has the time, the address, the name of the caller's token, the method, the path without its query, the
    status, and the reason of a refusal. Bodies, headers and queries are never written.

    Args:
        path: The file; None = no log.

    Raises:
        UsageError: The file cannot be written.
    """

    def __init__(self, path: Path | None) -> None:
        self._handler: logging.Handler | None = None
        if path is not None:
            try:
                path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                self._handler = _PrivateFile(path, maxBytes=MAX_BYTES, backupCount=3)
            except OSError as error:
                raise UsageError(
                    f"The audit log {path} cannot be written: {error.strerror}.", "Name another file: --audit-log FILE"
                ) from error

    def write(self, *, address: str, caller: str, method: str, path: str, status: int, reason: str = "") -> None:
        """Writes one line; control characters of the path are escaped by JSON."""
        if self._handler is None:
            return
        line = {
            "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "address": address,
            "caller": caller,
            "method": method[:16],
            "path": path[:MAX_PATH_CHARS],
            "status": status,
        }
        if reason:
            line["reason"] = reason
        record = logging.makeLogRecord({"msg": json.dumps(line), "levelno": logging.INFO})
        self._handler.handle(record)

    def close(self) -> None:
        """Closes the file."""
        if self._handler is not None:
            self._handler.close()
