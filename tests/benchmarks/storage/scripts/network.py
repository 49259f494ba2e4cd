"""Storage behind a network: every sample comes after 4 ms, and one worker asks for one sample at a time."""

import time

import torch
from common import options, train
from torch.utils.data import DataLoader, Dataset

NUM_SAMPLES, NUM_FEATURES = 400_000_000, 256


class Remote(Dataset):
    """More samples than a local disk holds."""

    def __len__(self):
        return NUM_SAMPLES

    def __getitem__(self, index):
        time.sleep(0.004)
        generator = torch.Generator().manual_seed(index)
        return torch.randn(NUM_FEATURES, generator=generator), index % 10


if __name__ == "__main__":
    chosen = options(workers=1)
    train(DataLoader(Remote(), batch_size=32, num_workers=chosen.workers, shuffle=False), NUM_FEATURES)
