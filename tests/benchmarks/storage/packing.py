"""How long `autotune pack` takes for many JPEG files, killed and resumed, and how fast workers read the samples back.

    python -m tests.benchmarks.storage.packing [--images 50000] [--workers 8] [--folder DIR] [--out PATH]

Makes the files on the spot, by all cores. Under 10 minutes for 50,000 images on 16 cores; needs Pillow, and reads with
the formats whose packages are installed. `PACKING.md` beside this file has the table. No network is needed.
"""

from __future__ import annotations

import argparse
import io
import json
import multiprocessing
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from torch.utils.data import DataLoader, Dataset

from autotune.storage import Packed
from autotune.storage.packed_formats import FORMATS, LIBRARIES
from autotune.trial.observing.packed_reads import drop_from_cache
from autotune.trial.observing.sample_run import cold_share

RESULTS = Path(__file__).with_name("PACKING.md")
PER_FOLDER = 1000
KILL_AT = 0.4
"""Share of the parts after which the packing is killed."""
BATCH = 64


class Folder(Dataset):
    """The files as they are: the bytes of each, and a class."""

    def __init__(self, root: Path, count: int) -> None:
        self.root, self.count = root, count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[bytes, int]:
        return path_of(self.root, index).read_bytes(), index % 1000


def path_of(root: Path, index: int) -> Path:
    return root / f"{index // PER_FOLDER:04d}" / f"{index:07d}.jpg"


def make() -> Folder:
    """For `autotune pack`."""
    return Folder(Path(os.environ["IMAGES"]), int(os.environ["NUM_IMAGES"]))


def write_images(task: tuple[Path, int, int]) -> None:
    """Writes the images of one folder: 384 by 256 points, some 20 KB each."""
    from PIL import Image

    root, first, last = task
    (root / f"{first // PER_FOLDER:04d}").mkdir(parents=True, exist_ok=True)
    for index in range(first, last):
        small = np.random.default_rng(index).integers(0, 256, (16, 24, 3), dtype=np.uint8)
        file = io.BytesIO()
        Image.fromarray(small).resize((384, 256), Image.Resampling.BICUBIC).save(file, "JPEG", quality=90)
        path_of(root, index).write_bytes(file.getvalue())


def make_folder(root: Path, count: int) -> float:
    """Seconds of writing all images by all cores; 0 where they are there."""
    if path_of(root, count - 1).exists():
        return 0.0
    began = time.monotonic()
    tasks = [(root, first, min(first + PER_FOLDER, count)) for first in range(0, count, PER_FOLDER)]
    with multiprocessing.get_context("spawn").Pool(len(os.sched_getaffinity(0))) as pool:
        pool.map(write_images, tasks, chunksize=1)
    return time.monotonic() - began


def pack(root: Path, count: int, format_name: str, out: Path) -> dict[str, Any]:
    """Packs, is killed, and packs on; the seconds of both runs, and of the check of all bytes."""
    # The file itself is the user's dataset file: PYTHONPATH has the repository.
    repository = Path(__file__).parents[3]
    environment = {**os.environ, "IMAGES": str(root), "NUM_IMAGES": str(count), "PYTHONPATH": str(repository)}
    command = [sys.executable, "-m", "autotune", "pack"]
    words = [*command, f"{__file__}:make", "--to", format_name, "--out", str(out), "--json"]
    num_parts = -(-count // 1000)
    began = time.monotonic()
    killed = subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL)
    while len(list(out.glob("part-*.json"))) < KILL_AT * num_parts and killed.poll() is None:
        time.sleep(0.01)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    first_s = time.monotonic() - began
    done = json.loads(subprocess.run(words, env=environment, check=True, capture_output=True, text=True).stdout)
    check = [*command, "--check", "--out", str(out), "--json"]
    checked = json.loads(subprocess.run(check, env=environment, check=True, capture_output=True, text=True).stdout)
    assert checked["num_samples"] == count
    return {"first_s": first_s, "check_s": checked["seconds"], **done}


def rates(dataset: Any, files: list[Path], workers: int) -> tuple[float, float, float]:
    """Samples per second of an epoch at random from a cold and from a warm cache, and the share that was cold."""
    os.sync()
    for path in files:
        drop_from_cache(path)
    shares = [share for path in files[:: max(1, len(files) // 200)] if (share := cold_share(str(path))) is not None]
    found = []
    for _ in range(2):
        loader = DataLoader(dataset, BATCH, shuffle=True, num_workers=workers, collate_fn=count_of)
        began = time.monotonic()
        total = sum(loader)
        found.append(total / (time.monotonic() - began))
    return found[0], found[1], sum(shares) / max(1, len(shares))


def count_of(samples: list[Any]) -> int:
    """The number of samples: nothing but a number goes to the training process."""
    assert all(data[:2] == b"\xff\xd8" for data, _ in samples)
    return len(samples)


def lines(root: Path, scratch: Path, count: int, workers: int) -> Iterator[str]:
    """The rows of the table."""
    files = [path_of(root, index) for index in range(count)]
    size = sum(path.stat().st_size for path in files)
    cold, warm, share = rates(Folder(root, count), files, workers)
    yield f"| folder | - | - | - | {size / 1e6:,.0f} | {cold:,.0f} | {warm:,.0f} | {share:.0%} |"
    for name in FORMATS:
        if name in LIBRARIES and find_spec(LIBRARIES[name]) is None:
            continue
        out = scratch / name
        done = pack(root, count, name, out)
        packed = Packed(out)
        assert packed[count - 1] == Folder(root, count)[count - 1]
        cold, warm, share = rates(packed, sorted(out.glob("part-*")), workers)
        yield (
            f"| {name} | {done['first_s']:.0f}, killed | {done['seconds']:.0f}, {done['num_kept_parts']} of "
            f"{done['num_parts']} parts kept | {done['check_s']:.0f} | {done['num_bytes'] / 1e6:,.0f} | {cold:,.0f} | "
            f"{warm:,.0f} | {share:.0%} |"
        )


def main() -> None:
    """Prints and writes the table."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.storage.packing",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--images", type=int, default=50_000)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--folder", type=Path, help="keeps the images and packed folders; default: a temporary folder")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as scratch:
        root = (options.folder or Path(scratch)) / f"images-{options.images}"
        made_s = make_folder(root, options.images)
        head = [
            "# Packing many JPEG files, and reading them back",
            "",
            f"`python -m tests.benchmarks.storage.packing --images {options.images} --workers {options.workers}`, "
            f"{datetime.now(UTC):%Y-%m-%d}: {len(os.sched_getaffinity(0))} usable cores, {platform.machine()}. "
            f"{options.images:,} files were made in {made_s:.0f} s. A packing is killed by SIGKILL at {KILL_AT:.0%} of "
            f"its parts, and goes on; then all bytes are checked. {options.workers} workers read samples at random.",
            "",
            "| format | s until killed | s after that | s to check | MB | samples/s cold | warm | cold share |",
            f"|{' --- |' * 8}",
        ]
        rows = []
        for row in lines(root, Path(scratch), options.images, options.workers):
            print(row, flush=True)
            rows.append(row)
            options.out.write_text("\n".join([*head, *rows]) + "\n")


if __name__ == "__main__":
    main()
