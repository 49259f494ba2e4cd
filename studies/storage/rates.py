"""Rates of the loader alone, by storage and number of workers, cold and warm: RATES.md and rates.svg.

python train.py --prepare
python rates.py [--workers 1,4,8] [--decoder opencv] [--seconds 8]
"""

import argparse
import os
import time
from pathlib import Path

from torch.utils.data import DataLoader
from train import DECODERS, HERE, STORAGES, Trained, stored

COLOURS = ("#9ecae1", "#3182bd")


def drop(folder):
    """Drops the files of a storage from the page cache."""
    os.sync()
    for path in folder.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def rate(dataset, workers, seconds):
    """Samples per second of one epoch, or of its first seconds."""
    loader = iter(DataLoader(dataset, batch_size=32, shuffle=True, num_workers=workers))
    next(loader)  # workers have started by then
    began, samples = time.perf_counter(), 0
    for _, targets in loader:
        samples += len(targets)
        if time.perf_counter() - began > seconds:
            break
    return samples / (time.perf_counter() - began)


def picture(rows, workers):
    """Bars of the rates: a pair for each storage, cold and warm, with the most workers."""
    most = max(value for row in rows.values() for value in row[-1])
    lines = []
    for number, (name, row) in enumerate(rows.items()):
        for shift, value in enumerate(row[-1]):
            top, length = 30 + 40 * number + 15 * shift, 430 * value / most
            lines.append(f'<rect x="90" y="{top}" width="{length:.0f}" height="13" fill="{COLOURS[shift]}"/>')
            lines.append(f'<text x="{95 + length:.0f}" y="{top + 11}">{value:,.0f}</text>')
        lines.append(f'<text x="84" y="{50 + 40 * number}" text-anchor="end">{name}</text>')
    head = f'<text x="90" y="18">samples per second, {workers} workers: cold (light), warm (dark)</text>'
    size = f'width="600" height="{40 + 40 * len(rows)}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">',
            head,
            *lines,
            "</svg>",
        ]
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", default="1,2,4")
    parser.add_argument("--decoder", choices=tuple(DECODERS), default="pil")
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--data", type=Path, default=HERE / "data")
    options = parser.parse_args()
    counts = [int(word) for word in options.workers.split(",")]
    rows = {}
    for storage in STORAGES[:-1]:
        folder = options.data / ("images" if storage == "folder" else storage)
        dataset = Trained(stored(options.data.resolve(), storage), DECODERS[options.decoder], 1)
        rows[storage] = []
        for count in counts:
            drop(folder)
            rows[storage].append((rate(dataset, count, options.seconds), rate(dataset, count, options.seconds)))
        print(storage, rows[storage], flush=True)
    head = "| storage | " + " | ".join(f"{count} cold | {count} warm" for count in counts) + " |"
    cells = [
        f"| {name} | " + " | ".join(f"{cold:,.0f} | {warm:,.0f}" for cold, warm in row) + " |"
        for name, row in rows.items()
    ]
    text = [
        "# Samples per second of the loader alone, by storage and workers",
        "",
        f"`python rates.py --workers {options.workers} --decoder {options.decoder} --seconds {options.seconds:g}`, "
        f"{time.strftime('%Y-%m-%d')}, {len(os.sched_getaffinity(0))} usable cores.",
        "",
        "![rates](rates.svg)",
        "",
        head,
        "|" + " --- |" * (1 + 2 * len(counts)),
        *cells,
    ]
    (HERE / "RATES.md").write_text("\n".join(text) + "\n")
    (HERE / "rates.svg").write_text(picture(rows, counts[-1]) + "\n")


if __name__ == "__main__":
    main()
