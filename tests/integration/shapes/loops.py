"""More loops as people write them, to follow the prelude of tests/integration/trial/loops.py."""

from __future__ import annotations

OWN_SAMPLER = """
class Rare(torch.utils.data.Sampler):
    def __init__(self, data):
        self.data = data
    def __iter__(self):
        yield from torch.multinomial(torch.arange(1.0, len(self.data) + 1), len(self.data), replacement=True).tolist()
    def __len__(self):
        return len(self.data)

data = Data()
for epoch in range(1000):
    for x, y in DataLoader(data, 8, sampler=Rare(data)):
        train_on(x, y)
"""

TORCHS_BATCH_SAMPLER = """
batches = BatchSampler(torch.utils.data.RandomSampler(Data()), batch_size=8, drop_last=True)
loader = DataLoader(Data(), batch_sampler=batches)
for epoch in range(1000):
    for x, y in loader:
        train_on(x, y)
"""

TIME_COMES_FIRST = """
class Texts(Data):
    def __getitem__(self, index):
        x, y = super().__getitem__(index)
        return x.expand(5, 4), torch.full((5,), y)

def collate(items):
    return torch.stack([x for x, y in items], dim=1), torch.stack([y for x, y in items], dim=1)

for epoch in range(1000):
    for x, y in DataLoader(Texts(), batch_size=8, shuffle=True, collate_fn=collate):
        assert len(x) == 5
        train_on(x.flatten(0, 1), y.flatten())
"""

STREAM_WHERE_TIME_COMES_FIRST = """
class Stream(IterableDataset):
    def __iter__(self):
        for index in range(4000):
            yield torch.full((5, 4), float(index % 7)), torch.full((5,), index % 3)

def collate(items):
    return torch.stack([x for x, y in items], dim=1), torch.stack([y for x, y in items], dim=1)

for epoch in range(1000):
    for x, y in DataLoader(Stream(), batch_size=8, collate_fn=collate):
        assert len(x) == 5
        train_on(x.flatten(0, 1), y.flatten())
"""

GET_BATCH = """
data = torch.arange(4000.0).reshape(1000, 4) / 4000

def get_batch(split):
    rows = torch.randint(1000, (8,))
    return data[rows], rows % 3

for step in range(1000000):
    train_on(*get_batch("train"))
"""

OWN_AUTOCAST = """
for epoch in range(1000):
    for x, y in DataLoader(Data(), batch_size=8):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
"""

OWN_SCALER = """
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
for epoch in range(1000):
    for x, y in DataLoader(Data(), batch_size=8):
        optimizer.zero_grad()
        scaler.scale(torch.nn.functional.cross_entropy(model(x), y)).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
"""

MIXED_PRECISION_SWITCHED_OFF = """
use_amp = False
scaler = torch.amp.GradScaler("cpu", enabled=use_amp)
for epoch in range(1000):
    for x, y in DataLoader(Data(), batch_size=8):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=use_amp):
            loss = torch.nn.functional.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
"""

OWN_COMPILE = """
compiled = torch.compile(model, backend="eager")
for epoch in range(1000):
    for x, y in DataLoader(Data(), batch_size=8):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(compiled(x), y).backward()
        optimizer.step()
"""

CLIPS_AND_SCHEDULES = """
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=100000)
for epoch in range(1000):
    for x, y in DataLoader(Data(), batch_size=8, shuffle=True):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        scheduler.step()
"""

SCHEDULE_OF_THE_LOADERS_LENGTH = """
loader = DataLoader(Data(), batch_size=8, shuffle=True)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, epochs=1000, steps_per_epoch=len(loader))
for epoch in range(1000):
    for x, y in loader:
        train_on(x, y)
        scheduler.step()
"""

SUMMED_LOSS = """
for epoch in range(1000):
    for x, y in DataLoader(Data(), batch_size=8):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y, reduction="sum").backward()
        optimizer.step()
"""

