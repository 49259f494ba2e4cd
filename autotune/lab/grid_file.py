"""Reads and writes the file of a recorded grid: JSON lines, first a header, then one measurement per line."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from autotune.errors import UsageError
from autotune.lab.grid import CellRecord, Grid, GridHeader
from autotune.model.facts import LoaderFacts, ScriptFacts
from autotune.model.result import Measurement, RankResult, TrialResult
from autotune.model.surroundings import Surroundings
from autotune.protocol.codec import from_plain, to_plain
from autotune.settings import Settings

MAX_FILE_BYTES = 1 << 28
RECORD_ONE = "Record one with autotune record."
_NESTED: Mapping[type[Any], Mapping[str, type[Any]]] = {
    GridHeader: {"facts": ScriptFacts},
    ScriptFacts: {"loader": LoaderFacts},
    CellRecord: {"result": TrialResult},
    TrialResult: {"measurement": Measurement, "ranks": RankResult, "surroundings": Surroundings},
}
"""Types of the nested parts of a line, for parts with new fields in newer versions."""
T = TypeVar("T")


def read_grid(path: Path) -> Grid:
    """The grid in a file, without an incomplete last line.

    Raises:
        UsageError: The file is missing, or is not the recording of a grid.
    """
    content = _read(path)
    return _parse(content[: _complete_bytes(content)], path)


def check_place(path: Path) -> None:
    """Refuses a place without room for a new recording, before any time is spent.

    Raises:
        UsageError: The folder is missing or not writable.
    """
    if not os.access(path.absolute().parent, os.W_OK | os.X_OK):
        message = f"{path} cannot be made: its folder is not there, or may not be written to."
        raise UsageError(message, "Make the folder, or name another file with --out.")


def create_grid(path: Path, header: GridHeader) -> None:
    """Makes the file of a new recording with the header, whole or not at all.

    Raises:
        UsageError: The file cannot be written, or exists already.
    """
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        with temporary.open("xb") as file:  # Never through a link of another user.
            file.write(_line(header))
        try:
            path.hardlink_to(temporary)  # A rename would replace the file of another process.
        finally:
            temporary.unlink()
    except OSError as error:
        raise UsageError(f"{path} cannot be made: {error.strerror}.", "Name another file with --out.") from error


@contextlib.contextmanager
def open_grid(path: Path) -> Iterator[GridFile]:
    """The file of a recording, locked and opened for appending.

    Raises:
        UsageError: The file is not the recording of a grid, cannot be written, or is in use by another process.
    """
    try:
        stream = path.open("r+b")
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}.", "Name another file with --out.") from error
    with stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise UsageError(
                f"Another process is recording to {path}.", "Wait for it, or name another file."
            ) from error
        content = _read(path)
        num_bytes = _complete_bytes(content)
        grid = _parse(content[:num_bytes], path)
        stream.truncate(num_bytes)
        stream.seek(num_bytes)
        yield GridFile(stream.fileno(), grid)


class GridFile:
    """A growing recording.

    Args:
        descriptor: Descriptor of the file, positioned at the end.
        grid: The recording so far.
    """

    def __init__(self, descriptor: int, grid: Grid) -> None:
        self._descriptor = descriptor
        self.header = grid.header
        self.records = list(grid.records)

    def append(self, record: CellRecord) -> None:
        """Adds one measurement, and returns after the measurement is on the disk."""
        os.write(self._descriptor, _line(record))
        os.fsync(self._descriptor)
        self.records.append(record)


def _line(value: GridHeader | CellRecord) -> bytes:
    return json.dumps(_compact(value), separators=(",", ":"), allow_nan=False).encode() + b"\n"


def _compact(value: Any) -> Any:
    """The plain form without fields at their defaults, which would fill half of a recording."""
    if isinstance(value, (list, tuple)):
        return [_compact(item) for item in value]
    if not dataclasses.is_dataclass(value) or isinstance(value, (type, Settings)):
        return to_plain(value)
    fields = ((field, getattr(value, field.name)) for field in dataclasses.fields(value))
    return {field.name: _compact(item) for field, item in fields if not _is_default(field, item)}


def _is_default(field: dataclasses.Field[Any], value: Any) -> bool:
    if field.default_factory is not dataclasses.MISSING:
        return bool(value == field.default_factory())
    return field.default is not dataclasses.MISSING and bool(value == field.default)


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as stream:
            content = stream.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise UsageError(f"The grid {path} cannot be read: {error.strerror}.", RECORD_ONE) from error
    if len(content) > MAX_FILE_BYTES:
        raise UsageError(f"{path} is larger than {MAX_FILE_BYTES} bytes, so it is no recorded grid.", RECORD_ONE)
    return content


def _complete_bytes(content: bytes) -> int:
    """Number of bytes up to the end of the last whole line."""
    return content.rfind(b"\n") + 1


def _parse(content: bytes, path: Path) -> Grid:
    lines = content.split(b"\n")[:-1]
    if not lines:
        raise UsageError(f"{path} is no recorded grid: it has no header.", RECORD_ONE)
    header = _value(GridHeader, lines[0], path, 1)
    records = [_value(CellRecord, line, path, number) for number, line in enumerate(lines[1:], 2)]
    for number, record in enumerate(records, 2):
        if record.cell >= len(header.cells):
            raise UsageError(f"{path} line {number}: there is no cell {record.cell} in this grid.", RECORD_ONE)
    return Grid(header, records)


def _value(kind: type[T], line: bytes, path: Path, number: int) -> T:
    try:
        plain = json.loads(line, parse_constant=_refuse_constant)
        return from_plain(kind, _known(kind, plain))
    except (ValueError, RecursionError) as error:
        what = str(error)[:200]
        raise UsageError(f"{path} line {number} is not of a recorded grid: {what}.", "The file is damaged.") from error


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a figure")


def _known(kind: type[Any], plain: Any) -> Any:
    """The value without fields unknown to this version: recordings outlive versions."""
    if not isinstance(plain, dict):
        return plain
    names = {field.name for field in dataclasses.fields(kind)}
    known = {name: value for name, value in plain.items() if name in names}
    for name, inner in _NESTED.get(kind, {}).items():
        value = known.get(name)
        if isinstance(value, list):
            known[name] = [_known(inner, item) for item in value]
        elif value is not None:
            known[name] = _known(inner, value)
    return known
