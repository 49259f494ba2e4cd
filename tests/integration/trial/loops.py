"""Training loops as people write them, each as short as it can be; all of them train a small network for long."""

from __future__ import annotations

PRELUDE = """
import functools
import sys
import time
import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, TensorDataset

class Data(Dataset):
    def __init__(self, num_samples=96):
        self.num_samples = num_samples
    def __len__(self):
        return self.num_samples
    def __getitem__(self, index):
        if index >= self.num_samples:
            raise IndexError(index)
        return torch.full((4,), float(index % 7)), index % 3

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

def train_on(x, y):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    return float(loss)
"""

PLAIN = """
loader = DataLoader(Data(), batch_size=8, shuffle=True)
for epoch in range(1000):
    for x, y in loader:
        train_on(x, y)
"""

KEEPS_ONE_BATCH = """
x, y = next(iter(DataLoader(Data(), batch_size=96)))
while True:
    train_on(x, y)
"""

INNER_STEPS = """
loader = DataLoader(Data(), batch_size=8)
for epoch in range(1000):
    for x, y in loader:
        for _ in range(7):
            train_on(x, y)
"""

PER_EPOCH = """
for epoch in range(1000):
    for x, y in DataLoader(Data(), batch_size=8, shuffle=True):
        train_on(x, y)
"""

DATASET_PER_EPOCH = """
def make():
    return DataLoader(Data(), batch_size=8, shuffle=True)

for epoch in range(1000):
    loader = make()
    for x, y in loader:
        train_on(x, y)
"""

HELPER = """
def make(dataset):
    return DataLoader(dataset, batch_size=8)

loaders = {name: make(Data(size)) for name, size in (("val", 40), ("train", 96))}
for epoch in range(1000):
    model.eval()
    with torch.no_grad():
        num_seen = sum(len(x) for x, y in loaders["val"] if model(x) is not None)
    assert num_seen == 40, num_seen
    model.train()
    for x, y in loaders["train"]:
        train_on(x, y)
"""

SUBCLASS = """
class Repeated:
    def __init__(self, sampler):
        self.sampler = sampler
    def __iter__(self):
        while True:
            yield from iter(self.sampler)

class LastingLoader(DataLoader):
    # What a well-known library of image models does to keep its workers.
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._DataLoader__initialized = False
        self.batch_sampler = Repeated(self.batch_sampler)
        self._DataLoader__initialized = True
        self.iterator = super().__iter__()
    def __len__(self):
        return len(self.batch_sampler.sampler)
    def __iter__(self):
        for _ in range(len(self)):
            yield next(self.iterator)

loader = LastingLoader(Data(), batch_size=8, shuffle=True)
for epoch in range(1000):
    for x, y in loader:
        train_on(x, y)
"""

WRAPPED_ITERATOR = """
class Transforming:
    # What a well-known library of graphs does to build its batches in the training process.
    def __init__(self, iterator, transform):
        self.iterator, self.transform = iterator, transform
    def __iter__(self):
        return self
    def _reset(self, loader, first_iter=False):
        self.iterator._reset(loader, first_iter)
    def __len__(self):
        return len(self.iterator)
    def __next__(self):
        return self.transform(next(self.iterator))
    def __del__(self):
        if hasattr(self.iterator, "_shutdown_workers"):
            self.iterator._shutdown_workers()

class NodeLoader(DataLoader):
    def __init__(self, num_nodes, **options):
        options.pop("dataset", None)
        options.pop("collate_fn", None)
        super().__init__(range(num_nodes), collate_fn=self.sample, **options)
    def sample(self, nodes):
        return torch.tensor(nodes)
    def _get_iterator(self):
        return Transforming(super()._get_iterator(), lambda nodes: (nodes[:, None].expand(-1, 4) % 7.0, nodes % 3))

loader = NodeLoader(96, batch_size=8, shuffle=True)
for epoch in range(1000):
    for x, y in loader:
        train_on(x, y)
"""

