"""Computes on batches that are copied to the device in both ways, and says what the device did at the same time."""

import json

import torch
from torch.profiler import ProfilerActivity, profile

from autotune.api.device_batches import DeviceBatches
from autotune.trial.observing.device_times import COPY, ON_DEVICE, covered_s

NUM_BATCHES, SIDE, PRODUCTS_PER_BATCH = 12, 4096, 4


def watched(stream_prefetch):
    """One pass: the share of copying in which something was computed, the peak, whether all batches came whole."""
    loader = DeviceBatches(batches, device, non_blocking=True, stream_prefetch=stream_prefetch)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    are_whole = []
    with profile(activities=[ProfilerActivity.CUDA]) as recorded:
        for batch, number in loader:
            are_whole.append((batch == number).all())
            for _ in range(PRODUCTS_PER_BATCH):
                torch.mm(batch, matrix, out=product)
        torch.cuda.synchronize()
    copies, kernels = [], []
    for event in recorded.events():
        if event.device_type.name == ON_DEVICE and event.time_range.end > event.time_range.start:
            span = event.time_range.start / 1e6, event.time_range.end / 1e6
            (copies if f"{COPY} HtoD" in event.name else kernels).append(span)
    copying_s = covered_s(copies)
    return {
        "num_copies": len(copies),
        "share": (copying_s + covered_s(kernels) - covered_s(copies + kernels)) / copying_s,
        "peak_bytes": torch.cuda.max_memory_allocated(),
        "are_whole": [bool(is_whole) for is_whole in are_whole],
    }


def is_safe_after_a_break():
    """Whether memory of a batch that was on its way when the loop was left keeps what is written to it next."""
    for _ in range(10):
        for _batch in DeviceBatches(batches, device, non_blocking=True, stream_prefetch=True):
            break
        del _batch
        others = [torch.full((SIDE, SIDE), -1.0, device=device) for _ in range(3)]
        if not all(bool((other == -1.0).all()) for other in others):
            return False
    return True


device = torch.device("cuda")
matrix = torch.randn(SIDE, SIDE, device=device)
product = torch.mm(matrix, matrix)
batches = [(torch.full((SIDE, SIDE), float(number)).pin_memory(), number) for number in range(NUM_BATCHES)]
said = {"plain": watched(False), "ahead": watched(True), "is_safe_after_a_break": is_safe_after_a_break()}
print(json.dumps({**said, "batch_bytes": batches[0][0].nbytes}))
