"""PYTHONPATH of processes that do not start in the script's folder."""

from __future__ import annotations

import os

import pytest

from autotune.protocol.entry_points import INJECT
from autotune.runner.python_path import absolute_entries, with_inject


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("", ""),
        (".", "/job"),
        ("lib:/opt/lib", "/job/lib:/opt/lib"),
        (":lib", "/job:/job/lib"),
        ("../up", "/job/../up"),
    ],
)
def test_entries_are_those_of_the_scripts_folder(value: str, expected: str) -> None:
    assert absolute_entries(value.replace(":", os.pathsep), "/job") == expected.replace(":", os.pathsep)


def test_our_folder_comes_first() -> None:
    assert with_inject("", "/job") == INJECT
    assert with_inject("lib", "/job") == os.pathsep.join([INJECT, "/job/lib"])
