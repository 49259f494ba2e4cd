"""Times the opening, reading and decoding of files while a batch is built.

Python's `open` returns a file of a subclass with timed reads. `os.open` and `os.read`, numpy's `fromfile` and `load`,
`torch.load`, reads of HDF5 datasets, and the decoders of PIL, torchvision and OpenCV are wrapped. Other reads by a
library's own code count with the library's decoder, or as the rest.
"""

from __future__ import annotations

import builtins
import contextlib
import io
import os
import sys
import threading
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Any

from autotune.trial.observing.stopwatch import Stopwatch
from autotune.trial.torch.patching import wrap


class Part(StrEnum):
    """Part of the building of a batch."""

    OPEN = "open"
    READ = "read"
    DECODE = "decode"
    REST = "rest"


DECODERS = ("PIL", "torchvision", "OpenCV")
_DECODER_CALLS = (
    ("PIL", "PIL.ImageFile", "ImageFile", "load"),
    ("PIL", "PIL.WebPImagePlugin", "WebPImageFile", "load"),
    ("PIL", "PIL.AvifImagePlugin", "AvifImageFile", "load"),
    ("torchvision", "torchvision.io", "", "decode_image"),
    ("torchvision", "torchvision.io", "", "decode_jpeg"),
    ("torchvision", "torchvision.io", "", "decode_png"),
    ("torchvision", "torchvision.io", "", "read_image"),
    ("OpenCV", "cv2", "", "imdecode"),
    ("OpenCV", "cv2", "", "imread"),
)


MAX_NOTES = 4096
"""Most files and images noted for the what-if."""


