"""How much each parameter decides whether a trial is among the fastest, as Optuna estimates it."""

from __future__ import annotations

import warnings

import optuna
from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
from optuna.storages import BaseStorage
from optuna.trial import TrialState

from autotune.search.quiet import quiet

MIN_TRIALS = 8
"""Fewer say nothing: the estimate compares the fastest with all."""
NUM_FASTEST = 5
"""As many as the estimate wants at least among the fastest, where a tenth of the trials are not so many."""
FASTEST_SHARE = 0.1


def importances(storage: BaseStorage, study_name: str) -> dict[str, float]:
    """Shares by parameter, the largest first, which sum to 1; empty where there are too few trials, or all are alike.

    By PED-ANOVA over every trial that has an ending, with those that did not fit as the slowest. Empty, too, where the
    storage holds no study of that name: whoever reads a study needs none of Optuna's.
    """
    with quiet(), warnings.catch_warnings(action="ignore"):
        try:
            study = optuna.load_study(study_name=study_name, storage=storage)
        except KeyError:
            return {}
        trials, names = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)), varied(study)
        if len(trials) < MIN_TRIALS or not names:
            return {}
        evaluator = PedAnovaImportanceEvaluator(target_quantile=max(FASTEST_SHARE, NUM_FASTEST / len(trials)))
        return get_param_importances(study, evaluator=evaluator, params=names)


def varied(study: optuna.Study) -> list[str]:
    """Parameters of which the trials with an ending have several values, in their own order."""
    trials = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    names = trials[0].params if trials else {}
    return [name for name in names if len({trial.params.get(name) for trial in trials}) > 1]
