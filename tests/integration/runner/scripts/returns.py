"""Worker processes send back what this file defines, and it trains in ranks of its own."""

import multiprocessing
import os
import pickle
from concurrent.futures import ProcessPoolExecutor

import pretend
import torch
import torch.distributed as dist


class Thing:
    def __init__(self, number):
        self.number = number


def twice(thing):
    return Thing(2 * thing.number)


def work(rank, path):
    dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=2)
    total = torch.full((1000,), rank + 1.0)
    dist.all_reduce(total)
    if rank == 0:
        print("sum", total[0].item())
    dist.barrier()
    dist.destroy_process_group()


def main():
    for method in ("spawn", "fork", "forkserver"):
        with multiprocessing.get_context(method).Pool(1) as pool:
            print(method, [thing.number for thing in pool.map(twice, [Thing(1), Thing(2)])])
    with ProcessPoolExecutor(1) as pool:
        print([thing.number for thing in pool.map(twice, [Thing(3)])])
    print(pickle.loads(pickle.dumps(Thing(4))).number)
    torch.multiprocessing.spawn(work, args=(os.path.abspath("rendezvous"),), nprocs=2)
    pretend.report()


if __name__ == "__main__":
    main()
