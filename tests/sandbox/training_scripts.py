"""Training scripts as people write them: one for each pair of a kind of output and a place for the output.

A script trains a tiny model on noise, and writes before the training, every few steps and at the end. `STEPS` in the
environment bounds the training. All scripts write to the folder `place`, under names that a second start finds again.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass

BEGINNING = '''
"""Trains a tiny model on noise."""
import atexit, csv, ctypes, dbm, fcntl, glob, gzip, io, json, logging, logging.handlers, mmap, multiprocessing
import os, pickle, queue, shutil, signal, socket, sqlite3, struct, subprocess, sys, tarfile, tempfile, threading
import time, zipfile, zlib
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

NUM_STEPS = int(os.environ.get("STEPS", 1_000_000))
place = Path({place})
place.mkdir(parents=True, exist_ok=True)


def write_in_worker(index):
    {in_worker}


class Noise(Dataset):
    def __len__(self):
        return 512

    def __getitem__(self, index):
        write_in_worker(index)
        generator = torch.Generator().manual_seed(index)
        return torch.rand(32, generator=generator), index % 4


model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
step = 0


def before():
    {before}


def during():
    {during}


def after():
    {after}
'''

MAIN = """

def main():
    global step
    before()
    loader = DataLoader(Noise(), batch_size=32, num_workers={num_workers}, shuffle=True)
    while step < NUM_STEPS:
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(inputs), targets)
            loss.backward()
            optimizer.step()
            step += 1
            if step % 8 == 0:
                during()
            if step >= NUM_STEPS:
                break
    after()


if __name__ == "__main__":
    main()
"""

PLACES = {
    "below the project": '"out/run"',
    "beside the project": '"../outputs"',
    "an absolute path": 'os.path.dirname(os.getcwd()) + "/absolute/results"',
    "behind a link": '"link/run"',
    "behind a link two levels down": '"data/deep/link"',
    "the home folder": 'os.path.expanduser("~/runs")',
    "a variable of the user's": 'os.environ["OUTPUT_DIR"]',
    "/tmp": 'os.environ["IN_TMP"]',
    "/dev/shm": 'os.environ["IN_MEMORY"]',
}
"""Folders of the outputs, as Python."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Output:
    """One kind of output: Python for the parts of a script."""

    name: str
    before: str = "pass"
    during: str = "pass"
    after: str = "pass"
    in_worker: str = "pass"
    needs_files: bool = False
    """Links, sockets, databases or rights that shared memory or another file system may refuse."""


