"""A small network on JPEG images that PIL decodes in the training process, as slow as can be."""

import io

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset


class Pictures(Dataset):
    """The same images again and again, each cut at random."""

    def __init__(self):
        rng = np.random.default_rng(0)
        self.encoded = []
        for _ in range(16):
            file = io.BytesIO()
            Image.fromarray(rng.integers(0, 256, (375, 500, 3), dtype=np.uint8)).save(file, "JPEG")
            self.encoded.append(file.getvalue())

    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        pixels = np.array(Image.open(io.BytesIO(self.encoded[index % 16])).convert("RGB"))
        top = int(torch.randint(0, 375 - 224, (1,)))
        return torch.from_numpy(pixels[top : top + 224, :224]).permute(2, 0, 1).contiguous(), index % 10


model = torch.nn.Sequential(
    torch.nn.Conv2d(3, 32, 3, stride=4),
    torch.nn.ReLU(),
    torch.nn.AdaptiveAvgPool2d(1),
    torch.nn.Flatten(),
    torch.nn.Linear(32, 10),
).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for inputs, targets in DataLoader(Pictures(), batch_size=32, shuffle=True):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(inputs.cuda().float() / 255), targets.cuda()).backward()
    optimizer.step()
