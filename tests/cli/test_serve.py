"""What `autotune serve` refuses before it listens."""

from __future__ import annotations

import sqlite3

import pytest

from autotune.errors import UsageError
from autotune.service.security.audit import AuditLog


def test_a_database_that_cannot_be_used_is_told_before_anything_is_served(cli, folder, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
    with sqlite3.connect(folder / "theirs.db") as connection:
        connection.execute("CREATE TABLE theirs (n INTEGER)")
    code, out, err = cli("serve", "--no-worker", "--port", "0", "--storage", "theirs.db")
    assert (code, out) == (5, "")
    assert "another program" in err and "Serving" not in err and "Traceback" not in err


def test_an_audit_log_that_cannot_be_written_is_refused_by_name(tmp_path):
    with pytest.raises(UsageError, match=f"audit log {tmp_path} cannot be written: Is a directory"):
        AuditLog(tmp_path)
