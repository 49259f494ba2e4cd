"""A training task around a convolution network, with a `to` that tries its arguments on an empty tensor first."""

import torch
from torch.utils.data import DataLoader, TensorDataset


class Task(torch.nn.Module):
    """The model and its loss; the script calls it with images and labels."""

    def __init__(self):
        super().__init__()
        self.model = torch.nn.Sequential(
            torch.nn.Conv2d(16, 64, 3),
            torch.nn.ReLU(),
            torch.nn.Conv2d(64, 64, 3),
            torch.nn.AdaptiveAvgPool2d(1),
            torch.nn.Flatten(),
            torch.nn.Linear(64, 10),
        )

    def to(self, *args, **kwargs):
        torch.empty(0).to(*args, **kwargs)
        return super().to(*args, **kwargs)

    def forward(self, images, labels):
        return torch.nn.functional.cross_entropy(self.model(images), labels)


task = Task().to("cuda")
optimizer = torch.optim.SGD(task.parameters(), lr=1e-2)
data = TensorDataset(torch.randn(512, 16, 64, 64), torch.randint(0, 10, (512,)))
for _epoch in range(10_000):
    for images, labels in DataLoader(data, batch_size=64, shuffle=True):
        optimizer.zero_grad()
        task(images.cuda(), labels.cuda()).backward()
        optimizer.step()
