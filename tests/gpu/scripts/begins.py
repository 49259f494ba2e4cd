"""Asks for a device in its first lines, as most scripts do, and takes a while before it trains on it."""

import sys
import time

import torch
from torch.cuda import device_count
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(3)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
num_devices = torch.cuda.device_count()
if hasattr(torch, "accelerator") and torch.accelerator.device_count() != num_devices:
    sys.exit("two answers")
if "--asks-name" in sys.argv:
    print(f"trains on a {torch.cuda.get_device_name(0)}")
time.sleep(0.5)
inputs, targets = torch.randn(4096, 64), torch.randint(0, 10, (4096,))
loader = DataLoader(TensorDataset(inputs, targets), batch_size=64, shuffle=True)
model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
print(f"{num_devices} of {device_count()} devices, trains on {next(model.parameters()).device}", flush=True)
for _epoch in range(10_000):
    for batch, labels in loader:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(batch.to(device)), labels.to(device)).backward()
        optimizer.step()
