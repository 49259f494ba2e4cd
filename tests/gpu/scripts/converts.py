"""A pinned loader whose workers convert tensors and call a module, on a device that has started before them."""

import sys

import torch
from torch.utils.data import DataLoader, Dataset


class Photos(Dataset):
    transform = torch.nn.Sequential(torch.nn.Conv2d(3, 3, 3, padding=1))

    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        image = torch.full((3, 32, 32), index % 255, dtype=torch.uint8).to(torch.float32)
        made = self.transform(image[None])[0].detach()
        assert made.dtype == torch.float32, f"a worker computes in {made.dtype}"
        return made


def train(method):
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.Flatten(), torch.nn.Linear(7200, 10)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    loader = DataLoader(Photos(), batch_size=32, num_workers=2, pin_memory=True, multiprocessing_context=method)
    while True:
        for images in loader:
            loss = model(images.to("cuda")).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    train(sys.argv[1])
