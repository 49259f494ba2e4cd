"""A small network whose loss and accuracy are read in every step, a sample at a time."""

import torch
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.randn(4096, 256), torch.randint(0, 10, (4096,)))
model = torch.nn.Sequential(torch.nn.Linear(256, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 10)).cuda()
optimizer = torch.optim.Adam(model.parameters())
seen = correct = 0
total = 0.0
for _ in range(100000):
    for inputs, targets in DataLoader(data, batch_size=64, shuffle=True):
        inputs, targets = inputs.cuda(), targets.cuda()
        optimizer.zero_grad()
        outputs = model(inputs)
        loss = torch.nn.functional.cross_entropy(outputs, targets)
        loss.backward()
        optimizer.step()
        for output, target in zip(outputs, targets, strict=True):
            correct += int(output.argmax().item() == target.item())
        total += loss.item()
