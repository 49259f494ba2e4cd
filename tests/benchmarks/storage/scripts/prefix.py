"""Repeated work: every epoch decodes and shrinks the same images, before a random flip."""

import pathlib

import numpy as np
import torch
from common import options, train
from PIL import Image
from torch.utils.data import DataLoader, Dataset

FOLDER, NUM_FILES, SIZE = pathlib.Path("photos"), 300, 64


def write():
    FOLDER.mkdir()
    generator = np.random.default_rng(0)
    for number in range(NUM_FILES):
        small = Image.fromarray(generator.integers(0, 256, (16, 24, 3), dtype=np.uint8))
        small.resize((384, 256), Image.Resampling.BICUBIC).save(FOLDER / f"{number:03d}.png")


class Compose:
    def __init__(self, transforms):
        self.transforms = transforms

    def __call__(self, value):
        for transform in self.transforms:
            value = transform(value)
        return value


class Shrink:
    def __call__(self, image):
        return np.asarray(image.resize((SIZE, SIZE), Image.Resampling.LANCZOS))


class Flip:
    def __call__(self, pixels):
        return pixels[:, ::-1].copy() if torch.rand(()) < 0.5 else pixels


class ToFloat:
    def __call__(self, pixels):
        return torch.from_numpy(pixels).float().div(255)


class Photos(Dataset):
    def __init__(self, transform):
        self.transform = transform

    def __len__(self):
        return NUM_FILES

    def __getitem__(self, index):
        with Image.open(FOLDER / f"{index:03d}.png") as image:
            return self.transform(image.convert("RGB")), index % 10


def make():
    """For `autotune pack`: the samples before the flip."""
    return Photos(Compose([Shrink()]))


class Finished:
    """The transforms from the flip on, for stored samples."""

    def __init__(self):
        self.transform = Compose([Flip(), ToFloat()])

    def __call__(self, sample):
        return self.transform(sample[0]), sample[1]


if __name__ == "__main__":
    chosen = options()
    if not FOLDER.exists():
        write()
    photos = Photos(Compose([Shrink(), Flip(), ToFloat()]))
    if chosen.cured:
        from autotune.storage import Packed

        photos = Packed("packed", transform=Finished())
    train(
        DataLoader(photos, batch_size=16, num_workers=2, persistent_workers=True, shuffle=True),
        SIZE * SIZE * 3,
        width=8,
    )
