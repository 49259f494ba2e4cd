"""Saves and loads with torch, which opens some files by itself."""

import os

import torch

os.makedirs("out", exist_ok=True)
for number in range(2):
    torch.save({"w": torch.full((3,), float(number))}, "out/model.pt")
    torch.save({"w": torch.full((3,), float(number))}, f="kept.txt")
assert torch.load("out/model.pt")["w"][0] == 1
assert torch.load("kept.txt", mmap=True)["w"][0] == 1
scripted = torch.jit.script(torch.nn.Linear(2, 2))
scripted.save("out/script.pt")
torch.jit.save(scripted, "script.pt")
torch.jit.load("out/script.pt")
torch.jit.load("script.pt")
try:
    torch.save({}, "missing/model.pt")
except (OSError, RuntimeError):
    print("refused")
