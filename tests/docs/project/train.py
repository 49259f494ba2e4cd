"""The newcomer's own script: classifies photographs that are slow to unpack. It does not know autotune."""

import argparse
import hashlib
import os
import random
import time
import zlib
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler

NUM_PHOTOS, SIDE, CLASSES = 512, 32, 4


def download(folder):
    """Makes the photographs once, as a script would fetch them."""
    generator = random.Random(0)
    folder.mkdir(parents=True)
    for number in range(NUM_PHOTOS):
        pixels = bytes(generator.choices(range(number % CLASSES, 256, CLASSES), k=3 * SIDE * SIDE))
        (folder / f"{number}.bin").write_bytes(zlib.compress(pixels * 8, 9))


class Photos(Dataset):
    def __init__(self, folder):
        self.paths = sorted(folder.glob("*.bin"))

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        pixels = zlib.decompress(self.paths[index].read_bytes())
        for _ in range(40):
            hashlib.blake2b(pixels).digest()
        image = torch.frombuffer(bytearray(pixels[: 3 * SIDE * SIDE]), dtype=torch.uint8).view(3, SIDE, SIDE)
        return image.float() / 255, int(self.paths[index].stem) % CLASSES


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, default=Path("photos"))
    parser.add_argument("--epochs", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=150.0, help="stop after so many")
    options = parser.parse_args()
    is_parallel = int(os.environ.get("WORLD_SIZE", "1")) > 1
    if is_parallel:
        torch.distributed.init_process_group("gloo")
    if not options.data.exists():
        download(options.data)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(3 * SIDE * SIDE, 64), nn.ReLU(), nn.Linear(64, CLASSES))
    if is_parallel:
        model = nn.parallel.DistributedDataParallel(model)
    photos = Photos(options.data)
    sampler = DistributedSampler(photos) if is_parallel else None
    loader = DataLoader(photos, batch_size=32, shuffle=sampler is None, sampler=sampler)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    began, num_samples = time.perf_counter(), 0
    for _ in range(options.epochs):
        for images, labels in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            num_samples += len(images)
            if time.perf_counter() - began > options.seconds:
                print(f"loss {loss.item():.3f}, {num_samples / (time.perf_counter() - began):.0f} samples per second")
                return


if __name__ == "__main__":
    main()
