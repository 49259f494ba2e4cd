"""`cudnn_benchmark_limit`: algorithms that cuDNN times for each convolution."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from autotune.settings.cudnn_benchmark import SETTING as BENCHMARK
from autotune.settings.setting import Features, Group, Memory, OwnLine, Setting

if TYPE_CHECKING:
    from autotune.settings.data_type import Settings

DEFAULT_LIMIT = 10
"""Default of torch."""
ALL = 0
"""Every algorithm is timed."""


def _write(value: Any) -> None:
    import torch

    torch.backends.cudnn.benchmark_limit = value


def _read() -> int | None:
    """The value in force; None in a torch without the switch."""
    import torch

    value = getattr(torch.backends.cudnn, "benchmark_limit", None)
    return None if value is None else int(value)


def _features(own: Settings) -> tuple[float, ...]:
    if not own.cudnn_benchmark or own.cudnn_benchmark_limit == DEFAULT_LIMIT:
        return (0.0,)
    return (1.0 if own.cudnn_benchmark_limit == ALL else math.log10(own.cudnn_benchmark_limit / DEFAULT_LIMIT),)


SETTING = Setting(
    name="cudnn_benchmark_limit",
    group=Group.KERNELS,
    default=DEFAULT_LIMIT,
    takes_effect="once, before the first step",
    left_alone="on a CPU; without `cudnn_benchmark`; no convolution; deterministic kernels",
    domain=(DEFAULT_LIMIT, ALL),
    bounds=(0, 1000),
    most_searched=1000,
    needs_accelerator=True,
    is_inert=lambda own: not own.cudnn_benchmark,
    pointless=BENCHMARK.pointless,
    memory=Memory.EITHER,
    features=Features(compute=_features),
    write=_write,
    is_written_again=True,
    read=_read,
    own_lines=(OwnLine.PREPARE,),
    by_hand="set torch.backends.cudnn.benchmark_limit",
)
