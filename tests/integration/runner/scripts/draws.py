"""Prepares and trains by random numbers that it leaves to whoever starts it to seed, and says what it sees meanwhile.

With the word `worker` a worker reads the samples, and the model drops activations.
"""

import random
import sys

import numpy
import torch
from looks import look
from torch.utils.data import DataLoader, Dataset

HAS_WORKER = sys.argv[1:] == ["worker"]
NUM_SAMPLES, NUM_FEATURES = 512, 16


class Points(Dataset):
    """Samples that were drawn beforehand, with noise that is drawn whenever one is read; both by all generators."""

    def __init__(self):
        scales = torch.from_numpy(numpy.random.random(NUM_FEATURES).astype("float32"))
        self.inputs = torch.randn(NUM_SAMPLES, NUM_FEATURES) * scales
        self.targets = torch.tensor([random.randrange(3) for _ in range(NUM_SAMPLES)])

    def __len__(self):
        return NUM_SAMPLES

    def __getitem__(self, index):
        noise = torch.randn(NUM_FEATURES) * random.random() + numpy.random.random()
        return self.inputs[index] + noise, self.targets[index]


def main():
    look("begins")
    points = Points()
    layers = [torch.nn.Linear(NUM_FEATURES, 32), torch.nn.ReLU(), torch.nn.Linear(32, 3)]
    model = torch.nn.Sequential(*layers[:2], *[torch.nn.Dropout(0.3)] * HAS_WORKER, layers[2])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(points, batch_size=32, shuffle=True, num_workers=int(HAS_WORKER))
    is_new = True
    while True:
        for inputs, targets in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(inputs), targets).backward()
            optimizer.step()
            if is_new:
                look("trains")
                is_new = False


if __name__ == "__main__":
    main()
