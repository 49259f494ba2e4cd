"""Tells the user's code from autotune, the frameworks and the standard library."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import FrameType

FRAMEWORKS = ("torch", "keras", "tensorflow", "jax")
"""Packages with the loops and tensors of a training."""
_PACKAGE = str(Path(__file__).resolve().parents[1]) + os.sep
_STANDARD_LIBRARY = str(Path(inspect.__file__).resolve().parent) + os.sep


def user_frames() -> Iterator[FrameType]:
    """Frames of the user's code, the nearest first."""
    current: FrameType | None = sys._getframe(1)
    while current is not None:
        if is_users(current.f_code.co_filename):
            yield current
        current = current.f_back


def is_users(name: str) -> bool:
    """Whether a file belongs to the user: not to autotune, a framework or the standard library."""
    if name.startswith(("<frozen", "<string>", _PACKAGE)) or _is_standard_library(name):
        return False
    return not any(name.startswith(_folder(each)) for each in FRAMEWORKS if each in sys.modules)


@cache
def _folder(package: str) -> str:
    """The folder of an imported package."""
    file = getattr(sys.modules[package], "__file__", None)
    return str(Path(file).resolve().parent) + os.sep if file else f"<no {package}>"


def _is_standard_library(name: str) -> bool:
    return name.startswith(_STANDARD_LIBRARY) and "site-packages" not in name and "dist-packages" not in name
