"""ResNet-50 past the wall of the CPU's decoders on one GPU: images per second and utilization, as JSON lines.

    python wall.py [--workers N] [--batch-size 256] [--seconds 15] [--limit 420] [--out WALL.md]

Measures the device's own rate on one repeated batch; takes the smallest images whose decoding by PIL on all cores is
slower than the device; makes the images; trains with PIL; follows the first advice of `autotune diagnose` on this
training, and measures again; and trains with all other decoders for comparison. Each line is printed as soon as it is
known. Needs CUDA, torchvision and Pillow.
"""

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from train import DECODERS, by_pil, make_class, make_images

HERE = Path(__file__).resolve().parent
SIZES = ("500x375", "640x480", "800x600", "1024x768", "1280x960")
WALL = 0.7
"""Rate of PIL on all cores over the device's own rate, at most."""
ALONE, SICK = "one repeated batch", "PIL"
RUNS = {
    ALONE: ("--decoder", "torchvision", "--repeat"),
    SICK: ("--decoder", "pil"),
    "torchvision on the CPU": ("--decoder", "torchvision"),
    "nvJPEG on the device": ("--decoder", "nvjpeg"),
}
RATE = re.compile(r"samples_per_second ([0-9.]+)")
LEAST_S = 40.0
"""Seconds that a run needs at least, with its start."""


def say(**line):
    print(json.dumps(line), flush=True)
    return line


def utilization():
    """Per cent of the time in which the device works, now; None without an answer."""
    words = ["nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits", "--id=0"]
    try:
        return float(subprocess.run(words, capture_output=True, text=True, timeout=5).stdout.split()[0])
    except (OSError, ValueError, IndexError, subprocess.TimeoutExpired):
        pass
    try:
        import torch

        return float(torch.cuda.utilization(0))
    except Exception:  # neither program nor library of NVML
        return None


def watch(stop, found):
    while not stop.wait(0.25):
        found.append((time.monotonic(), utilization()))


def measured(name, words, seconds, limit_s):
    """One training run: images per second, and the median utilization of the measured seconds."""
    found, printed, stop = [], [], threading.Event()
    threading.Thread(target=watch, args=(stop, found), daemon=True).start()
    line, ended = {"run": name}, time.monotonic()
    with (
        tempfile.TemporaryFile("w+") as problems,
        subprocess.Popen(words, cwd=HERE, stdout=subprocess.PIPE, stderr=problems, text=True) as process,
    ):
        clock = threading.Timer(max(5.0, limit_s), process.kill)
        clock.start()
        for text in process.stdout:
            printed += RATE.findall(text)
            ended = time.monotonic()  # the process takes its own time to end, without training
        process.wait()
        clock.cancel()
        problems.seek(0)
        talk = problems.read()
    stop.set()
    if printed:
        line["images_per_second"] = float(printed[-1])
    else:
        line["error"] = talk.strip()[-1500:] or f"ended after {limit_s:.0f} s"
    busy = [each for at, each in found if each is not None and ended - 0.9 * seconds < at < ended - 0.1 * seconds]
    line["utilization_percent"] = statistics.median(busy) if busy else None
    return say(**line)


def decoded_images(task):
    """Images decoded by PIL in some seconds, in one process."""
    from PIL import Image

    size, seconds = task
    with tempfile.TemporaryDirectory() as folder:
        make_class(Path(folder), 0, 1, size)
        [path] = Path(folder).glob("*/*.jpg")
        data = path.read_bytes()
    began, count = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        by_pil(data)
        count += 1
    return count / (time.perf_counter() - began), len(data), Image.__name__


def chosen_size(device_rate, workers):
    """The smallest size at which PIL on all cores is slower than the device."""
    with ProcessPoolExecutor(workers) as pool:
        for size in SIZES:
            tasks = [(tuple(map(int, size.split("x"))), 1.5)] * workers
            answers = list(pool.map(decoded_images, tasks, chunksize=1))
            rate = sum(answer[0] for answer in answers)
            say(step="PIL alone", size=size, bytes=answers[0][1], images_per_second=round(rate))
            if rate <= WALL * device_rate:
                break
    return size


def nvjpeg_rate(folder, batch_size):
    """Images per second of nvJPEG alone, on a list."""
    code = (
        "import sys, time, torch; from pathlib import Path; from torchvision.io import decode_jpeg\n"
        f"files = sorted(Path({str(folder)!r}).glob('*/*.jpg'))[:{batch_size}]\n"
        "images = [torch.frombuffer(bytearray(file.read_bytes()), dtype=torch.uint8) for file in files]\n"
        "for turn in range(12):\n"
        "    if turn == 2: torch.cuda.synchronize(); began = time.perf_counter()\n"
        "    decode_jpeg(images, device='cuda')\n"
        "torch.cuda.synchronize(); print(10 * len(images) / (time.perf_counter() - began))\n"
    )
    try:
        ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
        return round(float(ended.stdout)) if not ended.returncode else ended.stderr.strip()[-800:]
    except (ValueError, subprocess.TimeoutExpired) as error:
        return str(error)[:200]