LIBRARY = """
import pathlib
pathlib.Path("engine.py").write_text('''
from torch.utils.data import DataLoader

def prepared(loader):
    return DataLoader(
        loader.dataset,
        batch_sampler=loader.batch_sampler,
        num_workers=loader.num_workers,
        prefetch_factor=loader.prefetch_factor,
        persistent_workers=loader.persistent_workers,
    )

def fit(loader, train_on):
    for epoch in range(1000):
        for x, y in prepared(loader):
            train_on(x, y)
''')
sys.path.insert(0, ".")
import engine
engine.fit(DataLoader(Data(), batch_size=8, shuffle=True), train_on)
"""

BATCH_SAMPLER = """
class Buckets:
    def __iter__(self):
        for start in range(0, 96, 8):
            yield list(range(start, min(start + 8, 96)))
    def __len__(self):
        return 12

loader = DataLoader(Data(), batch_sampler=Buckets())
for epoch in range(1000):
    for x, y in loader:
        train_on(x, y)
"""

LENGTHS_VARY = """
def collate(items):
    # Padded to the longest of the batch: the first one is by far the longest.
    calls.append(0)
    length = 400 if len(calls) == 1 else 4 + len(calls) % 3
    return torch.stack([x for x, y in items]).repeat(1, length), torch.tensor([y for x, y in items])

calls = []
loader = DataLoader(Data(num_samples=20), batch_size=8, collate_fn=collate)
for epoch in range(1000):
    for x, y in loader:
        time.sleep(x.numel() / 1e6)
        train_on(x[:, :4], y)
"""

LISTS_VARY = """
def collate(items):
    # As for detection: a tuple of inputs, each of its own size, those of the first batch by far the longest.
    calls.append(0)
    longest = 400 if len(calls) == 1 else 20 + len(calls) % 7
    return [x.repeat(longest, 1) for x, y in items], [torch.full((longest,), y) for x, y in items]

calls = []
loader = DataLoader(Data(num_samples=20), batch_size=8, collate_fn=collate)
for epoch in range(1000):
    for xs, ys in loader:
        time.sleep(sum(len(x) for x in xs) / 1e5)
        train_on(torch.cat(xs), torch.cat(ys))
"""

ITERABLE = """
class Stream(IterableDataset):
    def __iter__(self):
        worker = torch.utils.data.get_worker_info()
        first, step = (worker.id, worker.num_workers) if worker else (0, 1)
        for index in range(first, LENGTH, step):
            yield torch.full((4,), float(index % 7)), index % 3

for epoch in range(1000):
    for x, y in DataLoader(Stream(), batch_size=8, num_workers=WORKERS):
        train_on(x, y)
"""

READS_FIRST = """
loader = DataLoader(Data(), batch_size=8, persistent_workers=PERSISTENT, num_workers=WORKERS)
means = torch.zeros(len(loader), 4)
for number, (x, y) in enumerate(loader):
    means[number] = x.mean(0)
assert number == len(loader) - 1
second = [len(x) for x, y in loader]
assert second == [8] * 12, second
for epoch in range(1000):
    for x, y in loader:
        train_on(x, y)
"""

LOOKS_FIRST = """
loader = DataLoader(Data(), batch_size=8, shuffle=True, persistent_workers=PERSISTENT, num_workers=WORKERS)
look = iter(loader)
x, y = next(look)
assert x.shape == (8, 4)
x, y = next(iter(loader))
for epoch in range(1000):
    for x, y in loader:
        train_on(x, y)
"""

TINY = """
loader = DataLoader(Data(num_samples=24), batch_size=8, shuffle=True)
for epoch in range(3000):
    for x, y in loader:
        train_on(x, y)
"""

COUNTS_ON_ITS_LENGTH = """
loader = DataLoader(Data(), batch_size=8)
for epoch in range(1000):
    losses = [0.0] * len(loader)
    for number, (x, y) in enumerate(loader):
        losses[number] = train_on(x, y)
"""

DIVIDES_BY_WHAT_IS_LEFT = """
loader = DataLoader(Data(), batch_size=8)
accum_steps, last_index = 1, len(loader) - 1
for epoch in range(1000):
    divisor = accum_steps
    for number, (x, y) in enumerate(loader):
        if number > last_index:
            divisor = len(loader) % accum_steps
        (number + 1) % divisor
        train_on(x, y)
"""
"""As timm's loop computes, whose last batches may be fewer than it accumulates."""

