"""A small model on made-up data, as anybody would write it; the argument names what goes wrong in a worker."""

import os
import signal
import sys
import time

import torch
from torch.utils.data import DataLoader, Dataset

HOW = sys.argv[1] if len(sys.argv) > 1 else ""


class Points(Dataset):
    def __len__(self):
        return 4000

    def __getitem__(self, index):
        in_worker = torch.utils.data.get_worker_info() is not None
        if in_worker and HOW == "kills_worker" and index > 200:
            os.kill(os.getpid(), signal.SIGKILL)
        if in_worker and HOW == "hangs_worker":
            time.sleep(600)
        return torch.randn(16), index % 3


def main():
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    os.makedirs("runs", exist_ok=True)
    for epoch in range(50):
        for inputs, targets in DataLoader(Points(), batch_size=16, shuffle=HOW != "kills_worker", num_workers=2):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(inputs), targets)
            loss.backward()
            if HOW == "memory":
                raise MemoryError
            optimizer.step()
            torch.save(model.state_dict(), "runs/last.pt")
        with open("runs/log.txt", "a") as log:
            log.write(f"{epoch} {loss.item()}\n")


if __name__ == "__main__":
    main()
