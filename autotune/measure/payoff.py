"""The number of samples after which a slower start has paid for itself."""

from __future__ import annotations

import math


def samples_to_pay(extra_start_s: float, *, rate: float, rate_before: float) -> float:
    """Samples after which a start that takes longer, but leads to a higher rate, is ahead.

    Args:
        extra_start_s: How much longer the start takes.
        rate: Samples per second after the longer start.
        rate_before: Samples per second after the shorter start.

    Returns:
        0 when the start takes no longer; infinity when the rate is not higher, because it never pays.

    Raises:
        ValueError: When a rate is not finite and positive.
    """
    for value in (rate, rate_before):
        if not 0 < value < math.inf:
            raise ValueError(f"a rate must be finite and positive, not {value!r}")
    if extra_start_s <= 0:
        return 0.0
    return extra_start_s / (1 / rate_before - 1 / rate) if rate > rate_before else math.inf
