"""A script that keeps the outputs of its model, which a CUDA graph would overwrite."""

import torch
from torch.utils.data import DataLoader, TensorDataset

model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
data = TensorDataset(torch.randn(4096, 64), torch.randint(0, 10, (4096,)))
for _epoch in range(10_000):
    outputs = []
    for x, y in DataLoader(data, batch_size=64):
        optimizer.zero_grad()
        outputs.append(model(x.cuda()))
        torch.nn.functional.cross_entropy(outputs[-1], y.cuda()).backward()
        optimizer.step()
    print(torch.cat(outputs).argmax(dim=1).float().mean().item(), flush=True)
