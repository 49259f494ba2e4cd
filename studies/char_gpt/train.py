"""Train a small character-level GPT on the source text of Python's own standard library."""

import argparse
import math
import sysconfig
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

TEXT_CHARS = 2_000_000


def read_text(limit):
    """The first `limit` characters of the standard library's top-level modules, in the order of their names."""
    parts = []
    num_chars = 0
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        parts.append(path.read_text(encoding="utf-8", errors="replace"))
        num_chars += len(parts[-1])
        if num_chars >= limit:
            break
    return "".join(parts)[:limit]


class Windows(Dataset):
    """Windows of block_size characters, half overlapping; the target is the window moved on by one."""

    def __init__(self, text, block_size):
        self.vocabulary = sorted(set(text))
        index_of = {char: index for index, char in enumerate(self.vocabulary)}
        self.data = torch.tensor([index_of[char] for char in text], dtype=torch.int64)
        self.block_size = block_size
        self.stride = block_size // 2

    def __len__(self):
        return (len(self.data) - self.block_size - 1) // self.stride + 1

    def __getitem__(self, index):
        start = index * self.stride
        window = self.data[start : start + self.block_size + 1]
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

    def attend(self, x):
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, self.num_heads, width // self.num_heads).transpose(1, 2)
            for part in self.qkv(x).split(width, dim=2)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))

    def forward(self, x):
        x = x + self.attend(self.norm_1(x))
        return x + self.mlp(self.norm_2(x))


class GPT(nn.Module):
    def __init__(self, vocab_size, block_size, num_layers, num_heads, width):
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, width)
        self.positions = nn.Embedding(block_size, width)
        self.blocks = nn.Sequential(*(Block(width, num_heads) for _ in range(num_layers)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocab_size, bias=False)
        self.apply(self.init_weights)

    @staticmethod
    def init_weights(module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

    def forward(self, indices, targets):
        positions = torch.arange(indices.shape[1], device=indices.device)
        x = self.blocks(self.tokens(indices) + self.positions(positions))
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def make_optimizer(model, lr, weight_decay):
    """Matrices and embeddings decay, biases and norms do not."""
    decayed = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": decayed, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.95))


def make_schedule(optimizer, num_warmup_steps, num_steps):
    def factor(step):
        if step < num_warmup_steps:
            return (step + 1) / num_warmup_steps
        progress = min(1.0, (step - num_warmup_steps) / max(1, num_steps - num_warmup_steps))
        return 0.1 + 0.45 * (1 + math.cos(math.pi * progress))

    return torch.optim.lr_scheduler.LambdaLR(optimizer, factor)


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--block-size", type=int, default=128)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--width", type=int, default=96)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--weight-decay", type=float, default=0.1)
    parser.add_argument("--grad-clip", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=0, help="stop after so many steps; 0: no limit")
    parser.add_argument("--seconds", type=float, default=0, help="stop after so many seconds; 0: no limit")
    parser.add_argument("--log-every", type=int, default=20)
    return parser.parse_args()


def train(args):
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dataset = Windows(read_text(TEXT_CHARS), args.block_size)
    loader = DataLoader(dataset, batch_size=args.batch_size, shuffle=True, num_workers=args.workers, drop_last=True)
    model = GPT(len(dataset.vocabulary), args.block_size, args.layers, args.heads, args.width).to(device)
    optimizer = make_optimizer(model, args.lr, args.weight_decay)
    scheduler = make_schedule(optimizer, num_warmup_steps=100, num_steps=args.epochs * len(loader))

    model.train()
    step = num_samples = 0
    start = time.monotonic()
    for epoch in range(args.epochs):
        for indices, targets in loader:
            indices, targets = indices.to(device), targets.to(device)
            loss = model(indices, targets)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), args.grad_clip)
            optimizer.step()
            scheduler.step()

            step += 1
            num_samples += len(indices)
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