COUNTS_ITS_DATA = """
data = Data()
loader = DataLoader(data, batch_size=8)
for epoch in range(1000):
    losses = [0.0] * (-(-len(data) // 8))
    for number, (x, y) in enumerate(loader):
        losses[number] = train_on(x, y)
"""

FAILS_IN_ITS_SECOND_ITERATION = """
import os, sys, time

class Loader(DataLoader):
    num_iterations = 0

    def _get_iterator(self):
        Loader.num_iterations += 1
        if Loader.num_iterations == 2:
            print("the second iteration", flush=True)
            HOW
        return super()._get_iterator()

loader = Loader(Data(), batch_size=8, worker_init_fn=lambda number: time.sleep(0.2))
for epoch in range(1000):
    for x, y in loader:
        train_on(x, y)
        time.sleep(0.002)
"""

ENDS_EARLY = """
loader = DataLoader(Data(), batch_size=8)
for number, (x, y) in enumerate(loader):
    train_on(x, y)
    if number == 5:
        break
print("through")
"""

NO_LOADER = """
data = torch.arange(4000.0).reshape(1000, 4) / 4000
for step in range(100000):
    rows = torch.randint(1000, (8,))
    train_on(data[rows], rows % 3)
"""

NESTED_IN_PLACE = """
from collections import namedtuple
Pair = namedtuple("Pair", "image meta")

def collate(items):
    x = torch.stack([x for x, y in items])
    return {"inputs": Pair(x, [torch.ones(1), "name"]), "target": (torch.tensor([y for x, y in items]),)}

loader = DataLoader(Data(), batch_size=8, collate_fn=collate)
for epoch in range(1000):
    for batch in loader:
        image = batch["inputs"].image
        assert image.max() <= 6, "the batch was changed before it came here"
        image.add_(1000)
        batch["inputs"].meta.append("more")
        assert len(batch["inputs"].meta) == 3
        target, = batch.pop("target")
        train_on(image - 1000, target)
"""

VALIDATES = """
loader = DataLoader(Data(), batch_size=8, shuffle=True)
held_out = DataLoader(Data(40), batch_size=8)
for epoch in range(1000):
    for number, (x, y) in enumerate(loader):
        train_on(x, y)
        if number == 5:
            break
    with torch.no_grad():
        num_seen = sum(len(model(x)) for x, y in held_out)
        num_read = sum(len(model(x)) for x, y in loader)
    assert num_seen == 40, num_seen
    assert num_read == 96, num_read
"""

LAST_BATCH_IS_SMALLER = """
loader = DataLoader(Data(20), batch_size=8)
for epoch in range(3000):
    for x, y in loader:
        train_on(x, y)
"""

IN_A_THREAD = """
import queue, threading
ready = queue.Queue(3)

def read():
    for epoch in range(EPOCHS):
        for batch in DataLoader(Data(), batch_size=8):
            ready.put(batch)
    ready.put(None)

threading.Thread(target=read, daemon=True).start()
losses = []
while (batch := ready.get()) is not None:
    losses.append(train_on(*batch))
import json; print(json.dumps([losses, torch.is_autocast_enabled("cpu")]))
"""

SETS_ON_BOTH = """
class Wrapper(torch.nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner
        self.is_ready = True
    def forward(self, x):
        return self.inner(x)
    def __setattr__(self, name, value):
        super().__setattr__(name, value)
        if "is_ready" in self.__dict__ and hasattr(self.inner, name):
            setattr(self.inner, name, value)
model = Wrapper(model)
loader = DataLoader(Data(), batch_size=8, shuffle=True)
for epoch in range(1000):
    for x, y in loader:
        train_on(x, y)
"""
"""As Lightning Fabric wraps a model: an attribute set on the wrapper is set on the model too."""

HAS_SPARE_LAYERS = """
class WithSpares(torch.nn.Module):
    def __init__(self, used):
        super().__init__()
        self.used, self.spare = used, torch.nn.Sequential(torch.nn.LazyLinear(4), torch.nn.LazyBatchNorm1d())
    def forward(self, x):
        return self.used(x)
model = WithSpares(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loader = DataLoader(Data(), batch_size=8, shuffle=True)
for epoch in range(1000):
    for x, y in loader:
        train_on(x, y)
"""

