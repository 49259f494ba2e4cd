"""Small files: a sample is a clip of 24 frames, and every frame is a file of 2 KiB; each epoch adds other noise."""

import pathlib

import numpy as np
import torch
from common import options, train
from torch.utils.data import DataLoader, Dataset

NUM_CLIPS, NUM_FRAMES, FRAME = 400, 24, 2048
FOLDER = pathlib.Path("clips")


def write():
    generator = np.random.default_rng(0)
    for clip in range(NUM_CLIPS):
        place = FOLDER / f"{clip:04d}"
        place.mkdir(parents=True)
        for frame in range(NUM_FRAMES):
            (place / f"{frame:02d}.bin").write_bytes(generator.bytes(FRAME))


class Frames(Dataset):
    """What is stored: the bytes of a clip, and its class."""

    def __len__(self):
        return NUM_CLIPS

    def __getitem__(self, clip):
        frames = []
        for frame in range(NUM_FRAMES):
            with open(f"{FOLDER}/{clip:04d}/{frame:02d}.bin", "rb") as file:
                frames.append(file.read())
        return b"".join(frames), clip % 10


class Clips(Dataset):
    """What is trained on."""

    def __init__(self, stored):
        self.stored = stored

    def __len__(self):
        return len(self.stored)

    def __getitem__(self, clip):
        frames, label = self.stored[clip]
        pixels = torch.frombuffer(bytearray(frames), dtype=torch.uint8).view(NUM_FRAMES, FRAME).float()
        return pixels + torch.rand(1), label


def make():
    """For `autotune pack`."""
    return Frames()


if __name__ == "__main__":
    chosen = options()
    if not FOLDER.exists():
        write()
    stored = Frames()
    if chosen.cured:
        from autotune.storage import Packed

        stored = Packed("packed")
    train(
        DataLoader(Clips(stored), batch_size=16, shuffle=True, num_workers=2, persistent_workers=True),
        NUM_FRAMES * FRAME,
        width=8,
    )
