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
if "--chooses" in sys.argv:  # As the Hugging Face Trainer's arguments do, before there is a model.
    torch.cuda.set_device(torch.device("cuda:0"))
    print(f"bf16: {torch.cuda.is_bf16_supported()}, capability {torch.cuda.get_device_capability()}")
    print(f"major {torch.cuda.get_device_properties(torch.cuda.current_device()).major}")
time.sleep(0.5)
if "--chooses" in sys.argv:
    print(f"CUDA is on: {torch.cuda.is_initialized()}")
    model = torch.nn.Linear(2, 2).to("cuda")
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
