"""A runner over any callable from settings to a measurement: simulations, other people's benchmarks.

    runner = FunctionRunner(lambda settings: 100.0 * (1 + settings.num_workers), facts)
    search(spec, on_event=print, open_runner=lambda workspace, device, facts=None: runner)    # autotune.study.searching

searches the callable as `autotune search` searches a script. `search_function` of `autotune.lab.function_search` needs
neither a script's facts nor a database.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from autotune.model.facts import LossReduction, ScriptFacts
from autotune.model.outcome import Outcome
from autotune.model.result import Measurement, ProbeResult, StartKind, TrialResult
from autotune.protocol.job import Mode, TrialJob
from autotune.settings import Settings

DEFAULT_HALF_WIDTH_RATIO = 0.02


class OutOfMemoryError(MemoryError):
    """Raised by a callable for settings that do not fit; MemoryError and torch's own error mean the same.

    Args:
        message: The reason, as one sentence.
        peak_memory_bytes: Least memory needed by the settings, in bytes, for the search to learn from; None = unknown.
    """

    def __init__(self, message: str = "It ran out of memory.", *, peak_memory_bytes: int | None = None) -> None:
        super().__init__(message)
        self.peak_memory_bytes = peak_memory_bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """A callable's answer for settings."""

    samples_per_second: float | None
    """None = out of memory."""
    peak_memory_bytes: int | None = None
    """Bytes to compare with the cap; None = unknown."""
    half_width_ratio: float = DEFAULT_HALF_WIDTH_RATIO
    """Half the width of the rate's interval, relative to the rate."""
    compute_samples_per_second: float | None = None
    """Rate without the loader: the limit of any gain by more workers; None = unknown."""
    data_wait_fraction: float = 0.0
    """Share of the time spent waiting for data, 0 to 1."""


Answer = float | Measured | TrialResult
"""A callable's answer for settings: samples per second, or more."""


class FunctionRunner:
    """Answers from a callable at once.

    Args:
        measure: Called with the settings of a trial; see `evaluate`.
        facts: Facts of the imagined script, for the probe.
    """

    def __init__(self, measure: Callable[[Settings], Answer], facts: ScriptFacts) -> None:
        self._measure = measure
        self._facts = facts

    def start(self, job: TrialJob) -> FinishedRun:
        """Evaluates the callable; the run is over when this returns."""
        if job.mode in (Mode.PROBE, Mode.SPLIT_PROBE):
            return FinishedRun(imagined_probe(job, self._facts), None)
        assert job.request.settings is not None
        return FinishedRun(None, evaluate(self._measure, job.request.settings, job.cap_bytes))

    def close(self) -> None:
        """Does nothing: no process is kept for later runs."""


class FinishedRun:
    """A run over from its start.

    Args:
        probe: Result of a probe; None for a trial.
        trial: Result of a trial; None for a probe.
    """

    def __init__(self, probe: ProbeResult | None, trial: TrialResult | None) -> None:
        self._probe, self._trial = probe, trial

    def poll(self) -> bool:
        """Whether the run is over: always."""
        return True

    def gauges(self) -> None:
        """None: no process to look at."""

    def cancel(self) -> None:
        """Does nothing: the run is over."""

    def result(self, *, profiles_to: Path | None = None) -> TrialResult:
        """The result of a trial; no profiles are written."""
        if self._trial is None:
            raise ValueError("this run was a probe")
        return self._trial

    def probe_result(self) -> ProbeResult:
        """The result of a probe."""
        if self._probe is None:
            raise ValueError("this run was a trial")
        return self._probe


def imagined_probe(job: TrialJob, facts: ScriptFacts) -> ProbeResult:
    """The probe of an imagined script: the facts, and for a batch in parts the losses of a script with these facts."""
    if job.mode is Mode.PROBE or facts.first_loss is None or job.request.settings is None:
        return ProbeResult(facts=facts)
    if facts.loss_reduction in (LossReduction.NO_TIME, LossReduction.FAILED):
        return ProbeResult(facts=None, is_time_spent=facts.loss_reduction is LossReduction.NO_TIME)
    num_parts = job.request.settings.grad_accum_steps
    if facts.loss_reduction in (LossReduction.MEAN, LossReduction.TOKEN_MEAN):
        return ProbeResult(facts=facts, first_losses=(facts.first_loss,) * num_parts)
    if facts.loss_reduction is LossReduction.SUM:
        # The parts' gradients are scaled as for a mean before their sum.
        norm = facts.first_grad_norm / num_parts if facts.first_grad_norm is not None else None
        losses = (facts.first_loss / num_parts,) * num_parts
        return ProbeResult(facts=replace(facts, first_grad_norm=norm), first_losses=losses)
    return ProbeResult(facts=facts)


def evaluate(function: Callable[[Settings], Answer], settings: Settings, cap_bytes: int) -> TrialResult:
    """A callable's answer for settings, as the result of a trial under a cap.

    A callable runs out of memory by raising MemoryError, `OutOfMemoryError` with the peak, or torch's error of the same
    name. Any other exception goes through. Impossible figures raise ValueError.
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
