"""Packs a dataset within this process, for tests of what reads it back."""

from __future__ import annotations

from autotune.storage.pack_worker import pack_part
from autotune.storage.packed_parts import Manifest, Source, write_manifest


def pack_here(dataset, folder, format_name, *, samples_per_part=4):
    """The folder, with the whole dataset packed."""
    folder.mkdir(parents=True, exist_ok=True)
    source = Source(
        file="data.py",
        function="make",
        digest="",
        num_samples=len(dataset),
        format=format_name,
        samples_per_part=samples_per_part,
    )
    parts = [pack_part(dataset, folder, format_name, n, source.range_of(n)) for n in range(source.num_parts)]
    write_manifest(folder, Manifest(source=source, parts=tuple(parts)))
    return folder
