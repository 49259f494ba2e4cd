"""Times the opening, reading and decoding of files while a batch is built.

Python's `open` returns a file of a subclass with timed reads. `os.open` and `os.read`, numpy's `fromfile` and the
decoders of PIL, torchvision and OpenCV are wrapped. Reads by a library's own code count with the library's decoder, or
as the rest.
"""

from __future__ import annotations

import builtins
import io
import os
import sys
import threading
from collections.abc import Callable
from enum import StrEnum
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
    ("torchvision", "torchvision.io", "", "decode_image"),
    ("torchvision", "torchvision.io", "", "decode_jpeg"),
    ("torchvision", "torchvision.io", "", "decode_png"),
    ("torchvision", "torchvision.io", "", "read_image"),
    ("OpenCV", "cv2", "", "imdecode"),
    ("OpenCV", "cv2", "", "imread"),
)


class FileTimes:
    """Times the building of batches in this process, in the building thread alone."""

    def __init__(self) -> None:
        self.watch = Stopwatch()
        self.num_files = 0
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
                before_s = self.watch.seconds[Part.DECODE]
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
                self.num_files += 1
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

    def _count_file(self, _: Any) -> None:
        self.num_files += 1

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
