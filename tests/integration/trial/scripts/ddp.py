"""Data-parallel training on the CPU: started by torchrun, or starting its own ranks."""

import argparse
import json
import os
import signal
import socket
import sys
import time

import torch
import torch.distributed
import torch.multiprocessing
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--spawn", type=int, default=0)
parser.add_argument("--fail", type=int, default=-1, help="rank that runs out of memory after a while")
parser.add_argument("--fail-at", type=int, default=20, help="step at which the rank runs out of memory")
parser.add_argument("--late-s", type=float, default=0.0, help="seconds that the rank waits before that")
parser.add_argument("--children", type=int, default=0, help="workers of the loader")
parser.add_argument(
    "--images", action="store_true", help="trains a convolution, whose gradients must lie as its weights"
)
parser.add_argument("--die", type=int, default=-1, help="rank that is killed after a while")
parser.add_argument("--epochs", type=int, default=10000)
parser.add_argument("--config", help="tuned config with the arguments of the wrapper")
parser.add_argument("--sharded", action="store_true", help="each rank has its share of the weights")
parser.add_argument("--uneven", action="store_true", help="rank 1 works a little longer on every step")
args = parser.parse_args()


def arguments_of_wrapper():
    if args.config is None:
        return {}
    import autotune

    return autotune.load(args.config).ddp_kwargs()


def train(rank, num_ranks):
    torch.distributed.init_process_group("gloo", rank=rank, world_size=num_ranks)
    torch.manual_seed(0)
    inputs = torch.randn(512, 4, 3, 3) if args.images else torch.randn(512, 4)
    data = TensorDataset(inputs, torch.randint(3, (512,)))
    sampler = DistributedSampler(data, num_replicas=num_ranks, rank=rank)
    loader = DataLoader(data, batch_size=8, sampler=sampler, num_workers=args.children)
    layers = torch.nn.Sequential(torch.nn.Conv2d(4, 3, 3), torch.nn.Flatten()) if args.images else torch.nn.Linear(4, 3)
    if args.sharded:
        from torch.distributed.fsdp import fully_shard

        model = fully_shard(torch.nn.Sequential(torch.nn.Linear(4, 64), torch.nn.ReLU(), torch.nn.Linear(64, 3)))
    else:
        model = DistributedDataParallel(layers, **arguments_of_wrapper())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    number = 0
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x), y).backward()
            for weight in model.parameters() if args.images else ():
                assert weight.grad.stride() == weight.stride(), (weight.grad.stride(), weight.stride())
            optimizer.step()
            number += 1
            if rank == args.fail and number == args.fail_at:
                time.sleep(args.late_s)
                raise MemoryError(f"rank {rank} has no more")
            if rank == args.die and number == 20:
                os.kill(os.getpid(), signal.SIGKILL)
            if args.uneven and rank == 1:
                time.sleep(0.002)
    if rank == 0:
        names = ("gradient_as_bucket_view", "static_graph", "bucket_bytes_cap")
        print(json.dumps({name: getattr(model, name) for name in names}))
        print(json.dumps([float(value) for weight in model.parameters() for value in weight.detach().flatten()]))
    # What torch's own threads have begun is let through: without that they abort one process in three at its end.
    torch.distributed.barrier()
    del model, optimizer
    torch.distributed.destroy_process_group()
    sys.stdout.flush()
    os._exit(0)  # torch's own threads abort one process in twenty while the interpreter ends, also without autotune


if __name__ == "__main__":
    if args.spawn:
        os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
        with socket.create_server(("127.0.0.1", 0)) as free:
            os.environ.setdefault("MASTER_PORT", str(free.getsockname()[1]))
        torch.multiprocessing.spawn(train, args=(args.spawn,), nprocs=args.spawn)
    else:
        train(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
