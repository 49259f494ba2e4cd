"""A small convolution network on made-up images, as anybody would write it; says once what is in force."""

import json
import math
import sys

import torch
from torch.utils.data import DataLoader, TensorDataset

SAYS_AT = 40
BATCH_SIZE = 64
HAS_OWN_FRACTION = sys.argv[1:2] == ["--own-fraction"]
ASKS_FIRST = sys.argv[1:2] == ["--asks-first"]

if ASKS_FIRST and not torch.cuda.is_available():
    sys.exit("CUDA is wanted")

model = torch.nn.Sequential(
    torch.nn.Conv2d(16, 64, 3),
    torch.nn.ReLU(),
    torch.nn.Conv2d(64, 64, 3),
    torch.nn.AdaptiveAvgPool2d(8),
    torch.nn.Flatten(),
    torch.nn.Linear(4096, 512),
    torch.nn.Linear(512, 10),
).cuda()
if HAS_OWN_FRACTION:
    torch.cuda.set_per_process_memory_fraction(0.9)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
images, labels = torch.randn(512, 16, 64, 64), torch.randint(0, 10, (512,))
in_flight, largest = [], [0.0]


def keeps_fp32():
    """Whether a product keeps bits that TF32 operands do not have."""
    fine = torch.full((512, 512), 1 + 2.0**-12, device="cuda")
    return bool((fine @ torch.eye(512, device="cuda") == fine).all())


def note_gradient(gradient):
    if step < SAYS_AT:
        value = float(gradient.abs().max())
        largest.append(value if math.isfinite(value) else 0.0)


def say(inputs, hidden):
    compiled = sys.modules.get("torch._dynamo.utils")
    said = {
        "is_pinned": inputs.is_pinned(),
        "is_copy_in_flight": sum(in_flight[-10:]) > 5,
        "is_channels_last": hidden.is_contiguous(memory_format=torch.channels_last),
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
        "num_graphs": compiled.counters["stats"]["unique_graphs"] if compiled else 0,
        "keeps_fp32": keeps_fp32(),
        "largest_gradient": max(largest),
        "is_expandable": any(segment["is_expandable"] for segment in torch.cuda.memory_snapshot()),
        "fraction": torch.cuda.get_per_process_memory_fraction(),
    }
    print("SAID " + json.dumps(said), flush=True)


model[-1].bias.register_hook(note_gradient)
step = 0
for _epoch in range(10_000):
    for inputs, targets in DataLoader(TensorDataset(images, labels), batch_size=BATCH_SIZE, shuffle=True):
        device_inputs = inputs.to("cuda")
        in_flight.append(not torch.cuda.current_stream().query())
        device_targets = targets.to("cuda")
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(device_inputs), device_targets)
        loss.backward()
        optimizer.step()
        step += 1
        if step == SAYS_AT:
            with torch.no_grad():
                say(inputs, model[0](device_inputs[:2]))
