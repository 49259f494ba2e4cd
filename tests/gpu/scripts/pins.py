"""Trains on large batches from workers, through page-locked memory, and says in which steps that memory grew."""

import torch
from torch.utils.data import DataLoader, Dataset

EDGE, BATCH_SIZE = 224, 32


class Images(Dataset):
    def __len__(self):
        return 64 * BATCH_SIZE * 64

    def __getitem__(self, index):
        return torch.full((3, EDGE, EDGE), index % 7 / 7), index % 10


def num_blocks():
    """Blocks of page-locked memory that torch has allocated so far."""
    return torch.cuda.host_memory_stats_as_nested_dict().get("num_host_alloc", 0)


model = torch.nn.Sequential(torch.nn.Conv2d(3, 32, 7, stride=4), torch.nn.Flatten(), torch.nn.LazyLinear(10)).cuda()
model(torch.zeros(1, 3, EDGE, EDGE, device="cuda"))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)  # The loss stays finite for thousands of steps.
latest = num_blocks()
step = 0
for _ in range(50):
    for images, labels in DataLoader(Images(), batch_size=BATCH_SIZE, num_workers=1, pin_memory=True):
        loss = torch.nn.functional.cross_entropy(model(images.cuda()), labels.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if num_blocks() != latest:
            latest = num_blocks()
            print("grew at step", step, flush=True)
