"""A script with a beginning of its own before it trains; its argument names what that leaves behind.

What it prints where its settings matter follows from all that its beginning made: numbers, files, handlers.
"""

import _thread
import ctypes
import os
import random
import signal
import sys
import tempfile
import threading
import time

import numpy
import torch
from torch.nn.utils import clip_grad_norm_
from torch.utils.data import DataLoader, TensorDataset

HOW = sys.argv[1] if len(sys.argv) > 1 else ""
BEGINNING_S = 0.5

random.seed(3)
numpy.random.seed(4)
torch.manual_seed(5)


def process():
    """What tells this process from all others: with layers each trial counts its processes anew."""
    with open("/proc/self/stat") as file:
        ticks = file.read().rpartition(")")[2].split()[19]
    return f"{os.readlink('/proc/self/ns/pid')}-{os.getpid()}-{ticks}"


def begin():
    """What takes its time, and makes files."""
    time.sleep(BEGINNING_S)
    inputs = torch.tanh(torch.randn(2048, 16) @ torch.randn(16, 16))
    targets = torch.from_numpy(numpy.random.randint(0, 3, 2048))
    with open("words.txt", "w") as words:
        words.write("one\ntwo\nthree\n")
    with open(os.path.join(tempfile.mkdtemp(prefix="begun-"), "note.txt"), "w") as note:
        note.write("made by the beginning\n")
    return TensorDataset(inputs, targets), note.name


def leave_behind():
    """What a fork cannot take along, or would share."""
    if HOW == "thread":
        threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
    elif HOW == "process":
        return os.popen("sleep 600")
    elif HOW == "pipe":
        return os.pipe()
    elif HOW == "shared":
        return torch.zeros(4).share_memory_()
    elif HOW == "removed":
        return tempfile.TemporaryFile()
    elif HOW == "timer":
        signal.setitimer(signal.ITIMER_REAL, 600)
    elif HOW == "output":
        os.dup2(os.open("output.txt", os.O_WRONLY | os.O_CREAT), 1)
    elif HOW == "threads":
        return torch.get_num_threads()
    elif HOW == "native":
        return _thread.start_new_thread(sleep_as_a_library_would, ())
    elif HOW == "files":
        return [open("words.txt") for _ in range(1100)]
    elif HOW == "bar":
        return lock_of_bars()
    elif HOW == "devices":
        print("asked for devices by NVML:", os.environ.get("PYTORCH_NVML_BASED_CUDA_CHECK"))
    elif HOW == "chooses":
        torch._C._cuda_setDevice = lambda device: print(f"device {device} is the current one in {process()}")
        print(f"chooses a device in {process()}")
        torch.cuda.set_device("cuda:0")
        print("computes in bf16:", torch.cuda.is_bf16_supported(), flush=True)
    return None


def lock_of_bars():
    """What all processes that draw bars take turns by, once one is drawn, which starts a thread as well."""
    import tqdm

    list(tqdm.tqdm(range(2), disable=False))
    return tqdm.std.TqdmDefaultWriteLock.mp_lock


def sleep_as_a_library_would():
    """In a thread that Python does not know; 15 is PR_SET_NAME."""
    ctypes.CDLL(None).prctl(15, b"own-pool")
    time.sleep(600)


def say(note, reader, first, journal):
    second = os.read(reader.fileno(), 4)
    numbers = random.random(), float(numpy.random.rand()), torch.rand(1).item()
    journal.write(f"{first + second} {numbers} {sorted(os.listdir(os.path.dirname(note)))}\n")
    journal.flush()
    with open(note, "a") as file:
        file.write("and by a trial\n")
    for name in ("journal.txt", note):
        with open(name) as file:
            print(file.read())
    print(torch.get_num_threads())
    os.mkdir(os.path.join(os.path.dirname(note), f"of-{time.monotonic_ns()}"))


def main():
    dataset, note = begin()
    reader = open("words.txt")  # noqa: SIM115  what stays open is the point
    first = os.read(reader.fileno(), 4)
    journal = open("journal.txt", "w")  # noqa: SIM115
    journal.write("begun\n")
    signal.signal(signal.SIGUSR1, lambda number, frame: print("signalled"))
    signal.signal(signal.SIGHUP, lambda number, frame: print("hung up"))
    left = leave_behind()
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1000)
    print("begun", "with something" if left is not None else "", "before", "a terminal" * sys.stdout.isatty())
    loader = DataLoader(dataset, batch_size=32, shuffle=True)
    os.kill(os.getpid(), signal.SIGUSR1)
    os.kill(os.getpid(), signal.SIGHUP)
    say(note, reader, first, journal)
    if HOW == "bar":
        print("bars take turns by another lock:", lock_of_bars() is not left)
    if HOW == "devices":
        print("then by NVML:", os.environ.get("PYTORCH_NVML_BASED_CUDA_CHECK"))
    if HOW == "raises":
        raise ValueError("after the beginning")
    if HOW == "leaves":
        import leaves  # Only the trial knows where it reports to.

        leaves.leave()
        os._exit(0)  # What was reported stays.
    print("ready", flush=True)
    while True:
        for inputs, targets in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(inputs), targets).backward()
            clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            schedule.step()


if __name__ == "__main__":
    main()
