"""A job that waits for its loader: every sample sleeps, and every sample is written down with its worker and time."""

import argparse
import os
import time

import torch
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser()
parser.add_argument("--sleep", type=float, default=0.0)
parser.add_argument("--samples", type=int, default=2000)
parser.add_argument("--batch", type=int, default=8)
parser.add_argument("--context", default=None)
parser.add_argument("--any-order", action="store_true", help="batches come as they are ready")
parser.add_argument(
    "--broken", type=int, default=0, help="first samples that cannot be read; such batches are left out"
)
parser.add_argument("--unread", action="store_true", help="an iteration is begun first, and never read")
parser.add_argument("--no-fetchers", action="store_true", help="as if torch had moved what the gate is built on")
args = parser.parse_args()
if args.no_fetchers:
    from autotune.trial.torch import torch_names

    torch_names.fetchers = tuple
BOOK = "book-{}.txt"


class Slow(Dataset):
    def __len__(self):
        return args.samples

    def __getitem__(self, index):
        if index < args.broken:
            raise KeyError(index)
        if args.sleep:
            time.sleep(args.sleep)
        with open(BOOK.format(os.getpid()), "a") as book:
            book.write(f"item {index} {time.monotonic()}\n")
        return torch.full((4,), float(index)), index % 3


def init(worker_id):
    with open(BOOK.format(os.getpid()), "a") as book:
        book.write(f"init {worker_id} {time.monotonic()}\n")


def readable(batches):
    while True:
        try:
            yield next(batches)
        except KeyError:
            continue
        except StopIteration:
            return


def main():
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
    loader = DataLoader(
        Slow(),
        batch_size=args.batch,
        shuffle=not args.broken,
        worker_init_fn=init,
        multiprocessing_context=args.context,
        num_workers=1 if args.context else 0,
        **({"in_order": False} if args.any_order else {}),
    )
    if args.unread:
        iter(loader)
    for _epoch in range(1000):
        for x, y in readable(iter(loader)):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()


if __name__ == "__main__":
    main()
