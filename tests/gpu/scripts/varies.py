"""Batches of many lengths through a small transformer: the allocator holds blocks of many sizes, with gaps between."""

import argparse
import time

import torch
from torch.utils.data import DataLoader, TensorDataset

LENGTHS = (96, 512, 160, 448, 224, 384, 320, 256)
WARM_UP_STEPS = 20

parser = argparse.ArgumentParser()
parser.add_argument("--seconds", type=float, default=1e9)
parser.add_argument("--batch-size", type=int, default=64)
args = parser.parse_args()
layers = [torch.nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True, dropout=0.0) for _ in range(6)]
model = torch.nn.Sequential(torch.nn.Embedding(8192, 512), *layers, torch.nn.Linear(512, 8192)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
tokens = torch.randint(0, 8192, (64 * 512, 513))
began, step, num_samples = None, 0, 0
while began is None or time.monotonic() - began < args.seconds:
    for (batch,) in DataLoader(TensorDataset(tokens), batch_size=args.batch_size, shuffle=True, drop_last=True):
        length = LENGTHS[step % len(LENGTHS)]
        inputs = batch[:, : length + 1].to("cuda")
        optimizer.zero_grad()
        scores = model(inputs[:, :-1])
        loss = torch.nn.functional.cross_entropy(scores.flatten(0, 1), inputs[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        step += 1
        if step == WARM_UP_STEPS:
            torch.cuda.synchronize()
            began = time.monotonic()
        elif began is not None:
            num_samples += args.batch_size
            if time.monotonic() - began >= args.seconds:
                break
torch.cuda.synchronize()
print(f"samples_per_second={num_samples / (time.monotonic() - began):.1f}")
