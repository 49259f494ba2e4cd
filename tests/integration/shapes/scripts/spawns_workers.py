"""A guarded script whose processes are started by spawn, as on systems that have no fork."""

import torch
import torch.multiprocessing
from torch.utils.data import DataLoader, Dataset


class Data(Dataset):
    """Samples that a worker makes."""

    def __len__(self):
        return 96

    def __getitem__(self, index):
        return torch.full((4,), float(index % 7)), index % 3


def main():
    """Trains."""
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(1000):
        for x, y in DataLoader(Data(), batch_size=8):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
    print("THE END")


if __name__ == "__main__":
    torch.multiprocessing.set_start_method("spawn")
    main()
