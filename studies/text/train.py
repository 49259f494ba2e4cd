"""Train a small language model on one text, kept in memory or on disk in one of several ways."""

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

HERE = Path(__file__).resolve().parent
VOCABULARY, LENGTH = 4096, 128
STORAGES = ("memmap", "arrow", "list")


def make_tokens(path, num_samples):
    """A text of tokens that follow each other by a rule with noise."""
    rng = np.random.default_rng(0)
    noise = rng.integers(0, 8, num_samples * LENGTH)
    tokens = (np.cumsum(noise) % VOCABULARY).astype(np.uint16)
    temporary = path.with_suffix(".tmp")
    tokens.tofile(temporary)
    temporary.replace(path)


class Mapped(Dataset):
    """One file of tokens in a memory map."""

    def __init__(self, path):
        self.path, self.tokens = path, None
        self.num_samples = path.stat().st_size // 2 // LENGTH

    def __len__(self):
        return self.num_samples

    def __getitem__(self, index):
        if self.tokens is None:
            self.tokens = np.memmap(self.path, np.uint16, "r")
        return torch.from_numpy(self.tokens[index * LENGTH : (index + 1) * LENGTH].astype(np.int64))


class Listed(Dataset):
    """A list of lists of Python numbers: every worker copies the pages as it counts references."""

    def __init__(self, path):
        self.samples = np.fromfile(path, np.uint16).reshape(-1, LENGTH).tolist()

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        return torch.tensor(self.samples[index])


def arrow(path):
    """A dataset of Hugging Face over an Arrow file, shuffled once: rows are then found by an indices mapping."""
    import datasets

    folder = path.with_suffix(".arrow")
    if not folder.exists():
        rows = np.fromfile(path, np.uint16).reshape(-1, LENGTH).astype(np.int64)
        datasets.Dataset.from_dict({"tokens": list(rows)}).save_to_disk(folder)
    return datasets.load_from_disk(str(folder)).with_format("torch").shuffle(seed=0)


def collate(samples):
    return torch.stack([sample["tokens"] if isinstance(sample, dict) else sample for sample in samples])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--storage", choices=STORAGES, default="list")
    parser.add_argument("--samples", type=int, default=50_000)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--data", type=Path, default=HERE / "data")
    parser.add_argument("--prepare", action="store_true", help="make the text in every storage, and end")
    parser.add_argument("--seconds", type=float, default=0.0, help="stop after this time; 0 = train on")
    options = parser.parse_args()
    options.data.mkdir(exist_ok=True)
    path = options.data / f"tokens-{options.samples}.bin"
    if not path.exists():
        make_tokens(path, options.samples)
    if options.prepare:
        arrow(path)
        return
    dataset = {"memmap": Mapped, "arrow": arrow, "list": Listed}[options.storage](path)
    loader = DataLoader(
        dataset, options.batch_size, shuffle=True, num_workers=options.workers, collate_fn=collate, drop_last=True
    )
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = nn.Sequential(nn.Embedding(VOCABULARY, 32), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 64)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loss_fn = nn.CrossEntropyLoss()
    began, samples = time.perf_counter(), 0
    while True:
        for tokens in loader:
            tokens = tokens.to(device)
            outputs = model(tokens[:, :-1])
            loss = loss_fn(outputs.flatten(0, 1), tokens[:, 1:].flatten() % 64)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            samples += len(tokens)
            if options.seconds and time.perf_counter() - began >= options.seconds:
                print(f"samples_per_second {samples / (time.perf_counter() - began):.1f}")
                return


if __name__ == "__main__":
    main()
