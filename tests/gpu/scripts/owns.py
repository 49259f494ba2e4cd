"""Trains with settings that it takes from autotune, those of its copies to the device among them."""

import torch
from torch.utils.data import DataLoader, TensorDataset

import autotune

cfg = autotune.load("autotune.yaml", batch_size=64)
data = TensorDataset(torch.randn(2048, 4096), torch.randint(0, 10, (2048,)))
model = torch.nn.Sequential(torch.nn.Linear(4096, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 10)).cuda()
model = cfg.prepare(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loader = cfg.on_device(DataLoader(data, shuffle=True, **cfg.loader_kwargs()), "cuda")
for _epoch in range(10_000):
    for inputs, targets in autotune.micro_batches(loader):
        with cfg.autocast():
            loss = torch.nn.functional.cross_entropy(model(inputs), targets)
        cfg.backward(loss, optimizer)
