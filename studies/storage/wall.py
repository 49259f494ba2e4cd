"""ResNet-50 past the wall of the CPU's decoders on one GPU: images per second and utilization, as a table.

    python wall.py [--workers 16] [--batch-size 256] [--seconds 20] [--out WALL.md]

Runs train.py four times: on one repeated batch (the device's own rate), with PIL, with torchvision's decoder on the
CPU, and with nvJPEG on the device beside training. Needs CUDA and torchvision; the utilization is NVML's.
"""

import argparse
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

import pynvml
import torch

HERE = Path(__file__).resolve().parent
RUNS = {
    "one repeated batch": ("--decoder", "torchvision", "--repeat"),
    "PIL": ("--decoder", "pil"),
    "torchvision on the CPU": ("--decoder", "torchvision"),
    "nvJPEG on the device": ("--decoder", "nvjpeg"),
}
WARM_UP_S = 0.5
"""Share of a run's time whose utilization counts: the last half."""


def utilizations(stop, handle, found):
    while not stop.wait(0.2):
        found.append(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu)


def measured(words, handle):
    found, stop = [], threading.Event()
    watch = threading.Thread(target=utilizations, args=(stop, handle, found))
    watch.start()
    ended = subprocess.run(words, cwd=HERE, capture_output=True, text=True)
    stop.set()
    watch.join()
    if ended.returncode:
        return None, ended.stderr.strip().splitlines()[-1][:100]
    late = found[int(len(found) * WARM_UP_S) :] or [0]
    return float(ended.stdout.split()[-1]), f"{statistics.median(late):.0f} %"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--storage", default="npy")
    parser.add_argument("--out", type=Path, default=HERE / "WALL.md")
    options = parser.parse_args()
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    common = ["--model", "resnet50", "--bf16", "--channels-last", "--storage", options.storage]
    common += ["--workers", str(options.workers), "--batch-size", str(options.batch_size)]
    common += ["--seconds", str(options.seconds)]
    rows = []
    for name, words in RUNS.items():
        rate, busy = measured([sys.executable, "train.py", *common, *words], handle)
        rows.append(f"| {name} | {f'{rate:,.0f}' if rate is not None else 'failed'} | {busy} |")
        print(rows[-1], flush=True)
    text = [
        "# ResNet-50 past the wall of the CPU's decoders",
        "",
        f"`python wall.py --workers {options.workers} --batch-size {options.batch_size} --storage {options.storage}`, "
        f"{time.strftime('%Y-%m-%d')}, {torch.cuda.get_device_name()}, torch {torch.__version__}.",
        "",
        "| decoder | images/s | utilization |",
        "| --- | --- | --- |",
        *rows,
    ]
    options.out.write_text("\n".join(text) + "\n")


if __name__ == "__main__":
    main()
