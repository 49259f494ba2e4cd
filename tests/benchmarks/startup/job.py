"""A script that imports torch and a second heavy package, and trains a small model; it says when a step has ended.

Arguments: the number of steps to do (0 = none, and no import but torch's), and `forever` for one that goes on.
"""

import sys
import time

import torch

if sys.argv[1] != "0":
    import numpy
    import sympy
    import torch._dynamo
    from PIL import Image
    from torch.utils.data import DataLoader, TensorDataset


def main(num_steps):
    symbol = sympy.Symbol("x")
    scale = float(sympy.diff(symbol**2, symbol).subs(symbol, 1))
    pixels = numpy.asarray(Image.new("L", (16, 16), 128), dtype=numpy.float32) / 255
    torch.manual_seed(7)
    inputs = torch.randn(4096, 256) * scale + torch.from_numpy(pixels).flatten()
    loader = DataLoader(TensorDataset(inputs, torch.randint(10, (4096,))), batch_size=64, shuffle=True)
    model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10))
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


if __name__ == "__main__" and sys.argv[1] != "0":
    main(10**9 if sys.argv[1] == "forever" else int(sys.argv[1]))
