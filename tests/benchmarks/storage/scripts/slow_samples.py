"""Slow samples: one in a hundred takes 400 ms, all others 1 ms, so that finished batches wait for slow batches."""

import time

import torch
from common import options, train
from torch.utils.data import DataLoader, Dataset

NUM_SAMPLES, NUM_FEATURES = 4_000_000, 65536


class Uneven(Dataset):
    def __len__(self):
        return NUM_SAMPLES

    def __getitem__(self, index):
        time.sleep(0.4 if (index * 2654435761) % 100 == 0 else 0.001)
        return torch.full((NUM_FEATURES,), float(index % 7)) + torch.rand(1), index % 10


if __name__ == "__main__":
    chosen = options(prefetch=2)
    loader = DataLoader(
        Uneven(), batch_size=8, num_workers=4, shuffle=True, in_order=not chosen.cured, prefetch_factor=chosen.prefetch
    )
    train(loader, NUM_FEATURES, width=64)
