"""Gathers a stored study for the terminal and for reports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from autotune.errors import StoreError
from autotune.measure.bottleneck import Bottleneck, BottleneckKind
from autotune.model.study_view import PlotlyFigure, StudyView
from autotune.model.trial_records import FinalRecord, TrialRecord
from autotune.space.search_space import KNOB_PREFIX
from autotune.store.records import StudyRecord
from autotune.store.repository import Repository
from autotune.store.secrets import mask_plain, mask_text, masked_command, remember_arguments
from autotune.store.url import mask_url
from autotune.study.left_out import left_out_of
from autotune.study.publish import bottleneck_of
from autotune.study.status import baseline_of, best_of, is_final, overview_of, status_result


def tell(
    name: str,
    repository: Repository,
    *,
    with_importances: bool = False,
    with_figures: bool = False,
    on_unreadable: Callable[[str, StoreError], None] | None = None,
) -> StudyView:
    """A study with masked secrets.

    Args:
        name: Name of the study.
        repository: Place of the study.
        with_importances: Add the importance of each parameter by Optuna; the import takes about a second.
        with_figures: Add Optuna's own figures; needs plotly.
        on_unreadable: Called with the number of each unreadable trial and the error; None = raise the first error.

    Raises:
        StudyNotFoundError: The database has no study of this name.
        StoreError: The database failed.
    """
    record, finals = repository.study(name), repository.finals(name)
    trials = repository.trials(name, with_ranks=False, on_unreadable=on_unreadable)
    remember_arguments(record.spec.command)
    is_live = bool(repository.live_owners(name, now=datetime.now(UTC)))
    shares: dict[str, float] = {}
    if with_importances and trials:
        from autotune.search.importance import importances_of

        shares = importances_of([_tried(trial) for trial in trials if trial.result.outcome.is_finished])
    figures: tuple[PlotlyFigure, ...] = ()
    if with_figures:
        from autotune.search.figures import figures as made_by_optuna

        drawn = made_by_optuna(repository.optuna_storage, name)
        figures = tuple(PlotlyFigure(title=title, values=mask_plain(values)) for title, values in drawn)
    return replace(make_view(record, trials, finals, is_live=is_live, importances=shares), figures=figures)


def _tried(trial: TrialRecord) -> tuple[dict[str, bool | int | float | str], float]:
    """The settings of a trial by parameter, without accumulation, and the rate or bound in samples per second."""
    plain = trial.settings.to_dict()
    knobs = plain.pop("knobs")
    del plain["grad_accum_steps"]
    return {
        **plain,
        **{f"{KNOB_PREFIX}{name}": value for name, value in knobs.items()},
    }, trial.result.rate_or_bound or 0.0


def make_view(
    record: StudyRecord,
    trials: Sequence[TrialRecord],
    finals: Sequence[FinalRecord],
    *,
    is_live: bool,
    importances: dict[str, float],
) -> StudyView:
    """The view of a study's records."""
    left_out = left_out_of(record, (trial.ending for trial in trials))
    spec, result = record.spec, status_result(record, overview_of(record, trials), left_out)
    baseline = baseline_of(record, trials)
    baseline_number = baseline.number if baseline is not None else None
    fastest = best_of(trials)
    best_number = result.best.trial if result.best is not None else None
    if best_number is None and fastest is not None:
        best_number = fastest.number
    return StudyView(
        study=record.name,
        status=record.status,
        is_live=is_live,
        is_final=is_final(record),
        created_at=record.created_at.astimezone(UTC),
        command=masked_command(spec),
        script=mask_text(spec.script),
        cwd=mask_text(spec.cwd),
        storage=mask_url(spec.storage),
        max_trials=spec.max_trials,
        effective_batch=spec.effective_batch,
        budget_s=spec.budget_s,
        spent_s=record.spent_s,
        memory_cap_bytes=record.memory_cap_bytes,
        facts=record.facts,
        script_settings=record.script_settings,
        refused=tuple((name, mask_text(reason)) for name, reason in record.refused),
        machine=_machine(record.fingerprint),
        result=result,
        trials=tuple(trials),
        finals=tuple(finals),
        baseline_number=baseline_number,
        best_number=best_number,
        before=_bottleneck(baseline_number, finals, trials, record),
        after=_bottleneck(best_number, finals, trials, record),
        importances=importances,
    )


def _machine(fingerprint: dict[str, Any]) -> dict[str, str]:
    """The host and the versions of a fingerprint, as text, without unknown values."""
    values = {**(fingerprint.get("host") or {}), **(fingerprint.get("versions") or {})}
    return {str(name): mask_text(str(value)) for name, value in values.items() if value not in ("", None)}


def _bottleneck(
    number: int | None, finals: Sequence[FinalRecord], trials: Sequence[TrialRecord], record: StudyRecord
) -> Bottleneck | None:
    if number is None or record.facts is None:
        return None
    found = bottleneck_of(number, finals, trials, device_is_cpu=record.facts.device == "cpu")
    return None if found.kind is BottleneckKind.UNKNOWN and found.ceiling_samples_per_second is None else found
