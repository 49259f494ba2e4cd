"""Which write was refused, from what a script printed."""

from __future__ import annotations

import pytest

from autotune.protocol.protection import Protection
from autotune.runner.refused_writes import refused_by_landlock


@pytest.mark.parametrize(
    ("line", "place"),
    [
        ("PermissionError: [Errno 13] Permission denied: '/data/ckpt/last.pt'", "/data/ckpt/last.pt"),
        ("rm: cannot remove 'ckpt/last.pt': Permission denied", "ckpt/last.pt"),
        ("sh: 1: cannot create out.txt: Permission denied", "out.txt"),
        ("OSError: Unable to create file (unable to open file: name = 'out.h5', errno = 13, flags = 13)", "out.h5"),
        ("OSError: [Errno 18] Invalid cross-device link: 'a.tmp' -> 'sub/a'", "sub/a"),
        ("lmdb.Error: /data/train.lmdb: Permission denied", "/data/train.lmdb"),
    ],
)
def test_the_place_that_was_refused_is_named_with_the_option(line: str, place: str) -> None:
    sentence = refused_by_landlock(Protection.LANDLOCK, f"epoch 1\n{line}\nTraceback ends")
    assert "Landlock" in sentence and f"--writable {place}." in sentence


def test_a_database_that_names_no_place_still_names_the_option() -> None:
    assert "--writable PATH" in refused_by_landlock(
        Protection.LANDLOCK, "sqlite3.OperationalError: unable to open database file"
    )


@pytest.mark.parametrize("protection", [Protection.LAYERS, Protection.NONE])
def test_other_protections_refuse_nothing(protection: Protection) -> None:
    assert refused_by_landlock(protection, "PermissionError: [Errno 13] Permission denied: '/x'") == ""


def test_another_failure_is_not_put_down_to_landlock() -> None:
    assert refused_by_landlock(Protection.LANDLOCK, "RuntimeError: shape mismatch", "") == ""