BEGINS_AGAIN = """
loader = DataLoader(Data(), batch_size=8, shuffle=True)
batches = iter(loader)
for step in range(100000):
    try:
        x, y = next(batches)
    except StopIteration:
        batches = iter(loader)
        x, y = next(batches)
    train_on(x, y)
"""

FIRST_WORKER_HAS_NOTHING = """
class Stream(IterableDataset):
    def __iter__(self):
        worker = torch.utils.data.get_worker_info()
        if worker is None or worker.num_workers == 1 or worker.id > 0:
            for index in range(2000):
                yield torch.full((4,), float(index % 7)), index % 3

for epoch in range(1000):
    for x, y in DataLoader(Stream(), batch_size=8, num_workers=1):
        train_on(x, y)
"""

NO_BATCHING = """
class Batches(Data):
    def __getitem__(self, index):
        x, y = super().__getitem__(index)
        return x.expand(8, 4).clone(), torch.full((8,), y)

for epoch in range(1000):
    for x, y in DataLoader(Batches(), batch_size=None, shuffle=True):
        train_on(x, y)
"""

FAILS_IN_ITS_DATASET = """
class Faulty(Data):
    def __getitem__(self, index):
        if index == 90:
            raise ValueError("sample 90 is broken")
        return super().__getitem__(index)

for epoch in range(1000):
    for x, y in DataLoader(Faulty(), batch_size=8, timeout=TIMEOUT, num_workers=WORKERS):
        train_on(x, y)
"""

ONE_AHEAD = """
def one_ahead(loader):
    # What a well-known library does to know which batch is the last.
    batches = iter(loader)
    batch = next(batches)
    for following in batches:
        yield batch
        batch = following
    yield batch
"""

LOOKS_AHEAD = f"""
{ONE_AHEAD}

for epoch in range(1000):
    for x, y in one_ahead(DataLoader(Data(), batch_size=8, shuffle=True)):
        train_on(x, y)
"""

LOOKS_AHEAD_AND_COUNTS = f"""
{ONE_AHEAD}

# What a well-known trainer does: so many steps of an epoch are taken, and its end is never come to.
loader = DataLoader(Data(24), batch_size=8, shuffle=True)
for epoch in range(5000):
    batches = one_ahead(loader)
    for _ in range(3):
        train_on(*next(batches))
"""

TWO_AT_ONCE = """
for epoch in range(1000):
    batches = iter(DataLoader(Data(), batch_size=8))
    for x, y in batches:
        z, t = next(batches)
        train_on(torch.cat([x, z]), torch.cat([y, t]))
"""

GAN = """
other = torch.nn.Linear(4, 4)
optimizer_of_other = torch.optim.SGD(other.parameters(), lr=0.01)
for epoch in range(1000):
    for x, y in DataLoader(Data(), batch_size=8):
        optimizer.zero_grad()
        made = other(x)
        torch.nn.functional.cross_entropy(model(x), y).backward()
        torch.nn.functional.cross_entropy(model(made.detach()), y).backward()
        optimizer.step()
        optimizer_of_other.zero_grad()
        torch.nn.functional.cross_entropy(model(made), y).backward()
        optimizer_of_other.step()
"""

LATE_MODEL = """
other = torch.nn.Linear(4, 4)
optimizer.add_param_group({"params": other.parameters()})
number = 0
for epoch in range(1000):
    for x, y in DataLoader(Data(), batch_size=8):
        train_on(other(x) if number > 2 else x, y)
        number += 1
"""

RARE_SECOND_OPTIMIZER = """
other = torch.nn.Linear(4, 4)
optimizer_of_other = torch.optim.SGD(other.parameters(), lr=0.01)
number = 0
for epoch in range(1000):
    for x, y in DataLoader(Data(), batch_size=8):
        train_on(x, y)
        number += 1
        if number % 50 == 0:
            other(x).sum().backward()
            optimizer_of_other.step()
"""

