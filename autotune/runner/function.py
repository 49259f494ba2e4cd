"""A runner over any callable from settings to a measurement: simulations, recorded grids, other people's benchmarks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from autotune.model.facts import ScriptFacts
from autotune.model.job import Mode, TrialJob
from autotune.model.outcome import Outcome
from autotune.model.result import Measurement, ProbeResult, TrialResult
from autotune.settings import Settings

DEFAULT_HALF_WIDTH_RATIO = 0.02


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """What a callable says of settings."""

    samples_per_second: float | None
    """None = out of memory."""
    peak_memory_bytes: int | None = None
    half_width_ratio: float = DEFAULT_HALF_WIDTH_RATIO
    """Half the width of the rate's interval, relative to the rate."""
    compute_samples_per_second: float | None = None
    data_wait_fraction: float = 0.0


class FunctionRunner:
    """Answers from a callable at once.

    Args:
        measure: Called with the settings of a trial.
        facts: What a probe says of the imagined script.
    """

    def __init__(self, measure: Callable[[Settings], Measured], facts: ScriptFacts) -> None:
        self._measure = measure
        self._facts = facts

    def start(self, job: TrialJob) -> FunctionRun:
        """Evaluates the callable; the run is over when this returns."""
        if job.mode in (Mode.PROBE, Mode.SPLIT_PROBE):
            return FunctionRun(ProbeResult(facts=self._facts), None)
        assert job.settings is not None
        return FunctionRun(None, _result(self._measure(job.settings), job))


class FunctionRun:
    """A run that was over before it was asked."""

    def __init__(self, probe: ProbeResult | None, trial: TrialResult | None) -> None:
        self._probe, self._trial = probe, trial

    def poll(self) -> bool:
        """Always over."""
        return True

    def cancel(self) -> None:
        """Too late: it is over."""

    def result(self) -> TrialResult:
        """The result of a trial."""
        if self._trial is None:
            raise ValueError("this run was a probe")
        return self._trial

    def probe_result(self) -> ProbeResult:
        """The result of a probe."""
        if self._probe is None:
            raise ValueError("this run was a trial")
        return self._probe


def _result(measured: Measured, job: TrialJob) -> TrialResult:
    peak = measured.peak_memory_bytes
    if measured.samples_per_second is None:
        return TrialResult(outcome=Outcome.OUT_OF_MEMORY, reason="It ran out of memory.", peak_memory_bytes=peak)
    if peak is not None and peak > job.cap_bytes:
        return TrialResult(outcome=Outcome.OVER_CAP, reason="It held more than the cap.", peak_memory_bytes=peak)
    rate, half = measured.samples_per_second, measured.half_width_ratio
    measurement = Measurement(
        samples_per_second=rate,
        low=max(0.0, rate * (1 - half)),
        high=rate * (1 + half),
        is_converged=True,
        is_nonstationary=False,
        is_primed=False,
        num_blocks=8,
        window_s=1.0,
        data_wait_fraction=measured.data_wait_fraction,
        compute_samples_per_second=measured.compute_samples_per_second,
    )
    return TrialResult(outcome=Outcome.OK, measurement=measurement, peak_memory_bytes=peak, start="function")
