"""Train a GPT of GPT-2's smallest size on the source text of Python's own standard library, byte by byte."""

import argparse
import math
import sysconfig
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

TEXT_BYTES = 8_000_000


class Windows(Dataset):
    """Windows of the text at random places; the target is the window moved on by one."""

    def __init__(self, block_size, num_windows):
        folder = Path(sysconfig.get_path("stdlib"))
        parts = [path.read_bytes() for path in sorted(folder.glob("*.py")) + sorted(folder.glob("*/*.py"))]
        text = bytearray(b"".join(parts)[:TEXT_BYTES])
        self.data = torch.frombuffer(text, dtype=torch.uint8)
        self.block_size, self.num_windows = block_size, num_windows

    def __len__(self):
        return self.num_windows

    def __getitem__(self, index):
        start = int(torch.randint(len(self.data) - self.block_size - 1, ()))
        window = self.data[start : start + self.block_size + 1].long()
        return window[:-1], window[1:]


class Block(nn.Module):
    def __init__(self, width, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.norm_1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm_2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        batch, length, width = x.shape
        shape = (batch, length, self.num_heads, width // self.num_heads)
        q, k, v = (part.view(shape).transpose(1, 2) for part in self.qkv(self.norm_1(x)).split(width, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norm_2(x))


class GPT(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.tokens = nn.Embedding(args.vocabulary, args.width)
        self.positions = nn.Embedding(args.block_size, args.width)
        self.blocks = nn.Sequential(*(Block(args.width, args.heads) for _ in range(args.layers)))
        self.norm = nn.LayerNorm(args.width)
        self.head = nn.Linear(args.width, args.vocabulary, bias=False)
        self.head.weight = self.tokens.weight
        for parameter in self.parameters():
            if parameter.dim() >= 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, indices, targets):
        positions = torch.arange(indices.shape[1], device=indices.device)
        x = self.blocks(self.tokens(indices) + self.positions(positions))
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch-size", type=int, default=12)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--pin-memory", action="store_true")
    parser.add_argument("--persistent-workers", action="store_true")
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--block-size", type=int, default=1024)
    parser.add_argument("--vocabulary", type=int, default=50304)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--lr", type=float, default=6e-4)
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=0, help="stop after so many seconds; 0: no limit")
    parser.add_argument("--log-every", type=int, default=20)
    return parser.parse_args()


def train(args, device):
    loader = DataLoader(
        Windows(args.block_size, 200_000),
        batch_size=args.batch_size,
        shuffle=True,
        num_workers=args.workers,
        pin_memory=args.pin_memory,
        persistent_workers=args.persistent_workers,
        drop_last=True,
    )
    model = GPT(args).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, betas=(0.9, 0.95), weight_decay=0.1)

    def factor(step):
        return min((step + 1) / 200, 0.1 + 0.45 * (1 + math.cos(math.pi * min(1, step / args.steps))))

    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
    model.train()
    step = num_samples = 0
    start = None
    while True:
        for indices, targets in loader:
            indices = indices.to(device, non_blocking=args.pin_memory)
            targets = targets.to(device, non_blocking=args.pin_memory)
            if args.bf16:
                with torch.autocast(device.type, dtype=torch.bfloat16):
                    loss = model(indices, targets)
            else:
                loss = model(indices, targets)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()

            step += 1
            if step == 10:  # the first steps load kernels
                torch.cuda.synchronize() if device.type == "cuda" else None
                start = time.monotonic()
            if step > 10:
                num_samples += len(indices)
            if step > 10 and step % args.log_every == 0:
                rate = num_samples / (time.monotonic() - start)
                print(f"step {step} loss {loss.item():.4f} {rate:.1f} samples/s", flush=True)
            if step == args.steps or (start is not None and 0 < args.seconds <= time.monotonic() - start):
                return num_samples, start


def main():
    args = parse_args()
    torch.manual_seed(args.seed)
    num_samples, start = train(args, torch.device("cuda" if torch.cuda.is_available() else "cpu"))
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    print(f"samples_per_second={num_samples / (time.monotonic() - start):.1f}")


if __name__ == "__main__":
    main()
