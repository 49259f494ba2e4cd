"""Packs a dataset with several processes: resumable at any time, and checked to the last byte.

Every part is written under another name, made durable, renamed, and then noted. A packing that is killed loses only the
unfinished parts of its processes.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from autotune.errors import HostError, UsageError
from autotune.protocol.entry_points import PACK_WORKER
from autotune.storage.packed import Packed
from autotune.storage.packed_formats import FORMATS, LIBRARIES, library
from autotune.storage.packed_parts import (
    MANIFEST,
    Manifest,
    Part,
    Source,
    damaged,
    data_path,
    note_path,
    read_manifest,
    write_manifest,
    write_whole,
)
from autotune.storage.user_dataset import digest_of, split_name

SAMPLES_PER_PART = 1000
MOST_PARTS = 1024
"""Most parts by default; larger datasets get larger parts."""
SOURCE_FILE = "source.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class Packing:
    """The end of a packing."""

    num_samples: int
    num_bytes: int
    """Bytes of the data files."""
    num_parts: int
    num_kept: int
    """Parts finished by an earlier, ended run."""
    seconds: float


OnProgress = Callable[[int, int], None]
"""Called with the number of packed samples and of all samples."""


def pack(
    dataset: str,
    format_name: str,
    out: Path,
    *,
    num_processes: int,
    samples_per_part: int | None = None,
    on_progress: OnProgress = lambda done, total: None,
) -> Packing:
    """Packs the dataset into a folder; goes on where an earlier run ended.

    Args:
        dataset: `FILE.py:function`; the function returns a map-style dataset.
        format_name: One of `FORMATS`.
        out: Folder to write; made if missing.
        num_processes: Processes that read samples, at least 1.
        samples_per_part: Samples in a file; None = 1000, more for datasets of over a million samples.
        on_progress: Called after every part.

    Raises:
        UsageError: The dataset cannot be read, or the folder holds another dataset.
        HostError: A package is missing, the folder cannot be written, or another process packs into it.
    """
    began = time.monotonic()
    path, function = split_name(dataset)
    if format_name not in FORMATS:
        raise UsageError(f"There is no format {format_name!r}.", f"Choose one of {', '.join(FORMATS)}.")
    if format_name in LIBRARIES:
        library(format_name)
    with _locked(out), contextlib.ExitStack() as stack:
        workers = [_Worker(path, function, out, format_name)]
        stack.callback(_end_all, workers)
        length = workers[0].answer()["length"]
        if samples_per_part is None:
            samples_per_part = max(SAMPLES_PER_PART, -(-length // MOST_PARTS))
        source = Source(
            file=str(path),
            function=function,
            digest=digest_of(path),
            num_samples=length,
            format=format_name,
            samples_per_part=samples_per_part,
        )
        _check_same(out, source)
        kept = _finished_parts(out, source)
        missing = [number for number in range(source.num_parts) if number not in kept]
        num_more = min(num_processes, len(missing)) - 1
        workers += [_Worker(path, function, out, format_name) for _ in range(num_more)]
        parts = dict(kept)
        on_progress(sum(part.count for part in parts.values()), length)
        for part in _packed_parts(workers, source, missing):
            parts[part.number] = part
            on_progress(sum(each.count for each in parts.values()), length)
        if missing or not (out / MANIFEST).exists():
            write_manifest(out, Manifest(source=source, parts=tuple(parts[n] for n in sorted(parts))))
        (out / SOURCE_FILE).unlink(missing_ok=True)
    return Packing(
        num_samples=length,
        num_bytes=sum(part.num_bytes for part in parts.values()),
        num_parts=len(parts),
        num_kept=len(kept),
        seconds=time.monotonic() - began,
    )


def check(out: Path, on_progress: OnProgress = lambda done, total: None) -> Manifest:
    """Reads every byte of a packed folder again, and compares all checksums.

    Raises:
        UsageError: The folder is not packed to the end, or a file is damaged.
    """
    manifest = read_manifest(out)
    for part in manifest.parts:
        path = data_path(out, manifest.source.format, part.number)
        if not path.exists() or digest_of(path) != part.sha256:
            raise damaged(path, "its content is not the packed content")
    packed = Packed(out, checks=True)
    for number in range(len(packed)):
        packed[number]
        if number % 1000 == 999:
            on_progress(number + 1, len(packed))
    on_progress(len(packed), len(packed))
    return manifest


@contextlib.contextmanager
def _locked(out: Path) -> Iterator[None]:
    """Keeps other packings out of the folder, and removes what killed processes left."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(out / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    except OSError as error:
        raise HostError(f"{out} cannot be written: {error}.", "Choose another folder with --out.") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise HostError(f"Another process packs into {out}.", "Wait for its end, or choose another folder.") from error
    try:
        for left in out.glob(".part-*.tmp"):
            left.unlink(missing_ok=True)
        yield
    finally:
        os.close(descriptor)


