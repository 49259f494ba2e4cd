"""Takes so many bytes of the device, then waits."""

import sys
import time

import torch

held = []
for _ in range(int(sys.argv[1]) >> 28):
    held.append(torch.zeros(1 << 28, dtype=torch.uint8, device="cuda"))
    torch.cuda.synchronize()
    time.sleep(0.02)
print("held", flush=True)
time.sleep(600)
