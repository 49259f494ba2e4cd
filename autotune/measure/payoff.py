"""When a slower start has paid for itself."""

from __future__ import annotations

import math


def samples_to_pay(extra_start_s: float, *, rate: float, rate_before: float) -> float:
    """Samples after which a start that takes longer, with a higher rate from then on, is ahead.

    Args:
        extra_start_s: How much longer the start takes.
        rate: Samples per second after it.
        rate_before: Samples per second of the way that starts at once.

    Returns:
        0 where the start takes no longer; infinity where the rate is not higher, so that it never pays.

    Raises:
        ValueError: When a rate is not finite and positive.
    """
    for value in (rate, rate_before):
        if not 0 < value < math.inf:
            raise ValueError(f"a rate must be finite and positive, not {value!r}")
    if extra_start_s <= 0:
        return 0.0
    return extra_start_s / (1 / rate_before - 1 / rate) if rate > rate_before else math.inf
