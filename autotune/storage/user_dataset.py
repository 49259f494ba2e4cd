"""Loads the user's dataset from `FILE.py:function`."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from pathlib import Path
from typing import Any

from autotune.errors import UsageError


def split_name(text: str) -> tuple[Path, str]:
    """File and function of `FILE.py:function`.

    Raises:
        UsageError: The text has another form, or the file does not exist.
    """
    file, _, function = text.rpartition(":")
    if not file or not function.isidentifier():
        raise UsageError(f"{text!r} names no function.", "Name the file and the function: data.py:make_dataset")
    path = Path(file)
    if not path.is_file():
        raise UsageError(f"There is no file {file}.", "Name the file and the function: data.py:make_dataset")
    return path.absolute(), function


def digest_of(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def load_dataset(path: Path, function: str) -> Any:
    """The map-style dataset that the user's function returns.

    Raises:
        UsageError: The file cannot be run, or gives no map-style dataset.
    """
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # A dataset's class is found by this name when samples are made in workers.
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise UsageError(f"{path} cannot be run: {type(error).__name__}: {error}.", "Run it by itself.") from error
    made = getattr(module, function, None)
    if made is None:
        raise UsageError(f"{path.name} has no function {function}.", f"Write one: def {function}(): return dataset")
    if not hasattr(made, "__getitem__"):
        try:
            made = made()
        except Exception as error:
            message = f"{function} of {path.name} failed: {type(error).__name__}: {error}."
            raise UsageError(message, "It is called without arguments, and returns the dataset.") from error
    if not (hasattr(made, "__getitem__") and hasattr(made, "__len__")) or not _length(made):
        raise UsageError(
            f"{function} of {path.name} gives {type(made).__name__}, which is no map-style dataset with samples.",
            "Return an object with __getitem__ and __len__; a stream has no order to read in at random.",
        )
    return made


def _length(dataset: Any) -> int:
    try:
        return len(dataset)
    except TypeError:
        return 0