CLOSURE = """
optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3, line_search_fn="strong_wolfe")
for epoch in range(1000):
    for x, y in DataLoader(Data(), batch_size=8):
        def closure():
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(x), y)
            loss.backward()
            return loss
        optimizer.step(closure)
"""

CLOSURE_WITHOUT_LOADER = """
optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=100_000, tolerance_grad=0, tolerance_change=0)
x, y = torch.utils.data.default_collate([Data()[index] for index in range(8)])
for epoch in range(1000):
    def closure():
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        time.sleep(0.01)
        return loss
    optimizer.step(closure)
"""

BY_HAND = """
del optimizer
for epoch in range(1000):
    for x, y in DataLoader(Data(), batch_size=8):
        model.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        for parameter in model.parameters():
            parameter.data.add_(parameter.grad, alpha=-0.01)
"""

TWO_BACKWARDS = """
for epoch in range(1000):
    for x, y in DataLoader(Data(), batch_size=8):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        (0.01 * model(x).square().mean()).backward()
        optimizer.step()
"""

OWN_ACCUMULATION = """
number = 0
for epoch in range(1000):
    for x, y in DataLoader(Data(), batch_size=8):
        (torch.nn.functional.cross_entropy(model(x), y) / 3).backward()
        number += 1
        if number % 3 == 0:
            optimizer.step()
            optimizer.zero_grad()
"""

ACCUMULATES_WITH_A_REST = """
loader = DataLoader(Data(num_samples=80), batch_size=8)
for epoch in range(1000):
    for number, (x, y) in enumerate(loader, 1):
        (torch.nn.functional.cross_entropy(model(x), y) / 4).backward()
        if number % 4 == 0 or number == len(loader):
            optimizer.step()
            optimizer.zero_grad()
"""

REPLAYS = """
import itertools

loader = DataLoader(Data(), batch_size=8, shuffle=True)
first = next(iter(loader))
for step, (x, y) in zip(range(100000), BATCHES):
    train_on(x, y)
"""

SLOW_DATA = """
import time
class Slow(Data):
    def __getitem__(self, index):
        time.sleep(0.02)
        return super().__getitem__(index)
"""

BROKEN_BESIDE = """
class Broken(Data):
    def __getitem__(self, index):
        if index < 8:
            raise OSError("no such sample")
        return super().__getitem__(index)

def batches(loader):
    iterator = iter(loader)
    while True:
        try:
            yield next(iterator)
        except OSError:
            continue
        except StopIteration:
            return

labelled, unlabelled = (DataLoader(data, batch_size=8, num_workers=2) for data in (Data(), Broken()))
for epoch in range(1000):
    for (x, y), (z, _) in zip(labelled, batches(unlabelled)):
        train_on(torch.cat([x, z]), torch.cat([y, y]))
"""

ONE_AFTER_THE_OTHER = """
first, second = DataLoader(Data(40), batch_size=8, shuffle=True), DataLoader(Data(48), batch_size=8, shuffle=True)
for epoch in range(1000):
    for x, y in first:
        train_on(x, y)
    for x, y in second:
        train_on(x, y)
"""

LONG_SIDE_BY_SIDE = """
def begins(name, worker):
    print("begins", name, flush=True)
    time.sleep(0.2)

def loader(name):
    init = functools.partial(begins, name)
    return DataLoader(Data(16000), batch_size=8, shuffle=True, num_workers=1, worker_init_fn=init)

labelled, unlabelled = loader("labelled"), loader("unlabelled")
for epoch in range(1000):
    for (x, y), (z, _) in zip(labelled, unlabelled):
        train_on(torch.cat([x, z]), torch.cat([y, y]))
"""

CONFIG_FOR_ONE_OF_TWO = """
import autotune
cfg = autotune.load("autotune.yaml", num_workers=0, batch_size=8)
labelled, unlabelled = DataLoader(Data(), batch_size=8), DataLoader(Data(), **cfg.loader_kwargs())
for epoch in range(1000):
    print("workers", labelled.num_workers, unlabelled.num_workers)
    for (x, y), (z, _) in zip(labelled, unlabelled):
        train_on(torch.cat([x, z]), torch.cat([y, y]))
"""

