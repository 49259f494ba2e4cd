"""`Packed`: a map-style dataset over a packed folder."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from autotune.storage.packed_formats import Range, Reader, open_reader
from autotune.storage.packed_parts import damaged, data_path, read_index, read_manifest
from autotune.storage.sample_bytes import checksum, unflatten


class Packed:
    """The samples of a packed folder, equal to the samples of the packed dataset.

    Each process opens the files at its first sample: an object may be forked, spawned and pickled at any time.

    Args:
        folder: The folder written by `autotune pack --out`.
        transform: Called with every sample; None = samples are returned unchanged.
        checks: Whether the CRC-32 of every sample is compared on reading, at about 1 ms per MB.

    Raises:
        UsageError: The folder is not packed, the packing is unfinished, or a file is damaged.
    """

    def __init__(
        self, folder: str | os.PathLike[str], transform: Callable[[Any], Any] | None = None, *, checks: bool = False
    ) -> None:
        self.folder = Path(folder).absolute()
        self.transform = transform
        self.checks = checks
        self._manifest = read_manifest(self.folder)
        self._per_part = self._manifest.source.samples_per_part
        self._open: dict[int, tuple[Reader, np.ndarray[Any, Any]]] = {}
        self._pid = 0

    def __len__(self) -> int:
        return self._manifest.source.num_samples

    def __repr__(self) -> str:
        return f"Packed({str(self.folder)!r}): {len(self)} samples as {self._manifest.source.format}"

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_open": {}, "_pid": 0}

    def __getitem__(self, number: int) -> Any:
        """The sample with this number; negative numbers count from the end.

        Raises:
            IndexError: There is no such sample.
            UsageError: `checks` is set, and the sample is damaged.
        """
        number = self._checked(number)
        sample = self._read(number)
        return sample if self.transform is None else self.transform(sample)

    def __getitems__(self, numbers: Sequence[int]) -> list[Any]:
        """The samples with these numbers, in this order; the kernel reads all of the batch at once from a cold disk."""
        numbers = [self._checked(number) for number in numbers]
        self._prefetch(numbers)
        samples = [self._read(number) for number in numbers]
        return samples if self.transform is None else [self.transform(sample) for sample in samples]

    def _checked(self, number: int) -> int:
        number = int(number)  # A sampler may give numbers of numpy or torch.
        if not -len(self) <= number < len(self):
            raise IndexError(f"sample {number} of {len(self)}")
        return number % len(self)

    def _part(self, number: int) -> tuple[Reader, np.ndarray[Any, Any]]:
        """Reader and index of the part with this number, opened in this process."""
        if self._pid != os.getpid():
            for reader, _ in self._open.values():
                reader.leave()
            self._open, self._pid = {}, os.getpid()
        if number not in self._open:
            source, part = self._manifest.source, self._manifest.parts[number]
            path = data_path(self.folder, source.format, number)
            if not path.exists() or path.stat().st_size != part.num_bytes:
                raise damaged(path, f"it does not have the {part.num_bytes} bytes that were packed")
            self._open[number] = open_reader(source.format, path), read_index(self.folder, part)
        return self._open[number]

    def _read(self, number: int) -> Any:
        part, position = divmod(number, self._per_part)
        reader, index = self._part(part)
        offset, length, crc, which = index[position].tolist()
        structure = self._manifest.parts[part].structures[which]
        leaves = reader.leaves(number, Range((offset, length)), structure)
        if self.checks and checksum(leaves) != crc:
            path = data_path(self.folder, self._manifest.source.format, part)
            raise damaged(path, f"sample {number} has another checksum than at packing")
        return unflatten(structure, iter(leaves))

    def _prefetch(self, numbers: Sequence[int]) -> None:
        by_part: dict[int, list[Range]] = {}
        for number in numbers:
            part, position = divmod(number, self._per_part)
            _, index = self._part(part)
            by_part.setdefault(part, []).append(Range(index[position, :2].tolist()))
        for part, places in by_part.items():
            self._part(part)[0].prefetch(sorted(places))
