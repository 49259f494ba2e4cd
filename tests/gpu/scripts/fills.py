"""A neighbour on the device: takes all memory but so many bytes, and keeps it until its input ends."""

import sys

import torch

leave = int(sys.argv[1])
held = []
free = torch.cuda.mem_get_info()[0]
while free > leave:
    try:
        held.append(torch.zeros(min(1 << 30, max(2 << 20, free - leave)), dtype=torch.uint8, device="cuda"))
    except torch.OutOfMemoryError:
        break
    torch.cuda.synchronize()
    free = torch.cuda.mem_get_info()[0]
print(f"ready {free}", flush=True)
sys.stdin.read()
