"""Memory and peak arithmetic of well-known devices, by the makers' data sheets.

Peaks are for dense matrices, with sums in fp32. Longer names come first: a device's name may contain several names.
"""

from __future__ import annotations

from dataclasses import dataclass

from autotune.settings import Precision

GIB = 1024**3


@dataclass(frozen=True, kw_only=True, slots=True)
class Card:
    """One kind of device; peaks are in 10^12 operations per second, 0 without support of the number format."""

    name: str
    """Name for `--card`."""
    memory_bytes: int
    half: float
    """fp16, and bf16 where supported."""
    tf32: float
    fp32: float
    source: str
    """Document of the maker with the peaks."""
    has_bf16: bool = True

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
    Card(
        name="b200",
        memory_bytes=180 * GIB,
        half=2250.0,
        tf32=1125.0,
        fp32=75.0,
        source="HGX B200 data sheet: an eighth of the board's figures, halved for dense matrices",
    ),
    Card(
        name="h200",
        memory_bytes=141 * GIB,
        half=989.4,
        tf32=494.7,
        fp32=66.9,
        source="H200 data sheet, SXM: half of the figures with sparsity",
    ),
    Card(
        name="h100-nvl",
        memory_bytes=94 * GIB,
        half=835.0,
        tf32=417.5,
        fp32=60.0,
        source="H100 NVL product brief: half of the figures with sparsity",
    ),
    Card(
        name="h100-pcie",
        memory_bytes=80 * GIB,
        half=756.0,
        tf32=378.0,
        fp32=51.0,
        source="H100 data sheet, PCIe: half of the figures with sparsity",
    ),
    Card(
        name="h100",
        memory_bytes=80 * GIB,
        half=989.4,
        tf32=494.7,
        fp32=66.9,
        source="H100 data sheet, SXM: half of the figures with sparsity",
    ),
    Card(name="a100-40gb", memory_bytes=40 * GIB, half=312.0, tf32=156.0, fp32=19.5, source="A100 data sheet"),
    Card(name="a100", memory_bytes=80 * GIB, half=312.0, tf32=156.0, fp32=19.5, source="A100 data sheet"),
    Card(name="a40", memory_bytes=48 * GIB, half=149.7, tf32=74.8, fp32=37.4, source="A40 data sheet"),
    Card(name="a30", memory_bytes=24 * GIB, half=165.0, tf32=82.0, fp32=10.3, source="A30 data sheet"),
    Card(name="a10", memory_bytes=24 * GIB, half=125.0, tf32=62.5, fp32=31.2, source="A10 data sheet"),
    Card(name="l40s", memory_bytes=48 * GIB, half=362.0, tf32=183.0, fp32=91.6, source="L40S data sheet"),
    Card(name="l40", memory_bytes=48 * GIB, half=181.0, tf32=90.5, fp32=90.5, source="L40 data sheet"),
    Card(
        name="l4",
        memory_bytes=24 * GIB,
        half=121.0,
        tf32=60.0,
        fp32=30.3,
        source="L4 data sheet: half of the figures with sparsity",
    ),
    Card(
        name="rtx5090",
        memory_bytes=32 * GIB,
        half=209.5,
        tf32=104.8,
        fp32=104.8,
        source="RTX Blackwell architecture paper, with sums in fp32",
    ),
    Card(
        name="rtx4090",
        memory_bytes=24 * GIB,
        half=165.2,
        tf32=82.6,
        fp32=82.6,
        source="Ada architecture paper, with sums in fp32",
    ),
    Card(
        name="rtx3090",
        memory_bytes=24 * GIB,
        half=71.0,
        tf32=35.6,
        fp32=35.6,
        source="GA102 architecture paper, with sums in fp32",
    ),
    Card(
        name="v100-32gb",
        memory_bytes=32 * GIB,
        half=125.0,
        tf32=0.0,
        fp32=15.7,
        has_bf16=False,
        source="V100 data sheet, SXM2",
    ),
    Card(
        name="v100",
        memory_bytes=16 * GIB,
        half=125.0,
        tf32=0.0,
        fp32=15.7,
        has_bf16=False,
        source="V100 data sheet, SXM2",
    ),
    Card(name="t4", memory_bytes=16 * GIB, half=65.0, tf32=0.0, fp32=8.1, has_bf16=False, source="T4 data sheet"),
)
"""fp32 stands for tf32 on data sheets with a single figure."""


def card_of(device: str) -> Card | None:
    """The card of a device's name, such as `NVIDIA H100 80GB HBM3`; None for other devices."""
    words = device.lower().replace("geforce ", "").replace("rtx ", "rtx").replace("-", " ").split()
    for card in CARDS:
        if all(part in words for part in card.name.split("-")):
            return card
    return None