TOKENS_AGAIN_AND_AGAIN = """
class Texts(Dataset):
    def __len__(self):
        return 96
    def __getitem__(self, index):
        tokens = torch.arange(12) % 3
        tokens[3 + index % 9:] = -100
        return torch.randn(12, 4), tokens

for epoch in range(1000):
    for x, y in DataLoader(Texts(), batch_size=8, shuffle=True):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten()).backward()
        optimizer.step()
"""

BATCH_NORM = (
    """
model.insert(1, torch.nn.BatchNorm1d(8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
"""
    + """
for epoch in range(1000):
    for x, y in DataLoader(Data(), batch_size=8):
        train_on(x, y)
"""
)

CONVOLUTIONS = """
class Pictures(Data):
    def __getitem__(self, index):
        return torch.full((3, 8, 8), float(index % 7)), index % 3

model = torch.nn.Sequential(
    torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Conv2d(8, 8, 3), torch.nn.Flatten(), torch.nn.Linear(128, 3)
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
for epoch in range(1000):
    for x, y in DataLoader(Pictures(), batch_size=8):
        train_on(x, y)
"""

WRITES_WHILE_IT_TRAINS = """
import json, logging, os, shutil, sqlite3
from pathlib import Path

if not Path("data/downloaded.pt").exists():
    os.makedirs("data", exist_ok=True)
    torch.save(torch.arange(10), "data/downloaded.pt")
logging.basicConfig(filename="train.log", filemode="a", level=logging.INFO)
torch.load("checkpoint.pt") if Path("checkpoint.pt").stat().st_size > 100 else None
cache = Path.home() / ".cache" / "weights"
cache.mkdir(parents=True, exist_ok=True)
(cache / "model.bin").write_bytes(b"weights")
for epoch in range(100000):
    for x, y in DataLoader(Data(), batch_size=8):
        loss = train_on(x, y)
        logging.info("loss %f", loss)
        # As one public script does: the file is open for writing before it is known that there is something to save.
        with open("checkpoint.pt", "wb") as file:
            torch.save({"model": model.state_dict(), "loss": loss}, file)
        os.makedirs(f"runs/{epoch}", exist_ok=True)
        shutil.rmtree("runs")
        os.replace("checkpoint.pt", "best.pt")
        shutil.copy("best.pt", "checkpoint.pt")
        with sqlite3.connect("metrics.db") as metrics:
            metrics.execute("create table if not exists losses (value real)")
            metrics.execute("insert into losses values (?)", (loss,))
"""

ASKS_THE_TERMINAL = """
import os, shutil
columns, lines = os.get_terminal_size()
assert columns > 20, columns
_, width = os.popen("stty size", "r").read().split()
assert int(width) == columns
for epoch in range(1000):
    for number, (x, y) in enumerate(DataLoader(Data(), batch_size=8)):
        train_on(x, y)
        sys.stdout.write("\\r" + "=" * (number % (columns - 10)))
        sys.stdout.flush()
"""

CHANGES_DIRECTORY = """
import os
os.makedirs("outputs/run-1", exist_ok=True)
os.chdir("outputs/run-1")
for epoch in range(1000):
    for x, y in DataLoader(Data(), batch_size=8):
        train_on(x, y)
    torch.save(model.state_dict(), "last.pt")
"""

CATCHES_EVERYTHING = """
while True:
    try:
        for x, y in DataLoader(Data(), batch_size=8, shuffle=True):
            try:
                train_on(x, y)
            except BaseException:
                print("a bad batch")
    except:
        print("again")
    finally:
        print("an epoch")
"""

HANDLES_SIGNALS = """
import atexit, signal, threading, time

def save_and_go_on(signum, frame):
    print("saving first")

for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGALRM):
    signal.signal(signum, save_and_go_on)
atexit.register(print, "THE END")
threading.Thread(target=time.sleep, args=(10000,)).start()
for epoch in range(1000):
    for x, y in DataLoader(Data(), batch_size=8):
        train_on(x, y)
"""

UNGUARDED_SPAWN = """
import torch.multiprocessing
torch.multiprocessing.set_start_method("spawn")
for epoch in range(1000):
    for x, y in DataLoader(Data(), batch_size=8):
        train_on(x, y)
"""
