"""`autotune pack`: packs a map-style dataset into few files."""

from __future__ import annotations

import os
import sys
import time
from typing import Annotated, Any

import typer

from autotune.cli.options import Json, Quiet
from autotune.cli.place import working_directory
from autotune.errors import UsageError

EXAMPLES = """\b
Examples:
  autotune pack data.py:make_dataset --to npy --out packed
  autotune pack data.py:make_dataset --to webdataset --out shards --processes 8
  autotune pack --check --out packed
"""
INTERRUPTED = 130
TELLS_EVERY_S = 2.0


def pack(
    dataset: Annotated[
        str | None, typer.Argument(metavar="[FILE.py:FUNCTION]", help="The function returns a map-style dataset.")
    ] = None,
    to: Annotated[str, typer.Option("--to", metavar="FORMAT", help="npy, lmdb, hdf5 or webdataset.")] = "npy",
    out: Annotated[str, typer.Option("--out", metavar="DIR", help="The folder to write.")] = "packed",
    processes: Annotated[
        int | None, typer.Option("--processes", min=1, help="Processes that read samples. [default: all usable cores]")
    ] = None,
    samples_per_part: Annotated[
        int | None, typer.Option("--samples-per-part", min=1, help="Samples in one file. [default: 1000]")
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Only compare all bytes of --out with the checksums.")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Pack a dataset of many small files into few large ones.

    Every sample is read once, by several processes, and written with a checksum. A run that ends early goes on with the
    same command. Training reads the samples with autotune.storage.Packed(DIR, transform=...), a map-style dataset. The
    formats lmdb and hdf5 need a package of their own: pip install lmdb h5py.
    """
    from autotune.storage import packing

    folder = working_directory() / out
    progress = _Progress(is_quiet=quiet)
    try:
        if check:
            if dataset is not None:
                raise UsageError("--check takes no dataset.", "Name the packed folder: autotune pack --check --out DIR")
            began = time.monotonic()
            manifest = packing.check(folder, progress)
            document: dict[str, Any] = {
                "num_samples": manifest.source.num_samples,
                "num_bytes": manifest.num_bytes,
                "seconds": time.monotonic() - began,
            }
            return _finish(document, out, "All bytes are as packed", as_json=as_json)
        if dataset is None:
            raise UsageError("No dataset is named.", "Name the file and the function: data.py:make_dataset")
        packed = packing.pack(
            dataset,
            to,
            folder,
            num_processes=processes or len(os.sched_getaffinity(0)),
            samples_per_part=samples_per_part,
            on_progress=progress,
        )
    except KeyboardInterrupt:
        from autotune.report.streams import say

        say("Interrupted. The same command goes on with the finished parts.")
        return INTERRUPTED
    document = {
        "num_samples": packed.num_samples,
        "num_bytes": packed.num_bytes,
        "num_parts": packed.num_parts,
        "num_kept_parts": packed.num_kept,
        "seconds": packed.seconds,
        "format": to,
    }
    return _finish(document, out, f"Packed as {to}", as_json=as_json)


def _finish(document: dict[str, Any], out: str, head: str, *, as_json: bool) -> int:
    from autotune.report.document import write_document
    from autotune.report.streams import write_result
    from autotune.units import format_bytes, format_seconds

    if as_json:
        write_document({"out": out, **document})
        return 0
    size, seconds = format_bytes(float(document["num_bytes"])), format_seconds(float(document["seconds"]))
    kept = f", {document['num_kept_parts']} parts of them by an earlier run" if document.get("num_kept_parts") else ""
    write_result(
        f"{head}: {document['num_samples']:,} samples, {size} in {seconds}{kept}.\n"
        f"Read them with: autotune.storage.Packed({out!r}, transform=...)\n"
    )
    return 0


class _Progress:
    """Says on standard error how far a packing is, every two seconds."""

    def __init__(self, *, is_quiet: bool) -> None:
        self._is_quiet = is_quiet or not sys.stderr.isatty()
        self._said = self._began = time.monotonic()

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if self._is_quiet or now - self._said < TELLS_EVERY_S:
            return
        from autotune.report.streams import say
        from autotune.units import format_seconds

        self._said = now
        rate = done / max(now - self._began, 1e-9)
        left = format_seconds((total - done) / max(rate, 1e-9))
        say(f"{done:,} of {total:,} samples, {rate:,.0f} per second, {left} left")