def advice(words, limit_s):
    """All advice of a diagnosis, the first advice first; empty after a failure."""
    command = [sys.executable, "-m", "autotune", "diagnose", "train.py", "--json", "--", *words]
    environment = {**os.environ, "PYTHONPATH": f"{HERE.parents[1]}:{os.environ.get('PYTHONPATH', '')}"}
    problems = ""
    try:
        ended = subprocess.run(
            command, cwd=HERE, env=environment, capture_output=True, text=True, timeout=max(5.0, limit_s)
        )
        problems = ended.stderr[-800:]
        found = json.loads(ended.stdout)
    except (ValueError, subprocess.TimeoutExpired) as error:
        say(step="diagnose", error=str(error)[-300:], words=problems)
        return []
    kept = ("sickness", "action", "gain", "source", "settings")
    line = say(
        step="diagnose",
        images_per_second=found["samples_per_second"],
        ceiling=found["ceiling_samples_per_second"],
        bottleneck=found["bottleneck"],
        shares={name: found[name] for name in ("data_wait_fraction", "copy_share", "device_share")},
        decoders=(found["storage"] or {}).get("decoders"),
        notes=found["notes"],
        advice=[{key: each.get(key) for key in kept} for each in found["advice"][:4]],
    )
    return line["advice"]


def endless(words):
    """The same arguments for a training without an end."""
    return ["0" if before == "--seconds" else word for before, word in zip([None, *words], words, strict=False)]


def cure(advice):
    """Arguments of train.py that follow an advice; None where train.py has none."""
    if "decode_jpeg" in advice["action"]:
        return RUNS["nvJPEG on the device"]
    named = re.match(r"Decode with (\w+) instead", advice["action"])
    if named is not None and named[1].lower() in DECODERS:
        return ("--decoder", named[1].lower())
    workers = (advice["settings"] or {}).get("num_workers")
    return ("--decoder", "pil", "--workers", str(workers)) if workers else None


def page(lines, followed, options, size, device):
    rows = [
        f"| {line['run']} | {line.get('images_per_second', 0) or 0:,.0f} | {line['utilization_percent']} % |"
        for line in lines
    ]
    return [
        "# ResNet-50 past the wall of the CPU's decoders",
        "",
        f"`python wall.py --workers {options.workers} --batch-size {options.batch_size}`, {time.strftime('%Y-%m-%d')}, "
        f"{device}. JPEGs of {size}; bfloat16, channels last, no compiled model.",
        "",
        "| decoder | images/s | utilization |",
        "| --- | --- | --- |",
        *rows,
        *followed,
    ]


def followed_lines(first, lines):
    """The first advice with its promise, and the gain of the followed run over the run with PIL."""
    rates = {line["run"].partition(" (")[0]: line.get("images_per_second") for line in lines}
    run = next((line for line in lines if line["run"].endswith("(advised)")), None)
    said = f'`autotune diagnose` of the training with PIL advises first: "{first["action"]}"'
    promised = f"promised {first['gain']:.2f}x" if first["gain"] else "without a promise"
    got = "not followed"
    if run is not None and rates.get(SICK) and run.get("images_per_second"):
        got = f"got {run['images_per_second'] / rates[SICK]:.2f}x"
    return ["", f"{said} ({promised}, {got})."]


def main():
    import torch
    import torchvision

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--limit", type=float, default=420.0, help="seconds for everything")
    parser.add_argument("--per-class", type=int, default=64)
    parser.add_argument("--size", choices=SIZES, help="of the images; default: by the device's rate")
    parser.add_argument("--out", type=Path, default=HERE / "WALL.md")
    options = parser.parse_args()
    began = time.monotonic()

    def left():
        return options.limit - (time.monotonic() - began)

    device = f"{torch.cuda.get_device_name()}, torch {torch.__version__}, torchvision {torchvision.__version__}"
    shared = shutil.disk_usage("/dev/shm").free
    say(step="machine", device=device, cores=options.workers, shared_memory_bytes=shared)
    folder = Path(tempfile.mkdtemp(prefix="wall-", dir="/dev/shm" if shared > 16e9 else None))
    common = ["--model", "resnet50", "--bf16", "--channels-last", "--storage", "folder", "--device", "cuda"]
    common += ["--workers", str(options.workers), "--batch-size", str(options.batch_size)]
    common += ["--seconds", str(options.seconds), "--per-class", str(options.per_class)]

    def run(name, data, words):
        command = [sys.executable, "train.py", *common, "--data", str(data), *words]
        return measured(name, command, options.seconds, min(90.0, left()))

    try:
        lines = [run(ALONE, folder / SIZES[0], RUNS[ALONE])]
        rate = lines[0].get("images_per_second") or 3000.0
        size = options.size or chosen_size(rate, options.workers)
        data = folder / size
        make_images(data / "images", options.per_class, tuple(map(int, size.split("x"))))
        say(step="images", size=size, count=16 * options.per_class, seconds_left=round(left()))
        say(step="nvJPEG alone", images_per_second=nvjpeg_rate(data / "images", options.batch_size))
        lines.append(run(SICK, data, RUNS[SICK]))
        found = advice([*endless(common), "--data", str(data), *RUNS[SICK]], left() - 2 * LEAST_S)
        words = cure(found[0]) if found else None
        others = [name for name in RUNS if name not in (ALONE, SICK)]
        known = next((name for name in others if RUNS[name] == words), None)
        if words is not None:
            lines.append(run(f"{known or ' '.join(words)} (advised)", data, words))
        followed = followed_lines(found[0], lines) if found else []
        for name in [None, *others]:
            if name is not None and name != known and left() > LEAST_S:
                lines.append(run(name, data, RUNS[name]))
            options.out.write_text("\n".join(page(lines, followed, options, size, device)) + "\n")
        say(step="end", seconds=round(time.monotonic() - began))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
