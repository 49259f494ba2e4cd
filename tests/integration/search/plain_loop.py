"""An ordinary script, loader-bound by sleeping, so that what workers are worth does not depend on a busy machine."""

import argparse
import time

import torch
from torch.utils.data import DataLoader, Dataset


class Slow(Dataset):
    def __len__(self):
        return 4000

    def __getitem__(self, index):
        time.sleep(0.002)
        generator = torch.Generator().manual_seed(index)
        return torch.randn(16, generator=generator), index % 3


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--storage", default="folder")
    options = parser.parse_args()
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    started, num_samples = time.monotonic(), 0
    for epoch in range(100):
        loader = DataLoader(Slow(), batch_size=16, shuffle=True)
        for inputs, targets in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(inputs), targets).backward()
            optimizer.step()
            num_samples += len(inputs)
            if time.monotonic() - started > options.seconds:
                torch.save(model.state_dict(), "last.pt")
                print(f"workers={loader.num_workers} storage={options.storage}")
                print(f"samples_per_second={num_samples / (time.monotonic() - started):.1f}")
                return
        torch.save(model.state_dict(), f"epoch-{epoch}.pt")


if __name__ == "__main__":
    main()
