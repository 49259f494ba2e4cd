"""Turns a sample into bytes and back: a structure that most samples share, and leaves with the data.

A leaf has a common type of file: arrays are `.npy`, encoded images stay unchanged, numbers and texts are text. Readers
of tar files, such as WebDataset, decode the leaves without autotune. Nothing is pickled: packed data cannot run code.
"""

from __future__ import annotations

import io
import json
import zlib
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from autotune.errors import UsageError

Structure = Any
"""Kind of a leaf as a string, or a dict with one key: `tuple`, `list` or `dict`."""
ALIGNMENT = 16
"""Bytes; the start of an array within a record is a multiple."""
MAGIC = {b"\xff\xd8\xff": "jpg", b"\x89PNG": "png", b"RIFF": "webp"}
"""First bytes of encoded images, and the suffix of the image's leaf."""
SUFFIXES = {"tensor": "npy", "array": "npy", "scalar": "npy", "image": "npy", "text": "txt", "number": "json"}
TORCH_ONLY = {"bfloat16": "int16", "float8_e4m3fn": "uint8", "float8_e5m2": "uint8"}
"""Number formats of torch without a counterpart in numpy, and a format of the same size."""


class Leaf(NamedTuple):
    """A part of a sample as bytes."""

    path: str
    """Place in the sample, such as `0` or `image`."""
    suffix: str
    data: bytes


def flatten(sample: Any) -> tuple[Structure, list[Leaf]]:
    """The structure of a sample, and all leaves in order.

    Raises:
        UsageError: A part of the sample has no packed form.
    """
    leaves: list[Leaf] = []
    return _flatten(sample, (), leaves), leaves


def _flatten(value: Any, path: tuple[str, ...], leaves: list[Leaf]) -> Structure:
    if type(value) in (tuple, list):
        return {type(value).__name__: [_flatten(item, (*path, str(n)), leaves) for n, item in enumerate(value)]}
    if type(value) is dict and all(isinstance(key, str) for key in value):
        return {"dict": {key: _flatten(item, (*path, key), leaves) for key, item in value.items()}}
    kind, data = _leaf_of(value)
    suffix = SUFFIXES.get(kind.partition(":")[0], "bin")
    if kind == "bytes":
        suffix = next((name for magic, name in MAGIC.items() if data.startswith(magic)), "bin")
    leaves.append(Leaf("-".join(path) or "sample", suffix, data))
    return kind


def _leaf_of(value: Any) -> tuple[str, bytes]:
    """Kind and bytes of a leaf."""
    if isinstance(value, (bytes, bytearray)):
        return "bytes", bytes(value)
    if isinstance(value, str):
        return "text", value.encode()
    if value is None or type(value) in (bool, int, float):
        return "number", json.dumps(value).encode()
    if isinstance(value, (np.ndarray, np.generic)) and not value.dtype.hasobject:
        return "array" if isinstance(value, np.ndarray) else "scalar", _npy(np.asarray(value))
    if type(value).__module__.partition(".")[0] == "torch" and hasattr(value, "untyped_storage"):
        return _tensor_leaf(value)
    if type(value).__module__.startswith("PIL.") and value.mode in ("RGB", "L", "RGBA"):
        return f"image:{value.mode}", _npy(np.asarray(value))
    raise UsageError(
        f"A sample holds {type(value).__module__}.{type(value).__qualname__}, which has no packed form.",
        "Return tensors, arrays, numbers, texts, bytes or images, in tuples, lists or dicts with names as keys.",
    )


def _tensor_leaf(tensor: Any) -> tuple[str, bytes]:
    tensor = tensor.detach().cpu().contiguous()
    name = str(tensor.dtype).removeprefix("torch.")
    if name not in TORCH_ONLY:
        return "tensor", _npy(tensor.numpy())
    import torch

    return f"tensor:{name}", _npy(tensor.view(getattr(torch, TORCH_ONLY[name])).numpy())


def _npy(array: np.ndarray[Any, Any]) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(
        file, np.ascontiguousarray(array).reshape(array.shape), version=(1, 0), allow_pickle=False
    )
    return file.getvalue()


def checksum(leaves: Sequence[bytes | memoryview]) -> int:
    """CRC-32 of all leaves in order."""
    crc = 0
    for data in leaves:
        crc = zlib.crc32(data, crc)
    return crc


def to_record(leaves: Sequence[Leaf]) -> bytes:
    """One piece of bytes for a sample: the lengths of the leaves, then the leaves."""
    parts = [np.array([len(leaf.data) for leaf in leaves], "<u8").tobytes()]
    position = len(parts[0])
    for leaf in leaves:
        padding = -position % ALIGNMENT
        parts += [bytes(padding), leaf.data]
        position += padding + len(leaf.data)
    return b"".join(parts)


def split_record(record: memoryview, num_leaves: int) -> list[memoryview]:
    """The leaves of a record."""
    position, found = 8 * num_leaves, []
    for length in np.frombuffer(record, "<u8", num_leaves).tolist():
        position += -position % ALIGNMENT
        found.append(record[position : position + length])
        position += length
    return found


def unflatten(structure: Structure, leaves: Iterator[memoryview]) -> Any:
    """The sample with this structure; arrays share memory with the leaves, which must be writable.

    Raises:
        ValueError: The leaves do not fit the structure.
    """
    if isinstance(structure, dict):
        [(kind, inner)] = structure.items()
        if kind == "dict":
            return {key: unflatten(item, leaves) for key, item in inner.items()}
        items = [unflatten(item, leaves) for item in inner]
        return tuple(items) if kind == "tuple" else items
    data = next(leaves)
    if structure == "bytes":
        return bytes(data)
    if structure == "text":
        return str(data, "utf-8")
    if structure == "number":
        return json.loads(bytes(data))
    return _array_leaf(structure, data)


def _array_leaf(kind: str, data: memoryview) -> Any:
    size = 10 + int.from_bytes(data[8:10], "little")
    dtype, shape = _npy_header(bytes(data[:size]))
    array = np.frombuffer(data, dtype, offset=size).reshape(shape)
    kind, _, detail = kind.partition(":")
    if kind == "array":
        return array
    if kind == "scalar":
        return array[()]
    if kind == "tensor":
        import torch

        tensor = torch.from_numpy(array)
        return tensor.view(getattr(torch, detail)) if detail else tensor
    if kind != "image":
        raise ValueError(f"no kind of leaf is named {kind!r}")
    from PIL import Image

    return Image.fromarray(array)


@lru_cache(maxsize=4096)
def _npy_header(header: bytes) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """Number format and shape from the first bytes of a `.npy` file."""
    file = io.BytesIO(header)
    np.lib.format.read_magic(file)
    shape, _, dtype = np.lib.format.read_array_header_1_0(file)
    if dtype.hasobject:
        raise ValueError("a packed array holds numbers, not objects")
    return dtype, shape


def num_leaves(structure: Structure) -> int:
    """Number of leaves in a structure."""
    if not isinstance(structure, dict):
        return 1
    [(kind, inner)] = structure.items()
    return sum(map(num_leaves, inner.values() if kind == "dict" else inner))
