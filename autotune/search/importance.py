"""How much each parameter decides whether a trial is among the fastest, as Optuna estimates."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
from optuna.storages import BaseStorage
from optuna.trial import TrialState, create_trial

from autotune.search.optuna_logging import quiet
from autotune.settings import Value

MAX_TRIALS = 2000
"""More trials make the estimate slower but no better."""
MIN_TRIALS = 8
"""Fewer trials say nothing: the estimate compares the fastest with all."""
NUM_FASTEST = 5
"""Least number of fastest trials for the estimate, when a tenth of the trials is fewer."""
FASTEST_SHARE = 0.1


def importances(storage: BaseStorage, study_name: str) -> dict[str, float]:
    """Shares by parameter, the largest first, with a sum of 1; empty with too few trials or without differences.

    Estimated by PED-ANOVA over every finished trial, with trials that did not fit as the slowest. Empty, too, without a
    study of that name in the storage: readers of a study need no study of Optuna's.
    """
    with quiet(), warnings.catch_warnings(action="ignore"):
        try:
            study = optuna.load_study(study_name=study_name, storage=storage)
        except KeyError:
            return {}
        return _study_importances(study)


def importances_of(tried: Sequence[tuple[Mapping[str, Value], float]]) -> dict[str, float]:
    """Importances from trials already read: each trial's values by parameter, and its rate, 0 if it did not fit.

    Optuna's storage reads some hundred trials a second; a report of thousands would wait a minute for it. Of more than
    `MAX_TRIALS` trials, `MAX_TRIALS` evenly spaced ones are used.
    """
    tried = (
        [tried[int(index * len(tried) / MAX_TRIALS)] for index in range(MAX_TRIALS)]
        if len(tried) > MAX_TRIALS
        else tried
    )
    first: Mapping[str, Value] = tried[0][0] if tried else {}
    choices = {name: tuple(dict.fromkeys(params.get(name) for params, _ in tried)) for name in first}
    names = [name for name, values in choices.items() if len(values) > 1]
    distributions: dict[str, BaseDistribution] = {name: CategoricalDistribution(choices[name]) for name in names}
    with quiet(), warnings.catch_warnings(action="ignore"):
        study = optuna.create_study(direction="maximize")
        for params, rate in tried:
            known = {name: params.get(name) for name in names}
            study.add_trial(create_trial(value=rate, params=known, distributions=distributions))
        return _study_importances(study)


def _study_importances(study: optuna.Study) -> dict[str, float]:
    trials, names = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)), varied(study)
    if len(trials) < MIN_TRIALS or not names:
        return {}
    evaluator = PedAnovaImportanceEvaluator(target_quantile=max(FASTEST_SHARE, NUM_FASTEST / len(trials)))
    return get_param_importances(study, evaluator=evaluator, params=names)


def varied(study: optuna.Study) -> list[str]:
    """Parameters that every finished trial has, with several values among the trials, in their own order."""
    trials = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    names = [name for name in trials[0].params if all(name in trial.params for trial in trials)] if trials else []
    return [name for name in names if len({trial.params[name] for trial in trials}) > 1]
