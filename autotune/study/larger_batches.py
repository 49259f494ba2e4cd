"""Measures the gain of a larger effective batch, without changing the batch of the search."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from autotune.model.facts import ScriptFacts
from autotune.search.history import FinishedTrial
from autotune.settings import Settings
from autotune.spec import SearchSpec
from autotune.study.budget import Budget

FACTORS = (2, 4)
LEAST_GAIN = 0.05
"""Least gain worth a change of the learning rate."""
LEAST_TRIALS = 4
"""Fewest trials of a search before the batch is probed: a shorter search has no time."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchGain:
    """The compute-only rate of a larger effective batch."""

    factor: int
    effective_batch: int
    ratio: float
    """Rate relative to the rate of the script's own batch."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchProbe:
    """Probes larger batches after the trials of a search; the probes are no trials.

    Args:
        spec: The search.
        facts: Facts of the probe.
        budget: Time of the search.
        fits: Whether settings are likely to stay under the memory cap.
        compute_rate: Measures the compute-only rate of settings with a batch `factor` times as large.
        is_stopped: Whether the user asked to stop.
    """

    spec: SearchSpec
    facts: ScriptFacts
    budget: Budget
    fits: Callable[[Settings], bool]
    compute_rate: Callable[[Settings, int], float | None]
    is_stopped: Callable[[], bool]

    def run(self, best: FinishedTrial | None, num_trials: int) -> tuple[BatchGain, ...]:
        """Rates at twice and four times the batch under the best settings, as far as memory and time allow.

        A gain counts only beside a second measurement of the batch as it is, and against the faster of the two: the
        speed of a machine may have changed since the best trial. The time of the finals is kept. A failed measurement
        is left out silently: some scripts take no other batch.
        """
        if best is None or num_trials < LEAST_TRIALS or self.spec.effective_batch != "fixed":
            return ()
        batch, base = best.settings.effective_batch(), best.compute_samples_per_second
        size = best.settings.batch_size
        if "several_loaders" in self.facts.notes:
            return ()  # The batches of one of them would be larger.
        if self.facts.loader is None or batch is None or size is None or not base:
            return ()
        rates = self._rates(best.settings, size)
        if max(rates.values(), default=0.0) < (1 + LEAST_GAIN) * base:
            return ()
        again = self._rate_again(best.settings)
        if again is None:
            return ()
        own = batch * self.facts.world_size
        return tuple(
            BatchGain(factor=factor, effective_batch=factor * own, ratio=rate / max(base, again))
            for factor, rate in rates.items()
        )

    def _rates(self, settings: Settings, size: int) -> dict[int, float]:
        """Measured rates by factor."""
        rates: dict[int, float] = {}
        for factor in FACTORS:
            if self.is_stopped() or not self.budget.affords_larger_batch(settings):
                break
            if not self.fits(replace(settings, batch_size=factor * size)):
                break
            rate = self.compute_rate(settings, factor)
            if rate is None:
                break
            rates[factor] = rate
        return rates

    def _rate_again(self, settings: Settings) -> float | None:
        """Rate of the batch as it is, measured after the larger ones; None without time, and after a failure."""
        if self.is_stopped() or not self.budget.affords_same_batch(settings):
            return None
        return self.compute_rate(settings, 1)


def describe(gains: Sequence[BatchGain], *, can_search: bool = True) -> str:
    """The gains as one note for the user; empty without a notable gain.

    Args:
        gains: The rates at larger batches.
        can_search: True when a search may choose the effective batch of this script.
    """
    best = max(gains, key=lambda gain: gain.ratio, default=None)
    if best is None or best.ratio < 1 + LEAST_GAIN:
        return ""
    own = best.effective_batch // best.factor
    others = [f"{gain.factor}x {gain.ratio - 1:+.0%}" for gain in gains if gain is not best]
    beside = f" ({', '.join(others)})" if others else ""
    how = (
        f"--effective-batch {own}..{best.effective_batch}"
        if can_search
        else "such a batch in the script's own settings"
    )
    return (
        f"At {best.factor}x the batch your device would do {best.ratio - 1:+.0%}, by its compute alone{beside}. "
        f"If training allows it: {how}, and another learning rate: as a rule "
        f"{best.factor} times as large for SGD, with a warm-up, {best.factor**0.5:.3g} times for Adam and its kin. "
        "Check what the model reaches in the end."
    )
