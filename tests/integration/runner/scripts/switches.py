"""Trains on made-up images for ever, and says what is in force when that changes; the argument names what is odd."""

import sys
import threading
import time

import torch
from torch.utils.data import DataLoader, Dataset

HOW = sys.argv[1] if len(sys.argv) > 1 else ""


class Images(Dataset):
    def __len__(self):
        return 512

    def __getitem__(self, index):
        return torch.randn(3, 8, 8, generator=torch.Generator().manual_seed(index)), index % 10


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.Conv2d(8, 16, 3, padding=1)
        self.head = torch.nn.Linear(16, 10)

    def forward(self, x):
        self.sees = (len(x), x.is_contiguous(memory_format=torch.channels_last), torch.is_autocast_enabled("cpu"))
        if HOW == "fails_in_bf16" and torch.is_autocast_enabled("cpu"):
            raise ArithmeticError("no such number")
        return self.head(torch.relu(self.second(torch.relu(self.first(x)))).mean((2, 3)))


def read_ahead(loader):
    """Batches that another thread takes from the loader."""
    import queue

    ready = queue.Queue(2)

    def read():
        while True:
            for batch in loader:
                ready.put(batch)

    threading.Thread(target=read, daemon=True).start()
    while True:
        yield ready.get()


def wrap_iterations():
    """Wraps torch's function after the trial has wrapped it, as a library might."""
    original = DataLoader.__iter__
    DataLoader.__iter__ = lambda loader: original(loader)


def replace_compile():
    """Replaces torch's function, as Lightning does when it is imported."""
    original = torch.compile
    torch.compile = lambda *args, **kwargs: original(*args, **kwargs)


def refuse_mixed_layouts(optimizer, args, kwargs):
    """Fails as fused kernels do when weights and the optimizer's state lie in memory differently."""
    for weight, state in optimizer.state.items():
        if state["momentum_buffer"].stride() != weight.stride():
            raise RuntimeError("weights and state have different layouts")


def main():
    torch.manual_seed(0)
    model, number, said = Model(), 0, None
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    loader = DataLoader(Images(), batch_size=16, shuffle=True)
    if HOW == "has_fused_kernels":
        optimizer.register_step_pre_hook(refuse_mixed_layouts)
    if HOW == "wraps":
        wrap_iterations()
    if HOW == "replaces_compile":
        replace_compile()
    size = 16
    while True:
        for x, y in read_ahead(loader) if HOW == "reads_ahead" else loader:
            if HOW == "swells" and len(x) != size:
                size, held = len(x), torch.ones(80_000_000)
                time.sleep(0.5)
                del held
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
            number += 1
            if HOW == "ends" and number == 1500:
                return
            weight = model.second.weight
            state = optimizer.state[weight].get("momentum_buffer", weight)
            layouts = {t.is_contiguous(memory_format=torch.channels_last) for t in (weight, state)}
            threads = torch.get_num_threads()
            says = (*model.sees, *layouts, f"threads={threads}", f"workers={loader.num_workers}")
            if says != said:
                print("sees", *says, flush=True)
            said = says
            time.sleep(0.0005)


if __name__ == "__main__":
    main()
