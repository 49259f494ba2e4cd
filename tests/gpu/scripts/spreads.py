"""Trains on the GPUs that it finds, in the way that its first argument names; ends after --steps N where given."""

import json
import os
import sys

import torch
from torch.utils.data import DataLoader, TensorDataset

HOW = sys.argv[1]
NUM_STEPS = int(sys.argv[sys.argv.index("--steps") + 1]) if "--steps" in sys.argv else 10**9


class Layers(torch.nn.Module):
    """Two layers on two devices."""

    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(64, 256).to("cuda:0"), torch.nn.Linear(256, 10).to("cuda:1")

    def forward(self, x):
        return self.second(self.first(x.to("cuda:0")).relu().to("cuda:1"))


def network():
    return torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))


def train(model, device, rank=0):
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    data = TensorDataset(torch.randn(1024, 64), torch.randint(0, 10, (1024,)))
    step = 0
    while True:
        for x, y in DataLoader(data, batch_size=32, shuffle=True):
            if step == NUM_STEPS:
                if rank == 0:
                    shown = os.environ.get("CUDA_VISIBLE_DEVICES")
                    print("SAID " + json.dumps({"num_devices": torch.cuda.device_count(), "shown": shown}), flush=True)
                return
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x.to(device)), y.to(device)).backward()
            optimizer.step()
            step += 1


def rank_of_spawn(rank, num_ranks):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29731")
    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
    torch.cuda.set_device(rank)
    torch.distributed.init_process_group("nccl", rank=rank, world_size=num_ranks)
    model = torch.nn.parallel.DistributedDataParallel(network().to(rank), device_ids=[rank])
    train(model, rank, rank)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    if HOW == "spawn":
        num_devices = torch.cuda.device_count()
        torch.multiprocessing.spawn(rank_of_spawn, (num_devices,), nprocs=num_devices)
    elif HOW == "layers":
        train(Layers(), "cuda:1")
    elif HOW == "data-parallel":
        train(torch.nn.DataParallel(network()).cuda(), "cuda")
    elif HOW == "second":
        train(network().to("cuda:1"), "cuda:1")
    else:
        train(network().cuda(), "cuda")
