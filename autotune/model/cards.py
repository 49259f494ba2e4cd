"""Memory and peak arithmetic of well-known devices, by the makers' data sheets.

Peaks are for dense matrices, with sums in fp32. Longer names come first: a device's name may contain several names.
"""

from __future__ import annotations

from dataclasses import dataclass

from autotune.settings import Precision

GIB = 1024**3


@dataclass(frozen=True, slots=True)
class Card:
    """One kind of device; peaks are in 10^12 operations per second, 0 without support of the number format."""

    name: str
    """Name for `--card`."""
    memory_gib: int
    half: float
    """fp16, and bf16 where supported."""
    tf32: float
    fp32: float
    source: str
    """Document of the maker with the peaks."""
    has_bf16: bool = True

    @property
    def memory_bytes(self) -> int:
        """Memory of the device."""
        return self.memory_gib * GIB

    def peak_tflops(self, precision: Precision) -> float | None:
        """The peak for a number format; None if the device does not support the format."""
        peaks = {
            Precision.FP16: self.half,
            Precision.BF16: self.half if self.has_bf16 else 0.0,
            Precision.TF32: self.tf32,
            Precision.FP32: self.fp32,
        }
        return peaks.get(precision) or None


CARDS = (
    Card("b200", 180, 2250.0, 1125.0, 75.0, "HGX B200 data sheet: an eighth of the board, halved for dense matrices"),
    Card("h200", 141, 989.4, 494.7, 66.9, "H200 data sheet, SXM: half of the figures with sparsity"),
    Card("h100-nvl", 94, 835.0, 417.5, 60.0, "H100 NVL product brief: half of the figures with sparsity"),
    Card("h100-pcie", 80, 756.0, 378.0, 51.0, "H100 data sheet, PCIe: half of the figures with sparsity"),
    Card("h100", 80, 989.4, 494.7, 66.9, "H100 data sheet, SXM: half of the figures with sparsity"),
    Card("a100-40gb", 40, 312.0, 156.0, 19.5, "A100 data sheet"),
    Card("a100", 80, 312.0, 156.0, 19.5, "A100 data sheet"),
    Card("a40", 48, 149.7, 74.8, 37.4, "A40 data sheet"),
    Card("a30", 24, 165.0, 82.0, 10.3, "A30 data sheet"),
    Card("a10", 24, 125.0, 62.5, 31.2, "A10 data sheet"),
    Card("l40s", 48, 362.0, 183.0, 91.6, "L40S data sheet"),
    Card("l40", 48, 181.0, 90.5, 90.5, "L40 data sheet"),
    Card("l4", 24, 121.0, 60.0, 30.3, "L4 data sheet: half of the figures with sparsity"),
    Card("rtx5090", 32, 209.5, 104.8, 104.8, "RTX Blackwell architecture paper, with sums in fp32"),
    Card("rtx4090", 24, 165.2, 82.6, 82.6, "Ada architecture paper, with sums in fp32"),
    Card("rtx3090", 24, 71.0, 35.6, 35.6, "GA102 architecture paper, with sums in fp32"),
    Card("v100-32gb", 32, 125.0, 0.0, 15.7, "V100 data sheet, SXM2", has_bf16=False),
    Card("v100", 16, 125.0, 0.0, 15.7, "V100 data sheet, SXM2", has_bf16=False),
    Card("t4", 16, 65.0, 0.0, 8.1, "T4 data sheet", has_bf16=False),
)
"""Columns: name, memory in GiB, peaks for half, tf32 and fp32, source.

fp32 stands for tf32 on data sheets with a single figure.
"""


def card_of(device: str) -> Card | None:
    """The card of a device's name, such as `NVIDIA H100 80GB HBM3`; None for other devices."""
    words = device.lower().replace("geforce ", "").replace("rtx ", "rtx").replace("-", " ").split()
    for card in CARDS:
        if all(part in words for part in card.name.split("-")):
            return card
    return None