TWO_LOADERS = """
for epoch in range(1000):
    labelled, unlabelled = DataLoader(Data(), batch_size=8), DataLoader(Data(96), batch_size=8)
    print("workers", labelled.num_workers, unlabelled.num_workers)
    for (x, y), (z, _) in zip(labelled, unlabelled):
        train_on(torch.cat([x, z]), torch.cat([y, y]))
"""

ONE_CYCLE = """
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.01, total_steps=12)
for epoch in range(1000):
    for x, y in DataLoader(Data(), batch_size=8, shuffle=True):
        train_on(x, y)
        scheduler.step()
        assert optimizer.param_groups[0]["lr"] >= 0
"""

RISING_TABLE = """
table = [0.9**step for step in range(9)]
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: table[step])
falling = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / 20)
for epoch in range(1000):
    for x, y in DataLoader(Data(), batch_size=8, shuffle=True):
        train_on(x, y)
        scheduler.step()
        falling.step()
        assert optimizer.param_groups[0]["lr"] >= 0
"""

OTHER_PLACE = """
import os
if "AUTOTUNE_TRIAL" in os.environ and PROBED.exists():
    loader = DataLoader(Data(), batch_size=8)
else:
    PROBED.touch()
    loader = DataLoader(Data(), batch_size=8)
for epoch in range(10000):
    for x, y in loader:
        train_on(x, y)
"""

OWN_HOOK = """
sys.excepthook = lambda *error: print("a fine traceback")
for number, (x, y) in enumerate(DataLoader(Data(), batch_size=8)):
    if number == 8:
        raise MemoryError("no more")
    train_on(x, y)
"""

REPLACES_OPTIMIZER = """
for epoch in range(1000):
    if epoch % 2 == 0:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for number, (x, y) in enumerate(DataLoader(Data(), batch_size=8)):
        train_on(x, y)
        if number == 3:
            break
"""

ENDS_AFTER_STEPS = """
import time
loader, step = DataLoader(Data(), batch_size=8, shuffle=True), 0
while step < NUM_STEPS:
    for x, y in loader:
        train_on(x, y)
        time.sleep(STEP_S)
        step += 1
        if step == NUM_STEPS:
            break
"""

TOKENS = """
class Texts(Dataset):
    def __len__(self):
        return 400
    def __getitem__(self, index):
        tokens = torch.arange(12) % 3
        if index % NUM_LENGTHS:
            tokens[3 + index % NUM_LENGTHS:] = -100
        return torch.randn(12, 4), tokens

for x, y in DataLoader(Texts(), batch_size=8, shuffle=True):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten()).backward()
    optimizer.step()
"""

OWN_READER = """
import queue
import threading

batches = queue.Queue(8)

def read():
    while True:
        batches.put((torch.randn(8, 4), torch.randint(3, (8,))))

threading.Thread(target=read, daemon=True).start()
for step in range(1000000):
    train_on(*batches.get())
"""

EVALUATES_AFTER_ITS_FIRST_STEP = """
import os, pathlib
data = Data()
for epoch in range(1000):
    for number, (x, y) in enumerate(DataLoader(data, batch_size=8, shuffle=True)):
        train_on(x, y)
        if epoch == number == 0:
            model.eval()
            with torch.no_grad():
                num_right = sum(int((model(x).argmax(1) == y).sum()) for x, y in DataLoader(data, batch_size=32))
            model.train()
            if "AUTOTUNE_TRIAL" in os.environ:
                from autotune.protocol.progress_marks import Mark
                from autotune.trial.meter.rank_sync import Progress
                steps = Progress(pathlib.Path(os.environ["AUTOTUNE_TRIAL"], "progress.bin")).get(Mark.STEPS)
                print("STEPS", steps, flush=True)
"""

PROBABILITIES = """
criterion = torch.nn.BCELoss()
for epoch in range(1000):
    for x, y in DataLoader(Data(), batch_size=8, shuffle=True):
        optimizer.zero_grad()
        criterion(torch.sigmoid(model(x)), torch.nn.functional.one_hot(y, 3).float()).backward()
        optimizer.step()
"""