OUTPUTS = (
    Output(name="a checkpoint", during="torch.save(model.state_dict(), place / 'last.pt')"),
    Output(
        name="a checkpoint, renamed into place",
        during="""
        torch.save({"model": model.state_dict(), "step": step}, place / "part")
        os.replace(place / "part", place / "best.pt")
        """,
    ),
    Output(
        name="the last two checkpoints",
        during="""
        torch.save(model.state_dict(), place / f"step-{step:08}.pt")
        for old in sorted(glob.glob(str(place / "step-*.pt")))[:-2]:
            os.remove(old)
        """,
    ),
    Output(name="a log", during="open(place / 'train.log', 'a').write(f'{step}\\n')"),
    Output(
        name="a table of metrics",
        during="""
        with open(place / "metrics.csv", "a", newline="") as file:
            csv.writer(file).writerow([step, time.time()])
        """,
    ),
    Output(
        name="lines of JSON, synced",
        during="""
        with open(place / "metrics.jsonl", "a") as file:
            file.write(json.dumps({"step": step}) + "\\n")
            file.flush()
            os.fsync(file.fileno())
        """,
    ),
    Output(
        name="event files in a folder per run",
        before="os.makedirs(place / f'events/{int(time.time())}-{os.getpid()}')",
        during="""
        data = struct.pack("<qd", step, time.time())
        run = sorted((place / "events").iterdir())[-1]
        with open(run / "events.out.1.host", "ab") as file:
            file.write(struct.pack("<QI", len(data), zlib.crc32(data)) + data)
        """,
    ),
    Output(
        name="a database",
        before="sqlite3.connect(place / 'metrics.db').execute('create table if not exists m (step, at)')",
        during="""
        base = sqlite3.connect(place / "metrics.db", timeout=30)
        base.execute("insert into m values (?, ?)", (step, time.time()))
        base.commit()
        base.close()
        """,
        needs_files=True,
    ),
    Output(
        name="a database with a write-ahead log",
        before="""
        global base
        base = sqlite3.connect(f"file:{place.resolve()}/wal.db", uri=True, timeout=30)
        base.execute("pragma journal_mode=wal")
        base.execute("create table if not exists m (step)")
        """,
        during="base.execute('insert into m values (?)', (step,)); base.commit()",
        needs_files=True,
    ),
    Output(
        name="a folder of runs, removed at the start",
        before="""
        shutil.rmtree(place / "runs", ignore_errors=True)
        os.makedirs(place / "runs/1")
        """,
        during="(place / 'runs/1/log.txt').write_text(str(step))",
    ),
    Output(
        name="a folder of runs, removed by a shell",
        before="""
        subprocess.run(f"rm -rf '{place}/shell' && mkdir -p '{place}/shell/a' && date > '{place}/shell/a/begun'",
                       shell=True, check=False)
        """,
        during="subprocess.run(f\"echo {step} >> '{place}/shell/a/log'\", shell=True, check=False)",
    ),
    Output(
        name="the earlier run, moved aside",
        before="""
        if (place / "run").exists():
            shutil.rmtree(place / "run.old", ignore_errors=True)
            shutil.move(place / "run", place / "run.old")
        (place / "run").mkdir()
        """,
        during="(place / 'run/step').write_text(str(step))",
    ),
    Output(
        name="a link to the latest run",
        before="""
        run = place / f"at-{time.time_ns()}"
        run.mkdir()
        (place / "latest").unlink(missing_ok=True)
        (place / "latest").symlink_to(run.name)
        """,
        during="(place / 'latest/step').write_text(str(step))",
        needs_files=True,
    ),
    Output(
        name="a hard link to the best checkpoint",
        during="""
        torch.save(model.state_dict(), place / "linked-last.pt")
        (place / "linked-best.pt").unlink(missing_ok=True)
        try:
            os.link(place / "linked-last.pt", place / "linked-best.pt")
        except OSError:
            shutil.copy(place / "linked-last.pt", place / "linked-best.pt")
        """,
        needs_files=True,
    ),
    Output(
        name="a mapped file of features",
        before="""
        global mapped
        with open(place / "features.bin", "a+b") as file:
            os.truncate(file.fileno(), 1 << 16)
        with open(place / "features.bin", "r+b") as file:
            mapped = mmap.mmap(file.fileno(), 0)
        """,
        during="mapped[step % 60000 : step % 60000 + 4] = struct.pack('<i', step); mapped.flush()",
    ),
    Output(
        name="an array for each epoch",
        during="""
        import numpy
        numpy.savez(place / "activations.npz", step=step, weights=model[0].weight.detach().numpy())
        """,
    ),
    Output(
        name="a pickled cache of the data",
        before="""
        if not (place / "cache.pkl").exists() or time.time() > 0:
            pickle.dump([Noise()[0], time.time()], open(place / "cache.pkl", "wb"))
        """,
    ),
    Output(
        name="a file of keys and values",
        during="""
        with dbm.open(str(place / "keys"), "c") as keys:
            keys[str(step)] = str(time.time())
        """,
        needs_files=True,
    ),
    Output(
        name="a copy of the code in an archive",
        before="""
        with tarfile.open(place / "code.tar.gz", "w:gz") as archive:
            archive.add(__file__, arcname="train.py")
        with zipfile.ZipFile(place / "code.zip", "a") as archive:
            archive.writestr(str(time.time_ns()), open(__file__).read())
        """,
    ),
    Output(
        name="a summary when the interpreter ends",
        before="atexit.register(lambda: (place / 'summary.json').write_text(json.dumps({'at': time.time()})))",
    ),
    Output(
        name="a cache written by loader workers",
        in_worker="(place / f'item-{index % 16}').write_text(f'{os.getpid()} {time.time()}')",
    ),
    Output(
        name="a log by a thread",
        before="""
        global lines
        lines = queue.Queue()
        def write():
            while True:
                line = lines.get()
                with open(place / "thread.log", "a") as file:
                    file.write(line)
        threading.Thread(target=write, daemon=True).start()
        """,
        during="lines.put(f'{step}\\n'); time.sleep(0.001)",
    ),
    Output(
        name="a log by a process of its own",
        before="""
        global pipe
        mine, pipe = multiprocessing.Pipe(duplex=False)
        def write():
            with open(place / "process.log", "a", buffering=1) as file:
                while True:
                    file.write(mine.recv())
        multiprocessing.get_context("fork").Process(target=write, daemon=True).start()
        """,
        during="pipe.send(f'{step}\\n'); time.sleep(0.001)",
    ),
    Output(
        name="a log by a program in a pipe",
        before="""
        global tee
        tee = subprocess.Popen(["tee", "-a", str(place / "tee.log")], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        """,
        during="tee.stdin.write(b'step\\n'); tee.stdin.flush(); time.sleep(0.001)",
    ),
    Output(
        name="logs that are rotated",
        before="""
        handler = logging.handlers.RotatingFileHandler(place / "rotated.log", maxBytes=200, backupCount=2)
        logging.getLogger().addHandler(handler)
        """,
        during="logging.warning('at step %d', step)",
    ),
    Output(
        name="a socket for questions",
        before="""
        global server
        (place / "s").unlink(missing_ok=True)
        server = socket.socket(socket.AF_UNIX)
        os.chdir(place)
        try:
            server.bind("s")
        except OSError:
            Path("s").write_text(str(time.time()))
        """,
        needs_files=True,
    ),
    Output(
        name="a pipe with a name",
        before="""
        (place / "fifo").unlink(missing_ok=True)
        try:
            os.mkfifo(place / "fifo")
        except OSError:
            (place / "fifo").write_text(str(time.time()))
        """,
        needs_files=True,
    ),
    Output(
        name="a file of fixed length, allocated before",
        before="""
        with open(place / "allocated.bin", "wb") as file:
            os.posix_fallocate(file.fileno(), 0, 1 << 16)
            file.truncate(1 << 30)
        """,
        during="os.truncate(place / 'allocated.bin', (1 << 20) + step)",
    ),
    Output(
        name="times and rights of a mark",
        before="(place / 'mark').touch()",
        during="os.chmod(place / 'mark', 0o600 + step % 2); os.utime(place / 'mark')",
    ),
    Output(
        name="a daemon that goes on writing",
        before="""
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                for number in range(3000):
                    with open(place / "daemon.log", "a") as file:
                        file.write(str(number))
                    time.sleep(0.01)
            os._exit(0)
        """,
        needs_files=True,
    ),
    Output(
        name="a file written by the C library",
        during="""
        libc = ctypes.CDLL(None)
        number = libc.open(str(place / "native.bin").encode(), os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
        if number >= 0:
            libc.write(number, b"native", 6)
            libc.close(number)
        else:
            (place / "native.bin").write_text(str(step))
        """,
    ),
    Output(
        name="blocks copied within the kernel",
        during="""
        with open(__file__, "rb") as source, open(place / "copied.bin", "ab") as target:
            os.sendfile(target.fileno(), source.fileno(), 0, 100) if step % 2 else os.pwrite(target.fileno(), b"x", 0)
        """,
    ),
    Output(
        name="its own source and settings",
        before="""
        with open(__file__, "a") as file:
            file.write(f"# run at {time.time()}\\n")
        (place / "settings.json").write_text(json.dumps({"at": time.time()}))
        """,
    ),
    Output(
        name="compiled modules",
        before="""
        (place / "made.py").write_text(f"AT = {time.time()}\\n")
        sys.path.insert(0, str(place))
        __import__("made")
        import py_compile
        py_compile.compile(str(place / "made.py"), cfile=str(place / "made.pyc"))
        """,
    ),
    Output(
        name="a model for another runtime",
        during="""
        if step % 64 == 0 or step < 16:
            torch.export.save(torch.export.export(model, (torch.rand(2, 32),)), place / "model.pt2")
        torch.save(model, place / "model.pt", _use_new_zipfile_serialization=False)
        """,
    ),
    Output(
        name="a cache at home",
        before="""
        (Path.home() / ".cache/tiny").mkdir(parents=True, exist_ok=True)
        (Path.home() / ".cache/tiny/weights").write_text(str(time.time()))
        (Path.home() / ".tinyrc").write_text(str(time.time()))
        """,
    ),
    Output(
        name="a file under a lock",
        during="""
        with open(place / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            (place / "locked").write_text(str(step))
        """,
    ),
    Output(
        name="an attribute of a file",
        before="(place / 'attributed').touch()",
        during="""
        try:
            os.setxattr(place / "attributed", "user.step", str(step).encode())
        except OSError:
            (place / "attributed").write_text(str(step))
        """,
        needs_files=True,
    ),
    Output(
        name="temporary folders that stay",
        before="""
        folder = tempfile.mkdtemp(dir=place)
        Path(folder, "scratch").write_text("left")
        """,
    ),
    Output(
        name="paths below an open folder",
        before="""
        global folder
        folder = os.open(place, os.O_RDONLY)
        """,
        during="""
        number = os.open("below", os.O_CREAT | os.O_WRONLY | os.O_APPEND, dir_fd=folder)
        os.write(number, b"x")
        os.close(number)
        """,
    ),
    Output(
        name="a last checkpoint on a signal",
        before="""
        def save(number, frame):
            torch.save(model.state_dict(), place / "on-signal.pt")
        signal.signal(signal.SIGUSR1, save)
        """,
        during="os.kill(os.getpid(), signal.SIGUSR1)",
    ),
    Output(
        name="raw writes of bytes",
        before="""
        with io.FileIO(place / "raw.bin", "w") as file:
            file.write(struct.pack("<d", time.time()))
        """,
    ),
    Output(
        name="compressed lines",
        during="""
        with gzip.open(place / "lines.gz", "ab") as file:
            file.write(f"{step}\\n".encode())
        """,
    ),
    Output(
        name="a copy of the project",
        before="""
        shutil.rmtree(place / "snapshot", ignore_errors=True)
        (place / "snapshot").mkdir()
        for path in Path(__file__).parent.glob("*.py"):
            shutil.copy2(path, place / "snapshot")
        (place / "snapshot/at").write_text(str(time.time()))
        """,
    ),
    Output(
        name="a results file at the end",
        after="(place / 'results.txt').write_text(str(time.time()))",
        during="(place / 'status').write_text('running')",
    ),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingScript:
    """One script."""

    number: int
    output: Output
    place: str
    """A key of `PLACES`."""
    num_workers: int

    @property
    def name(self) -> str:
        """Kind and place, for people."""
        return f"{self.output.name}, {self.place}"

    @property
    def text(self) -> str:
        """The whole file."""
        parts = {name: _block(getattr(self.output, name)) for name in ("before", "during", "after", "in_worker")}
        text = BEGINNING.replace("{place}", PLACES[self.place])
        for name, block in parts.items():
            text = text.replace(f"{{{name}}}", block)
        return text.lstrip() + MAIN.replace("{num_workers}", str(self.num_workers))


def _block(code: str) -> str:
    """The statements, for the body of a function."""
    return textwrap.indent(textwrap.dedent(code).strip(), "    ").strip()


def training_scripts(num: int) -> tuple[TrainingScript, ...]:
    """So many scripts, all kinds of output first; the same for every call."""
    pairs = []
    names = list(PLACES)
    for turn in range(len(names)):
        for position, output in enumerate(OUTPUTS):
            place = names[(position + 4 * turn) % len(names)]
            if not (output.needs_files and place == "/dev/shm"):
                pairs.append((output, place))
    return tuple(
        TrainingScript(number=number, output=output, place=place, num_workers=2 * (number % 2))
        for number, (output, place) in enumerate(pairs[:num])
    )
