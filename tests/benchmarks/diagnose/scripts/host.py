"""Host-bound: the accuracy is counted in every step, one sample after the other, through `.item()`."""

import argparse

import torch
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser()
parser.add_argument("--cured", action="store_true")
options = parser.parse_args()
torch.set_num_threads(1)  # steady on a machine that others use too


class Rows(Dataset):
    """Rows of a table in memory, taken a batch at a time."""

    def __init__(self):
        self.inputs, self.targets = torch.randn(65536, 64), torch.randint(0, 10, (65536,))

    def __len__(self):
        return len(self.inputs)

    def __getitems__(self, indices):
        return self.inputs[indices], self.targets[indices]


def num_correct(outputs, targets):
    count = 0
    for output, target in zip(outputs, targets, strict=True):
        if output.argmax().item() == target.item():
            count += 1
    return count


rows = Rows()
model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loss_fn = torch.nn.CrossEntropyLoss()
total = torch.zeros(())
seen = correct = 0
for _ in range(1000):
    for inputs, targets in DataLoader(rows, batch_size=256, shuffle=True, collate_fn=lambda batch: batch):
        optimizer.zero_grad()
        outputs = model(inputs)
        loss = loss_fn(outputs, targets)
        loss.backward()
        optimizer.step()
        seen += len(targets)
        if options.cured:
            total += (outputs.argmax(dim=1) == targets).sum()
        else:
            correct += num_correct(outputs, targets)
