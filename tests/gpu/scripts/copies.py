"""Trains on large batches from memory, so that copying a batch takes about as long as a step; prints the rate.

With --prefetcher the script has the class that guides on PyTorch recommend: a second stream copies the next batch, and
the iterator waits for the stream.
"""

import argparse
import time

import torch
from torch.utils.data import DataLoader, Dataset

WARM_UP_STEPS = 20
NUM_BATCHES = 8

parser = argparse.ArgumentParser()
parser.add_argument("--seconds", type=float, default=1e9)
parser.add_argument("--batch-size", type=int, default=256)
parser.add_argument("--width", type=int, default=64, help="channels of the network; more make a step longer")
parser.add_argument("--pin-memory", action="store_true")
parser.add_argument("--pinned-data", action="store_true", help="all images lie in page-locked memory")
parser.add_argument("--prefetcher", action="store_true")
args = parser.parse_args()


class Slices(Dataset):
    """Batches that are slices of the images: reading takes no time."""

    def __init__(self):
        self.images = torch.randn(NUM_BATCHES * args.batch_size, 3, 224, 224)
        self.labels = torch.randint(0, 10, (len(self.images),))
        if args.pinned_data:
            self.images, self.labels = self.images.pin_memory(), self.labels.pin_memory()

    def __len__(self):
        return len(self.images)

    def __getitems__(self, indices):
        part = slice(indices[0], indices[-1] + 1)
        return self.images[part], self.labels[part]


class Prefetcher:
    """Copies the next batch on a second stream while the device computes on the present batch."""

    def __init__(self, loader):
        self.batches, self.stream = iter(loader), torch.cuda.Stream()
        self.fetch()

    def fetch(self):
        self.batch = next(self.batches, None)
        if self.batch is not None:
            with torch.cuda.stream(self.stream):
                self.batch = [tensor.cuda(non_blocking=True) for tensor in self.batch]

    def __iter__(self):
        while self.batch is not None:
            torch.cuda.current_stream().wait_stream(self.stream)
            batch = self.batch
            for tensor in batch:
                tensor.record_stream(torch.cuda.current_stream())
            self.fetch()
            yield batch


def as_given(batch):
    """The batch itself: a slice needs no collation."""
    return batch


model = torch.nn.Sequential(
    torch.nn.Conv2d(3, args.width, 7, stride=4),
    torch.nn.ReLU(),
    torch.nn.Conv2d(args.width, args.width, 3, stride=2),
    torch.nn.ReLU(),
    torch.nn.AdaptiveAvgPool2d(1),
    torch.nn.Flatten(),
    torch.nn.Linear(args.width, 10),
).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
loader = DataLoader(
    Slices(),
    batch_size=args.batch_size,
    pin_memory=args.pin_memory or args.prefetcher,
    collate_fn=as_given,
)
began, step = None, 0
while began is None or time.monotonic() - began < args.seconds:
    for images, labels in Prefetcher(loader) if args.prefetcher else loader:
        images, labels = images.cuda(), labels.cuda()
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        step += 1
        if step == WARM_UP_STEPS:
            torch.cuda.synchronize()
            began = time.monotonic()
torch.cuda.synchronize()
rate = (step - WARM_UP_STEPS) * args.batch_size / (time.monotonic() - began)
print(f"samples_per_second={rate:.1f}")
