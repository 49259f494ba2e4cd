"""A script that applies its settings itself: they matter as soon as it asks for them."""

import time

import torch
from torch.utils.data import DataLoader, TensorDataset

import autotune

torch.manual_seed(5)
time.sleep(0.3)
cfg = autotune.load("autotune.yaml", batch_size=32, num_workers=0)
model = cfg.prepare(torch.nn.Linear(16, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.randn(512, 16), torch.randint(3, (512,))), **cfg.loader_kwargs())
while True:
    for inputs, targets in autotune.micro_batches(loader):
        with cfg.autocast():
            loss = torch.nn.functional.cross_entropy(model(inputs), targets)
        cfg.backward(loss, optimizer)
