"""What the tuner writes for its own programs."""

from __future__ import annotations

import os
from pathlib import Path

from autotune.sandbox.own_files import put


def test_a_path_with_bytes_that_are_no_text_is_written_as_the_system_has_it(tmp_path: Path) -> None:
    name = os.fsdecode(b"/tmp/caf\xe9/trial")
    put(tmp_path / "latest", name, below=tmp_path)
    assert os.fsdecode((tmp_path / "latest").read_bytes()) == name
