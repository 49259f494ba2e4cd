"""Writes trials as Optuna's user attributes, and reads finished trials back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from optuna.trial import FrozenTrial, Trial, TrialState

from autotune.model.outcome import Outcome
from autotune.model.result import TrialResult
from autotune.search.history import FinishedTrial
from autotune.search.optuna_values import Verdict
from autotune.search.plan_state import Candidate
from autotune.settings import Settings


def settings_of(trial: Trial | FrozenTrial) -> Settings:
    """The settings of a trial started by us."""
    return Settings.from_dict(trial.user_attrs["settings"])


def candidate_attrs(candidate: Candidate) -> dict[str, Any]:
    """User attributes of a trial at its start.

    Settings at their defaults are left out: Optuna's dashboard cuts a value after 1,024 characters.
    """
    attrs: dict[str, Any] = {"settings": candidate.settings.to_short_dict(), "stage": candidate.stage}
    if candidate.expected_gain_ratio is not None:
        attrs["expected_gain_ratio"] = candidate.expected_gain_ratio
    return attrs


def candidate_of(trial: Trial | FrozenTrial) -> Candidate:
    """The candidate measured by a trial of ours."""
    return Candidate(
        settings=settings_of(trial),
        stage=str(trial.user_attrs["stage"]),
        expected_gain_ratio=trial.user_attrs.get("expected_gain_ratio"),
    )


def ending_attrs(result: TrialResult, ending: Verdict) -> dict[str, Any]:
    """User attributes of a finished trial, with the constraints for readers of the study in Optuna."""
    attrs: dict[str, Any] = {"result": _plain_result(result), "constraints": list(ending.constraints.values())}
    if result.outcome is Outcome.RACED_OUT:
        attrs["raced_out"] = True
    if result.reason:
        attrs["reason"] = result.why
    return attrs


def _plain_result(result: TrialResult) -> dict[str, Any]:
    measurement = result.measurement
    plain: dict[str, Any] = {
        "outcome": result.outcome.value,
        "samples_per_second": result.rate_or_bound,
        "peak_memory_bytes": result.peak_memory_bytes,
        "is_near_cap": result.is_near_cap,
        "lacks_host_memory": result.lacks_host_memory,
        "missed": list(result.missed),
        "is_inconclusive": result.is_inconclusive,
        "is_beside_load": result.surroundings is not None and result.surroundings.is_beside_load,
        "is_disturbed": result.surroundings is not None and bool(result.surroundings.disturbances),
    }
    if measurement is not None:
        half_width = (measurement.high - measurement.low) / 2
        plain |= {
            "compute_samples_per_second": measurement.compute_samples_per_second,
            "data_wait_fraction": measurement.data_wait_fraction,
            "half_width_ratio": half_width / measurement.samples_per_second,
            "kernel_search_s": result.left_out_s,
        }
    if result.surroundings is not None:
        plain["device_utilization"] = result.surroundings.device_utilization
    return plain


def finished_trial(trial: FrozenTrial) -> FinishedTrial | None:
    """The finished trial for the search; None while the trial has no ending that counts."""
    plain: Mapping[str, Any] = trial.user_attrs.get("result", {})
    if trial.state is TrialState.FAIL and trial.user_attrs.get("given_up"):
        plain = {"outcome": Outcome.INTERRUPTED.value}
    elif trial.state is not TrialState.COMPLETE or not plain:
        return None
    return FinishedTrial(
        number=trial.number,
        settings=settings_of(trial),
        stage=str(trial.user_attrs["stage"]),
        outcome=Outcome(plain["outcome"]),
        samples_per_second=plain.get("samples_per_second"),
        peak_memory_bytes=plain.get("peak_memory_bytes"),
        compute_samples_per_second=plain.get("compute_samples_per_second"),
        data_wait_fraction=plain.get("data_wait_fraction"),
        kernel_search_s=plain.get("kernel_search_s", 0.0),
        device_utilization=plain.get("device_utilization"),
        expected_gain_ratio=trial.user_attrs.get("expected_gain_ratio"),
        half_width_ratio=plain.get("half_width_ratio"),
        is_near_cap=plain.get("is_near_cap", False),
        lacks_host_memory=plain.get("lacks_host_memory", False),
        is_beside_load=plain.get("is_beside_load", False),
        is_disturbed=plain.get("is_disturbed", False),
        reason=str(trial.user_attrs.get("reason", "")),
        missed=tuple(plain.get("missed", ())),
        is_inconclusive=plain.get("is_inconclusive", False),
    )