def _check_same(out: Path, source: Source) -> None:
    """Notes what is packed into a new folder; refuses a folder of another dataset.

    Raises:
        UsageError: The folder holds another dataset, or the same dataset in another format.
    """
    path = out / SOURCE_FILE
    try:
        if (out / MANIFEST).exists():
            before = read_manifest(out).source
        elif path.exists():
            before = Source(**json.loads(path.read_bytes()))
        else:
            write_whole(path, json.dumps(asdict(source)).encode())
            return
    except (TypeError, ValueError) as error:
        raise damaged(path, str(error)) from error
    different = [name for name, value in asdict(source).items() if asdict(before)[name] != value]
    if different:
        name = different[0]
        raise UsageError(
            f"{out} holds another packing: its {name.replace('_', ' ')} is {getattr(before, name)}, "
            f"not {getattr(source, name)}.",
            "Choose another folder with --out, or remove this one.",
        )


def _finished_parts(out: Path, source: Source) -> dict[int, Part]:
    """The parts finished by earlier runs, by number; a part with a wrong size does not count."""
    if (out / MANIFEST).exists():
        candidates = list(read_manifest(out).parts)
    else:
        candidates = []
        for number in range(source.num_parts):
            with contextlib.suppress(OSError, ValueError, TypeError):
                candidates.append(Part(**json.loads(note_path(out, number).read_bytes())))
    return {part.number: part for part in candidates if _is_there(out, source, part)}


def _is_there(out: Path, source: Source, part: Part) -> bool:
    try:
        return data_path(out, source.format, part.number).stat().st_size == part.num_bytes
    except OSError:
        return False


def _packed_parts(workers: list[_Worker], source: Source, missing: list[int]) -> Iterator[Part]:
    """The parts in the order of completion; every process gets the next part after finishing the last."""
    waiting = iter(missing)
    selector = selectors.DefaultSelector()
    for worker in workers[1:]:
        worker.answer()  # the length, which the first process has told
    for worker in workers:
        number = next(waiting, None)
        if number is not None:
            worker.pack(number, source.range_of(number))
            selector.register(worker.output, selectors.EVENT_READ, worker)
    while selector.get_map():
        for key, _ in selector.select():
            worker = key.data
            yield Part(**worker.answer()["part"])
            number = next(waiting, None)
            if number is None:
                selector.unregister(worker.output)
            else:
                worker.pack(number, source.range_of(number))


def _end_all(workers: list[_Worker]) -> None:
    for worker in workers:
        worker.end()


class _Worker:
    """A process that packs parts."""

    def __init__(self, path: Path, function: str, out: Path, format_name: str) -> None:
        command = PACK_WORKER.command_by(sys.executable, str(path), function, str(out.absolute()), format_name)
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        self.output: Any = self._process.stdout

    def pack(self, number: int, samples: range) -> None:
        """Orders a part."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # The answer tells why.
            self._process.stdin.write(f"{number} {samples.start} {len(samples)}\n")
            self._process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        """Waits for the next answer.

        Raises:
            UsageError: The dataset cannot be read.
            HostError: The process died.
        """
        line = self.output.readline()
        if not line:
            status = self._process.wait()
            raise HostError(
                f"A packing process ended with status {status}.",
                "Look at its output above; finished parts are kept for the next run.",
            )
        document: dict[str, Any] = json.loads(line)
        if "error" in document:
            raise UsageError(document["error"], document["hint"])
        return document

    def end(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
