"""A runner over any callable from settings to a measurement: simulations, other people's benchmarks.

    FunctionRunner(lambda settings: 100.0 * (1 + settings.num_workers), facts)

is a runner like any other, for whatever works with runners and jobs. To search a callable, `search_function` of
`autotune.lab.function_search` needs neither jobs nor facts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from autotune.model.facts import ScriptFacts
from autotune.model.outcome import Outcome
from autotune.model.result import Measurement, ProbeResult, StartKind, TrialResult
from autotune.protocol.job import Mode, TrialJob
from autotune.settings import Settings

DEFAULT_HALF_WIDTH_RATIO = 0.02


class OutOfMemoryError(MemoryError):
    """What a callable raises for settings that do not fit; MemoryError and torch's own error mean the same.

    Args:
        message: Why, as one sentence.
        peak_memory_bytes: What the settings needed at least, where that is known; a search learns from it.
    """

    def __init__(self, message: str = "It ran out of memory.", *, peak_memory_bytes: int | None = None) -> None:
        super().__init__(message)
        self.peak_memory_bytes = peak_memory_bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """What a callable says of settings."""

    samples_per_second: float | None
    """None = out of memory."""
    peak_memory_bytes: int | None = None
    """Compared with the cap; None = not known."""
    half_width_ratio: float = DEFAULT_HALF_WIDTH_RATIO
    """Half the width of the rate's interval, relative to the rate."""
    compute_samples_per_second: float | None = None
    """Rate without the loader: lets a search see what more workers can bring."""
    data_wait_fraction: float = 0.0
    """Share of the time spent waiting for data, 0 to 1."""


Answer = float | Measured | TrialResult
"""What a callable may say of settings: samples per second, or more."""


class FunctionRunner:
    """Answers from a callable at once.

    Args:
        measure: Called with the settings of a trial; see `evaluate`.
        facts: What a probe says of the imagined script.
    """

    def __init__(self, measure: Callable[[Settings], Answer], facts: ScriptFacts) -> None:
        self._measure = measure
        self._facts = facts

    def start(self, job: TrialJob) -> FinishedRun:
        """Evaluates the callable; the run is over when this returns."""
        if job.mode in (Mode.PROBE, Mode.SPLIT_PROBE):
            return FinishedRun(ProbeResult(facts=self._facts), None)
        assert job.request.settings is not None
        return FinishedRun(None, evaluate(self._measure, job.request.settings, job.cap_bytes))


class FinishedRun:
    """A run that was over before it was asked."""

    def __init__(self, probe: ProbeResult | None, trial: TrialResult | None) -> None:
        self._probe, self._trial = probe, trial

    def poll(self) -> bool:
        """Always over."""
        return True

    def gauges(self) -> None:
        """Nothing: nobody looked."""

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


def evaluate(function: Callable[[Settings], Answer], settings: Settings, cap_bytes: int) -> TrialResult:
    """What a callable says of settings, as the result of a trial under a cap.

    A callable that raises MemoryError (`OutOfMemoryError` with the peak, or torch's of that name) ran out of memory.
    Any other exception is its author's, and goes through. Figures that no training has raise ValueError.
    """
    try:
        answer = function(settings)
    except Exception as error:
        if not isinstance(error, MemoryError) and type(error).__name__ != OutOfMemoryError.__name__:
            raise
        reason = str(error).strip().splitlines()[0] if str(error).strip() else "It ran out of memory."
        peak = getattr(error, "peak_memory_bytes", None)
        return TrialResult(
            outcome=Outcome.OUT_OF_MEMORY, reason=reason, peak_memory_bytes=peak, start=StartKind.FUNCTION
        )
    if isinstance(answer, TrialResult):
        return answer
    return _result(answer if isinstance(answer, Measured) else Measured(samples_per_second=float(answer)), cap_bytes)


def _result(measured: Measured, cap_bytes: int) -> TrialResult:
    peak = measured.peak_memory_bytes
    if measured.samples_per_second is None:
        reason = "It ran out of memory."
        return TrialResult(
            outcome=Outcome.OUT_OF_MEMORY, reason=reason, peak_memory_bytes=peak, start=StartKind.FUNCTION
        )
    if peak is not None and peak > cap_bytes:
        reason = "It held more than the cap."
        return TrialResult(outcome=Outcome.OVER_CAP, reason=reason, peak_memory_bytes=peak, start=StartKind.FUNCTION)
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
    return TrialResult(outcome=Outcome.OK, measurement=measurement, peak_memory_bytes=peak, start=StartKind.FUNCTION)
