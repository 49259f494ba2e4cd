"""A deep network of small layers, on batches so small that the device waits for the host's launches."""

import torch
from torch.utils.data import DataLoader, TensorDataset


class Block(torch.nn.Module):
    """A residual block."""

    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = torch.nn.LayerNorm(64), torch.nn.Linear(64, 128), torch.nn.Linear(128, 64)

    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


torch.manual_seed(0)
model = torch.nn.Sequential(*(Block() for _ in range(32)), torch.nn.Linear(64, 10)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
data = TensorDataset(torch.randn(65536, 64), torch.randint(0, 10, (65536,)))
for _epoch in range(10_000):
    for x, y in DataLoader(data, batch_size=256, drop_last=True):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x.cuda()), y.cuda()).backward()
        optimizer.step()
