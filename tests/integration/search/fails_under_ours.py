"""A convolutional net that fails with weights in another memory order, over data that no worker can read."""

import sys

import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info

where = sys.argv[1]


class Images(Dataset):
    def __len__(self):
        return 512

    def __getitem__(self, index):
        if where == "worker" and get_worker_info() is not None:
            raise OSError("the archive is open elsewhere")
        return torch.randn(3, 8, 8), index % 4


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Conv2d(3, 8, 3)
        self.head = torch.nn.Linear(288, 4)

    def forward(self, x):
        if where == "model" and self.layer.weight.is_contiguous(memory_format=torch.channels_last):
            raise RuntimeError("view size is not compatible")
        return self.head(torch.relu(self.layer(x)).flatten(1))


if __name__ == "__main__":
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(Images(), batch_size=16)
    for _ in range(1000):
        for x, y in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
