"""Few shards: WebDataset with 2 shards for 8 workers, each sample from storage that answers after 4 ms."""

import pathlib
import time

import torch
import webdataset
from common import options, train
from torch.utils.data import DataLoader

NUM_SAMPLES, NUM_FEATURES = 2048, 256


def write(folder, num_shards):
    folder.mkdir()
    generator = torch.Generator().manual_seed(0)
    for shard in range(num_shards):
        with webdataset.TarWriter(str(folder / f"{shard:03d}.tar")) as tar:
            for number in range(shard, NUM_SAMPLES, num_shards):
                row = torch.randn(NUM_FEATURES, generator=generator).numpy()
                tar.write({"__key__": f"{number:06d}", "row.npy": row, "label.cls": number % 10})


def fetched(sample):
    time.sleep(0.004)
    return torch.from_numpy(sample["row.npy"]), int(sample["label.cls"])


if __name__ == "__main__":
    chosen = options()
    num_shards = 16 if chosen.cured else 2
    folder = pathlib.Path(f"shards-{num_shards}")
    if not folder.exists():
        write(folder, num_shards)
    shards = [str(path) for path in sorted(folder.iterdir())]
    stream = webdataset.WebDataset(shards, shardshuffle=False, empty_check=False).decode().map(fetched)
    train(DataLoader(stream, batch_size=32, num_workers=8, persistent_workers=True), NUM_FEATURES)
