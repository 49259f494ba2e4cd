"""Dies in a kernel: an index outside of its table, after some steps that are all right."""

import torch
from torch.utils.data import DataLoader, TensorDataset

model = torch.nn.Embedding(10, 4).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
words = torch.cat([torch.randint(0, 10, (640, 8)), torch.full((64, 8), 1_000_000)])
for _epoch in range(10_000):
    for (inputs,) in DataLoader(TensorDataset(words), batch_size=32):
        optimizer.zero_grad()
        loss = model(inputs.cuda()).square().mean()
        loss.backward()
        optimizer.step()
        print(loss.item(), flush=True)
