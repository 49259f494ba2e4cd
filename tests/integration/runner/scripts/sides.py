"""Trains on two loaders side by side, and says how many workers build the batches of each."""

import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info


class Data(Dataset):
    """Samples with the number of workers that build them."""

    def __len__(self):
        return 4000

    def __getitem__(self, index):
        worker = get_worker_info()
        return torch.randn(4), worker.num_workers if worker is not None else 0


if __name__ == "__main__":
    labelled = DataLoader(Data(), batch_size=8, shuffle=True)
    unlabelled = DataLoader(Data(), batch_size=24, shuffle=True)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    said = None
    while True:
        for (first, workers), (second, others) in zip(labelled, unlabelled, strict=False):
            model(torch.cat([first, second])).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            seen = int(workers[0]), int(others[0])
            if seen != said:
                print("sees", *seen, flush=True)
            said = seen
