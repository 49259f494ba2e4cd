"""A transformer of torch's own classes, whose first projection is never called, on made-up tokens."""

import torch
from torch.utils.data import DataLoader, TensorDataset


class Model(torch.nn.Module):
    """An encoder and a head."""

    def __init__(self):
        super().__init__()
        layer = torch.nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True)
        self.encoder, self.head = torch.nn.TransformerEncoder(layer, 2), torch.nn.Linear(256, 10)

    def forward(self, x):
        return self.head(self.encoder(x)[:, 0])


model = Model().cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
data = TensorDataset(torch.randn(512, 32, 256), torch.randint(0, 10, (512,)))
for _epoch in range(10_000):
    for x, y in DataLoader(data, batch_size=32, shuffle=True):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x.cuda()), y.cuda()).backward()
        optimizer.step()
