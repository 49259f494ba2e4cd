"""The files of a packed folder: parts with an index, and the manifest of a finished packing."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from autotune.errors import UsageError
from autotune.storage.packed_formats import FORMATS, SUFFIXES

MANIFEST = "packed.json"
SCHEMA = 1
COLUMNS = ("offset", "length", "crc32", "structure")
"""Columns of a part's index, a row for each sample."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """One finished part."""

    number: int
    first: int
    """Number of the first sample."""
    count: int
    num_bytes: int
    """Size of the data file."""
    sha256: str
    """Digest of the data file."""
    structures: list[Any]
    """Structures of the part's samples; the index has the position of each sample's structure."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """What is packed: a resumed packing must agree in every field."""

    file: str
    """File of the user's function."""
    function: str
    digest: str
    """SHA-256 of the file."""
    num_samples: int
    format: str
    samples_per_part: int

    @property
    def num_parts(self) -> int:
        """Parts of the whole dataset."""
        return -(-self.num_samples // self.samples_per_part)

    def range_of(self, number: int) -> range:
        """Numbers of the samples of a part."""
        first = number * self.samples_per_part
        return range(first, min(first + self.samples_per_part, self.num_samples))


@dataclass(frozen=True, kw_only=True, slots=True)
class Manifest:
    """A finished packing."""

    source: Source
    parts: tuple[Part, ...]

    @property
    def num_bytes(self) -> int:
        """Bytes of all data files."""
        return sum(part.num_bytes for part in self.parts)


def data_path(folder: Path, format_name: str, number: int) -> Path:
    """The data file of a part."""
    return folder / f"part-{number:05d}{SUFFIXES[format_name]}"


def index_path(folder: Path, number: int) -> Path:
    """The index of a part."""
    return folder / f"part-{number:05d}.index"


def note_path(folder: Path, number: int) -> Path:
    """The note that a part is finished; removed when the manifest is written."""
    return folder / f"part-{number:05d}.json"


def temporary_beside(path: Path) -> Path:
    """A name beside a path that nobody can guess, and lay a link under, in a folder of several people."""
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")


def write_whole(path: Path, content: bytes) -> None:
    """Writes a file that is either old or complete, also after a crash of the machine."""
    temporary = temporary_beside(path)
    with temporary.open("xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Makes new names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_index(folder: Path, part: Part) -> np.ndarray[Any, Any]:
    """Index of a part, one row of `COLUMNS` per sample.

    Raises:
        UsageError: The index is missing or damaged.
    """
    path = index_path(folder, part.number)
    try:
        rows = np.fromfile(path, "<i8").reshape(-1, len(COLUMNS))
    except (OSError, ValueError) as error:
        raise damaged(path, str(error)) from error
    if len(rows) != part.count:
        raise damaged(path, f"it has {len(rows)} rows, not {part.count}")
    return rows


def damaged(path: Path, reason: str) -> UsageError:
    """The error for a damaged file."""
    return UsageError(f"{path} is damaged: {reason}.", "Remove the folder, and pack the dataset again.")


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Writes the manifest, then removes the notes of the parts."""
    document = {"schema": SCHEMA, "source": asdict(manifest.source), "parts": [asdict(part) for part in manifest.parts]}
    write_whole(folder / MANIFEST, json.dumps(document).encode())
    for part in manifest.parts:
        note_path(folder, part.number).unlink(missing_ok=True)


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a packed folder.

    Raises:
        UsageError: The folder is not packed, the packing is unfinished, or the manifest is damaged.
    """
    path = folder / MANIFEST
    try:
        document = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        is_begun = any(folder.glob("part-*.json"))
        state = "is not packed to the end" if is_begun else "holds no packed dataset"
        raise UsageError(f"{folder} {state}.", f"Run autotune pack with --out {folder}.") from error
    except (OSError, ValueError) as error:
        raise damaged(path, str(error)) from error
    try:
        return _manifest_of(document)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise damaged(path, f"{type(error).__name__}: {error}") from error


def _manifest_of(document: Mapping[str, Any]) -> Manifest:
    if document["schema"] != SCHEMA:
        raise ValueError(f"schema {document['schema']!r} is unknown")
    manifest = Manifest(source=Source(**document["source"]), parts=tuple(Part(**part) for part in document["parts"]))
    if manifest.source.format not in FORMATS:
        raise ValueError(f"no format is named {manifest.source.format!r}")
    if sum(part.count for part in manifest.parts) != manifest.source.num_samples:
        raise ValueError("the parts do not add up to the dataset")
    return manifest
