"""The loop that the scripts of this benchmark train by."""

import time

import torch


def train(model, loader, num_steps):
    """Trains for so many steps, epoch after epoch, and says when the first has ended."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    done = 0
    while done < num_steps:
        for batch, targets in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(batch), targets).backward()
            optimizer.step()
            done += 1
            if done == 1:
                print("first step ended at", time.monotonic())
            if done >= num_steps:
                break


def steps_asked_for(argument):
    """The number of steps, of which `forever` is more than any trial does."""
    return 10**9 if argument == "forever" else int(argument)
