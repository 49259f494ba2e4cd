"""Slow decoder: WebP images of 384x256 decoded by PIL in two workers, cut at random; too many to be stored decoded."""

import io
import pathlib

import numpy as np
import torch
from common import options, train
from torch.utils.data import DataLoader, Dataset

FOLDER, NUM_FILES, NUM_SAMPLES, CUT = pathlib.Path("images"), 64, 4_000_000, 64


def write():
    from PIL import Image

    FOLDER.mkdir()
    generator = np.random.default_rng(0)
    for number in range(NUM_FILES):
        small = Image.fromarray(generator.integers(0, 256, (16, 24, 3), dtype=np.uint8))
        small.resize((384, 256), Image.Resampling.BICUBIC).save(FOLDER / f"{number:03d}.webp", quality=80)


def by_pil(data):
    from PIL import Image

    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


def by_opencv(data):
    import cv2

    return cv2.cvtColor(cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR), cv2.COLOR_BGR2RGB)


class Images(Dataset):
    def __init__(self, decode):
        self.decode = decode

    def __len__(self):
        return NUM_SAMPLES

    def __getitem__(self, index):
        data = (FOLDER / f"{index % NUM_FILES:03d}.webp").read_bytes()
        pixels = self.decode(data)
        top, left = torch.randint(0, 256 - CUT, (1,)).item(), torch.randint(0, 384 - CUT, (1,)).item()
        return torch.from_numpy(pixels[top : top + CUT, left : left + CUT].copy()), index % 10


if __name__ == "__main__":
    chosen = options()
    if not FOLDER.exists():
        write()
    images = Images(by_opencv if chosen.cured else by_pil)
    train(
        DataLoader(images, batch_size=32, num_workers=2, persistent_workers=True, shuffle=True), CUT * CUT * 3, width=8
    )
