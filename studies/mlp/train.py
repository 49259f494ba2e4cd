"""Fit a tiny MLP to a synthetic table that lies in memory."""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

NUM_ROWS = 65_536
NUM_FEATURES = 32


def make_table():
    """Standard normal features; the target is a smooth, noisy function of a few of them."""
    features = torch.randn(NUM_ROWS, NUM_FEATURES)
    target = torch.sin(2 * features[:, 0]) + features[:, 1] * features[:, 2] + 0.5 * features[:, 3].abs()
    return TensorDataset(features, target + 0.1 * torch.randn(NUM_ROWS))


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--pin-memory", action="store_true")
    parser.add_argument("--persistent-workers", action="store_true")
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=0, help="stop after so many steps; 0: no limit")
    parser.add_argument("--seconds", type=float, default=0, help="stop after so many seconds; 0: no limit")
    parser.add_argument("--log-every", type=int, default=1000)
    return parser.parse_args()


def train(args):
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    loader = DataLoader(
        make_table(),
        batch_size=args.batch_size,
        shuffle=True,
        num_workers=args.workers,
        pin_memory=args.pin_memory,
        persistent_workers=args.persistent_workers,
    )
    model = nn.Sequential(
        nn.Linear(NUM_FEATURES, args.hidden),
        nn.ReLU(),
        nn.Linear(args.hidden, args.hidden),
        nn.ReLU(),
        nn.Linear(args.hidden, 1),
    ).to(device)
    criterion = nn.MSELoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)

    model.train()
    step = num_samples = 0
    start = time.monotonic()
    for epoch in range(args.epochs):
        for features, target in loader:
            features = features.to(device, non_blocking=args.pin_memory)
            target = target.to(device, non_blocking=args.pin_memory)
            optimizer.zero_grad()
            if args.bf16:
                with torch.autocast(device.type, dtype=torch.bfloat16):
                    loss = criterion(model(features).squeeze(1), target)
            else:
                loss = criterion(model(features).squeeze(1), target)
            loss.backward()
            optimizer.step()

            step += 1
            num_samples += len(target)
            seconds = time.monotonic() - start
            if step % args.log_every == 0:
                rate = num_samples / seconds
                print(f"epoch {epoch} step {step} loss {loss.item():.4f} {rate:.1f} samples/s", flush=True)
            if step == args.steps or 0 < args.seconds <= seconds:
                return num_samples, start
    return num_samples, start


def main():
    args = parse_args()
    torch.manual_seed(args.seed)
    num_samples, start = train(args)
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    print(f"samples_per_second={num_samples / (time.monotonic() - start):.1f}")


if __name__ == "__main__":
    main()
