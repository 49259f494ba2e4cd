"""What all sick scripts share: arguments, a small training, and a loop."""

import argparse

import torch


def options(**more):
    parser = argparse.ArgumentParser()
    parser.add_argument("--cured", action="store_true")
    for name, value in more.items():
        parser.add_argument(f"--{name}", type=type(value), default=value)
    torch.set_num_threads(1)  # steady on a machine that others use too
    return parser.parse_args()


def train(batches, num_features, *, width=32, depth=1):
    """Trains on batches of (inputs, targets) until somebody ends the script."""
    layers = [torch.nn.Flatten(), torch.nn.Linear(num_features, width), torch.nn.ReLU()]
    for _ in range(depth - 1):
        layers += [torch.nn.Linear(width, width), torch.nn.ReLU()]
    model = torch.nn.Sequential(*layers, torch.nn.Linear(width, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    loss_fn = torch.nn.CrossEntropyLoss()
    for _ in range(1000):
        for inputs, targets in batches:
            optimizer.zero_grad()
            loss = loss_fn(model(inputs.float()), targets)
            loss.backward()
            optimizer.step()
