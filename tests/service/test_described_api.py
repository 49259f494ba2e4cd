"""Requests made from the API's own description, by the hundred: none breaks the server."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="the service comes with the extra `service`")

from .served import TOKEN, done, served
from .told import SEARCH

PROGRAM = os.environ.get("SCHEMATHESIS") or shutil.which("schemathesis", path=str(Path(sys.executable).parent))
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        PROGRAM is None, reason="schemathesis comes with the extra `browser`, which `make test-all` installs"
    ),
]


def test_no_request_makes_the_server_fail(tmp_path):
    with served(tmp_path) as server:
        server.submit(options={"study": "known"})
        server.work(SEARCH, end=done())
        config = tmp_path / "schemathesis.toml"
        config.write_text(f'[headers]\nAuthorization = "Bearer {TOKEN}"\n')  # a file, since arguments are public
        words = [
            PROGRAM,
            f"--config-file={config}",
            "run",
            f"{server.base}/v1/openapi.json",
            "--checks=not_a_server_error",
        ]
        words += [
            "--max-examples=40",
            "--seed=7",
            "--request-timeout=20",
            "--exclude-path-regex=events|:lease$",
            "--no-color",
        ]
        asked = subprocess.run(words, capture_output=True, text=True, timeout=500, check=False, cwd=tmp_path)
        print(asked.stdout[-3000:])
        assert asked.returncode == 0, asked.stdout[-5000:] + asked.stderr[-2000:]
        assert server.get("/healthz").status == 200
