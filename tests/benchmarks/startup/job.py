"""A script that imports torch and a second heavy package, and trains a small model; it says when a step has ended.

Arguments: the number of steps to do (0 = none, and no import but torch's), and `forever` for one that goes on.
"""

import sys

import torch
from training import steps_asked_for, train

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
    train(model, loader, num_steps)


if __name__ == "__main__" and sys.argv[1] != "0":
    main(steps_asked_for(sys.argv[1]))
