"""HDF5 chunks of 256 samples: a sample at random reads and unpacks a whole chunk."""

import pathlib

import h5py
import numpy as np
import torch
from common import options, train
from torch.utils.data import DataLoader, Dataset

FILE, NUM_SAMPLES, NUM_FEATURES = pathlib.Path("samples.h5"), 8192, 1024


def write():
    rows = np.random.default_rng(0).integers(0, 40, (NUM_SAMPLES, NUM_FEATURES)).astype(np.float32)
    with h5py.File(FILE, "w") as file:
        file.create_dataset("rows", data=rows, chunks=(256, NUM_FEATURES), compression="gzip", compression_opts=1)


class Rows(Dataset):
    """What is stored."""

    def __init__(self):
        self.file = None

    def __len__(self):
        return NUM_SAMPLES

    def __getitem__(self, index):
        if self.file is None:
            self.file = h5py.File(FILE, "r")
        return self.file["rows"][index], index % 10


class Noisy(Dataset):
    """What is trained on."""

    def __init__(self, stored):
        self.stored = stored

    def __len__(self):
        return len(self.stored)

    def __getitem__(self, index):
        row, label = self.stored[index]
        return torch.from_numpy(row) + 0.1 * torch.randn(NUM_FEATURES), label


def make():
    """For `autotune pack`."""
    return Rows()


if __name__ == "__main__":
    chosen = options()
    if not FILE.exists():
        write()
    stored = Rows()
    if chosen.cured:
        from autotune.storage import Packed

        stored = Packed("packed")
    train(DataLoader(Noisy(stored), batch_size=32, num_workers=2, persistent_workers=True, shuffle=True), NUM_FEATURES)