class FileTimes:
    """Times the building of batches in this process, in the building thread alone."""

    def __init__(self) -> None:
        self.watch = Stopwatch()
        self.num_files = 0
        self.paths: list[str] | None = None
        """Names of the opened files; None = names are not noted."""
        self.images: list[Any] | None = None
        """Names or content of the decoded images; None = images are not noted."""
        self.chunk_reads: list[tuple[int, str]] = []
        """Rows in a chunk, and the file, for each row read from an HDF5 dataset."""
        self.read_bytes = 0
        self.decode_s_by: dict[str, float] = dict.fromkeys(DECODERS, 0.0)
        self._thread = 0
        self._restore: list[Callable[[], None]] = []

    def attach(self) -> None:
        """Wraps the functions that open, read and decode, in the libraries imported so far."""
        self._restore += [
            wrap(builtins, "open", self._wrap_open),
            wrap(io, "open", self._wrap_open),
            wrap(os, "open", self._timing(Part.OPEN, self._count_file)),
            wrap(os, "read", self._timing(Part.READ, self._count_bytes)),
        ]
        if "numpy" in sys.modules:
            self._restore.append(wrap(sys.modules["numpy"], "fromfile", self._timing(Part.READ, self._count_array)))
            self._restore.append(wrap(sys.modules["numpy"], "load", self._loading(counts_file=False)))
        if "torch" in sys.modules:
            self._restore.append(wrap(sys.modules["torch"], "load", self._loading(counts_file=True)))
        if "h5py" in sys.modules:
            self._restore.append(wrap(sys.modules["h5py"].Dataset, "__getitem__", self._reading_chunks))
        for decoder, module, owner, name in _DECODER_CALLS:
            found = sys.modules.get(module)
            found = getattr(found, owner, None) if owner else found
            if found is not None and hasattr(found, name):
                self._restore.append(wrap(found, name, self._decoding(decoder)))

    def detach(self) -> None:
        """Restores the wrapped functions."""
        while self._restore:
            self._restore.pop()()

    def begin(self) -> None:
        """Begins the building of a batch in this thread."""
        self._thread = threading.get_ident()
        self.watch.enter(Part.REST)

    def end(self) -> None:
        """Ends the building of a batch."""
        self.watch.leave()
        self._thread = 0

    @property
    def _is_timed(self) -> bool:
        return self._thread == threading.get_ident()

    def timed(self, part: Part, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """The result of a call; the time counts under `part` while this thread builds a batch."""
        if not self._is_timed:
            return call(*args, **kwargs)
        self.watch.enter(part)
        try:
            return call(*args, **kwargs)
        finally:
            self.watch.leave()

    def _timing(self, part: Part, note: Callable[[Any], None]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def make(original: Callable[..., Any]) -> Callable[..., Any]:
            def call(*args: Any, **kwargs: Any) -> Any:
                result = self.timed(part, original, *args, **kwargs)
                if self._is_timed:
                    note(result)
                return result

            return call

        return make

    def _decoding(self, decoder: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def make(original: Callable[..., Any]) -> Callable[..., Any]:
            def decode(*args: Any, **kwargs: Any) -> Any:
                if self.watch.part is Part.DECODE:  # PIL's decoders of some formats call the decoder of raw pixels
                    return original(*args, **kwargs)
                before_s = self.watch.seconds[Part.DECODE]
                self._note_image(args[0] if args else None)
                try:
                    return self.timed(Part.DECODE, original, *args, **kwargs)
                finally:
                    self.decode_s_by[decoder] += self.watch.seconds[Part.DECODE] - before_s

            return decode

        return make

    def _wrap_open(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def open_file(
            file: Any,
            mode: str = "r",
            buffering: int = -1,
            encoding: str | None = None,
            errors: str | None = None,
            newline: str | None = None,
            closefd: bool = True,
            opener: Any = None,
        ) -> Any:
            if not self._is_timed or isinstance(file, int) or set(mode) - set("rbt"):
                return original(file, mode, buffering, encoding, errors, newline, closefd, opener)
            self.watch.enter(Part.OPEN)
            try:
                raw = original(file, "rb", 0, opener=opener)
                self._count_file(raw, file)
                if buffering == 0 and "b" in mode:
                    return raw
                buffered = _TimedFile(raw, buffering if buffering > 1 else io.DEFAULT_BUFFER_SIZE)
                buffered.times = self
                if "b" in mode:
                    return buffered
                text = io.TextIOWrapper(buffered, encoding, errors, newline, line_buffering=buffering == 1)
                text.mode = mode  # type: ignore[misc]
                return text
            finally:
                self.watch.leave()

        return open_file

    def _loading(self, *, counts_file: bool) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Times a function that loads a whole file, by name or as an open file.

        Args:
            counts_file: Whether the function opens a named file out of Python's sight.
        """

        def make(original: Callable[..., Any]) -> Callable[..., Any]:
            def load(file: Any, *args: Any, **kwargs: Any) -> Any:
                if counts_file and self._is_timed and isinstance(file, (str, os.PathLike)):
                    self._count_file(None, file)
                    with contextlib.suppress(OSError):
                        self.read_bytes += Path(file).stat().st_size
                return self.timed(Part.READ, original, file, *args, **kwargs)

            return load

        return make

    def _reading_chunks(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def read(dataset: Any, *args: Any, **kwargs: Any) -> Any:
            result = self.timed(Part.READ, original, dataset, *args, **kwargs)
            if self._is_timed:
                self.read_bytes += int(getattr(result, "nbytes", 0))
                if len(self.chunk_reads) < MAX_NOTES and getattr(result, "ndim", 0) < dataset.ndim:
                    rows = dataset.chunks[0] if dataset.chunks else 1
                    self.chunk_reads.append((rows, str(Path(dataset.file.filename).absolute())))
            return result

        return read

    def _note_image(self, given: Any) -> None:
        """Notes an image before it is decoded, by name or content."""
        if self.images is None or not self._is_timed or len(self.images) >= MAX_NOTES:
            return
        if isinstance(given, (str, os.PathLike)):
            self.images.append(os.fspath(given))
        elif hasattr(given, "getbands"):  # an image of PIL, whose file is open until the first load
            file: Any = getattr(given, "fp", None)
            content = file.getvalue() if hasattr(file, "getvalue") else getattr(file, "name", None)
            if isinstance(content, (bytes, str)):
                self.images.append(content)
        elif hasattr(given, "numpy"):
            self.images.append(given.numpy().tobytes())
        elif hasattr(given, "tobytes"):
            self.images.append(given.tobytes())

    def _count_file(self, _: Any, name: Any = None) -> None:
        self.num_files += 1
        if self.paths is not None and isinstance(name, (str, os.PathLike)) and len(self.paths) < MAX_NOTES:
            self.paths.append(str(Path(name).absolute()))

    def _count_bytes(self, data: Any) -> None:
        self.read_bytes += len(data)

    def _count_array(self, array: Any) -> None:
        self.read_bytes += int(array.nbytes)


class _TimedFile(io.BufferedReader):
    """An open file with timed reads."""

    times: FileTimes

    def read(self, size: int | None = -1, /) -> bytes:
        return self._timed(super().read, size)

    def read1(self, size: int = -1, /) -> bytes:
        return self._timed(super().read1, size)

    def readline(self, size: int | None = -1, /) -> bytes:
        return self._timed(super().readline, size)

    def readinto(self, buffer: Any, /) -> int:
        return self._timed_into(super().readinto, buffer)

    def readinto1(self, buffer: Any, /) -> int:
        return self._timed_into(super().readinto1, buffer)

    def close(self) -> None:
        self.times.timed(Part.OPEN, super().close)

    def _timed(self, read: Callable[[Any], bytes], size: int | None) -> bytes:
        data: bytes = self.times.timed(Part.READ, read, size)
        self.times.read_bytes += len(data)
        return data

    def _timed_into(self, read: Callable[[Any], int], buffer: Any) -> int:
        count: int = self.times.timed(Part.READ, read, buffer)
        self.times.read_bytes += count
        return count
