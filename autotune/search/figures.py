"""Optuna's own figures of a study, as plain values of plotly, which must be installed."""

from __future__ import annotations

import json
import warnings
from typing import Any

import optuna
from optuna.storages import BaseStorage
from optuna.trial import TrialState

from autotune.search.importance import importances, varied
from autotune.search.optuna_logging import quiet
from autotune.search.study_trials import METRIC

MAX_NAMES = 8
"""Number of axes in the plot of parallel coordinates."""


def figures(storage: BaseStorage, study_name: str) -> list[tuple[str, dict[str, Any]]]:
    """Title and values of each figure; none without such a study or a finished trial.

    Raises:
        ImportError: When plotly is not installed.
    """
    from optuna import visualization

    names = list(importances(storage, study_name))
    with quiet(), warnings.catch_warnings(action="ignore"):
        try:
            study = optuna.load_study(study_name=study_name, storage=storage)
        except KeyError:
            return []
        if not study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)):
            return []
        names = names or varied(study)
        found = [("Timeline", visualization.plot_timeline(study))]
        if len(names) > 1:
            along = visualization.plot_parallel_coordinate(study, params=names[:MAX_NAMES], target_name=METRIC)
            pair = visualization.plot_rank(study, params=names[:2], target_name=METRIC)
            found = [("Settings side by side", along), (f"{names[0]} and {names[1]}", pair), *found]
    for _, figure in found:
        figure.update_layout(title=None)
    return [(title, json.loads(figure.to_json())) for title, figure in found]
