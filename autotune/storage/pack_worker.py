"""The program of a packing process: reads orders from standard input, and answers on standard output.

The first answer is the length of the dataset. Every further answer is a finished part, or an error. The program ends at
the end of standard input, or at the death of its parent.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import json
import os
import signal
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from autotune.errors import AutotuneError, UsageError
from autotune.storage.packed_formats import open_writer
from autotune.storage.packed_parts import (
    Part,
    data_path,
    index_path,
    note_path,
    sync_folder,
    temporary_beside,
    write_whole,
)
from autotune.storage.sample_bytes import checksum, flatten
from autotune.storage.user_dataset import load_dataset

PR_SET_PDEATHSIG = 1


def main(file: str, function: str, folder: str, format_name: str) -> None:
    """Packs the parts named on standard input, as lines of `number first count`.

    Args:
        file: File of the user's function.
        function: Name of the function that gives the dataset.
        folder: Folder of the parts.
        format_name: One of `FORMATS`.
    """
    with contextlib.suppress(OSError, AttributeError):  # another system than Linux
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # The command ends its processes itself.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # What the user's code prints is no answer.
    try:
        dataset = load_dataset(Path(file), function)
        _answer(answers, {"length": len(dataset)})
        for line in sys.stdin:
            number, first, count = map(int, line.split())
            part = pack_part(dataset, Path(folder), format_name, number, range(first, first + count))
            _answer(answers, {"part": asdict(part)})
    except AutotuneError as error:
        _answer(answers, {"error": error.message, "hint": error.hint})
    except OSError as error:
        _answer(answers, {"error": f"A part cannot be written: {error}.", "hint": "Make room, and run it again."})


def _answer(answers: Any, document: dict[str, Any]) -> None:
    answers.write(json.dumps(document) + "\n")
    answers.flush()


def pack_part(dataset: Any, folder: Path, format_name: str, number: int, samples: range) -> Part:
    """Writes one part: data, index, and last the note that the part is finished.

    Raises:
        UsageError: A sample cannot be read, or has no packed form.
        HostError: The format's package is not installed.
        OSError: The part cannot be written.
    """
    path = data_path(folder, format_name, number)
    temporary = temporary_beside(path)
    writer = open_writer(format_name, temporary)
    structures: dict[str, int] = {}
    rows = []
    try:
        for index in samples:
            structure, leaves = flatten(_sample(dataset, index))
            place = writer.add(index, leaves)
            which = structures.setdefault(json.dumps(structure), len(structures))
            rows.append((*place, checksum([leaf.data for leaf in leaves]), which))
    finally:
        writer.close()
    with temporary.open("rb+") as file:
        os.fsync(file.fileno())
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        size = os.fstat(file.fileno()).st_size
    temporary.replace(path)
    write_whole(index_path(folder, number), np.array(rows, "<i8").tobytes())
    part = Part(
        number=number,
        first=samples.start,
        count=len(samples),
        num_bytes=size,
        sha256=digest,
        structures=[json.loads(text) for text in structures],
    )
    sync_folder(folder)
    write_whole(note_path(folder, number), json.dumps(asdict(part)).encode())
    return part


def _sample(dataset: Any, index: int) -> Any:
    try:
        return dataset[index]
    except Exception as error:
        raise UsageError(
            f"Sample {index} cannot be read: {type(error).__name__}: {error}.",
            "Mend the file, or leave the sample out of the dataset; finished parts are kept.",
        ) from error
