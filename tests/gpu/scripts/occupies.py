"""Another user of the device: holds 2 GiB and computes; one more GiB with every line that it is sent."""

import sys

import torch

held = [torch.zeros(2 << 30, dtype=torch.uint8, device="cuda")]
torch.cuda.synchronize()
print("ready", flush=True)
for _line in sys.stdin:
    held.append(torch.zeros(1 << 30, dtype=torch.uint8, device="cuda"))
    torch.cuda.synchronize()
    print("grown", flush=True)
