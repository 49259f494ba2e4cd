"""The trials of one study in Optuna's storage: started, finished, failed, queued again, all as ordinary Optuna trials.

One transaction writes a new trial with parameters and attributes, so a killed tuner leaves a whole trial or none. The
attributes hold everything for a later resume, so a resume needs the database alone.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.exceptions import UpdateFinishedTrialError
from optuna.samplers import BaseSampler
from optuna.storages import BaseStorage, InMemoryStorage
from optuna.trial import FrozenTrial, Trial, TrialState, create_trial

from autotune.errors import SearchSpaceError
from autotune.model.result import TrialResult
from autotune.search.attributes import candidate_attrs, candidate_of, ending_attrs, finished_trial, settings_of
from autotune.search.history import FinishedTrial
from autotune.search.optuna_logging import quiet
from autotune.search.optuna_values import Verdict
from autotune.search.plan_state import Candidate
from autotune.search.search_stopping import budget_spent
from autotune.settings import Settings
from autotune.space.search_space import SPLIT, SearchSpace

MAX_HOST_FAULTS = 2
"""Largest number of times that settings are queued again after faults of the host."""

UNNAMED_CONSTRAINTS = "constraints"
"""System attribute for Optuna's old, unnamed constraints. Optuna's dashboard reads only this attribute, and without it
would show trials over the cap as feasible. Optuna reads both kinds, the unnamed by position."""

SETTINGS_ATTR = "natural"
"""User attribute of a study: the script's own settings as plain values. Older studies have all settings, newer studies
the settings with a value other than the default."""

METRIC = "samples_per_second"
"""Name of the values in Optuna's plots and dashboard."""

ENQUEUED_STAGE = "enqueued"
"""Stage of settings queued by a user through Optuna."""
QUEUED_PARAMS = "fixed_params"
"""System attribute with the parameters given to `optuna.Study.enqueue_trial`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StudySnapshot:
    """The study's trials at one moment, for the search."""

    finished: tuple[FinishedTrial, ...]
    """Given-up trials and trials with an ending that counts, in the order of their numbers."""
    running: tuple[Settings, ...]
    """Settings under measurement, by any tuner."""
    gated: Mapping[int, Settings]
    """Settings never run because they would need more than the cap, by trial number."""
    has_queued: bool = False
    """Whether a trial waits in the queue."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Ended:
    """Contents of a trial that Optuna considers finished."""

    finished: FinishedTrial | None
    gated: Settings | None


class StudyTrials:
    """The trials of a study, which is created when missing.

    A study of other `script_settings` without a measured or queued trial is created anew, because Optuna never changes
    the allowed values of a study's parameters.

    Args:
        storage: Storage of the study; None keeps the study in memory.
        study_name: Name of the study.
        space: The study's parameters.
        about: User attributes of a new study, for readers of the study in Optuna.
    """

    def __init__(
        self, storage: BaseStorage | None, study_name: str, space: SearchSpace, about: Mapping[str, Any]
    ) -> None:
        self.space = space
        """The settings allowed now."""
        self._whole_space = space
        self._storage = storage if storage is not None else InMemoryStorage()
        self._distributions = {name: _distribution(name, space) for name in space.domains}
        self._study = self._open(study_name, about)
        script_settings = self._study.user_attrs.get(SETTINGS_ATTR)
        if (
            SETTINGS_ATTR in about
            and script_settings is not None
            and Settings.from_dict(script_settings) != Settings.from_dict(about[SETTINGS_ATTR])
            and not self.has_other_trials()
        ):
            self._storage.delete_study(self._storage.get_study_id_from_name(study_name))
            self._study = self._open(study_name, about)
        self._study_id = self._storage.get_study_id_from_name(study_name)
        self._ended: dict[int, _Ended] = {}
        """Contents of finished trials by number: nobody changes a finished trial."""

    def _open(self, study_name: str, about: Mapping[str, Any]) -> optuna.Study:
        with quiet():
            study = optuna.create_study(
                storage=self._storage,
                study_name=study_name,
                direction="maximize",
                load_if_exists=True,
                # Optuna's default sampler would read all trials for each new trial.
                sampler=_ScriptsOwn(self._whole_space.params(self._whole_space.script_settings)),
                pruner=optuna.pruners.NopPruner(),
            )
            if study.metric_names is None:
                with warnings.catch_warnings(category=optuna.exceptions.ExperimentalWarning, action="ignore"):
                    study.set_metric_names([METRIC])
                for key, value in about.items():
                    study.set_user_attr(key, value)
        return study

    def has_other_trials(self, number: int | None = None) -> bool:
        """True when another trial was measured or is queued; given `number`, also when another trial is running."""
        states = {TrialState.COMPLETE, TrialState.WAITING, *([TrialState.RUNNING] if number is not None else [])}
        return any(trial.state in states and trial.number != number for trial in self._trials())

    def snapshot(self) -> StudySnapshot:
        """The trials at this moment."""
        trials = self._trials()
        for trial in trials:
            if trial.number not in self._ended and trial.state.is_finished():
                self._ended[trial.number] = _Ended(
                    finished=finished_trial(trial),
                    gated=settings_of(trial) if trial.user_attrs.get("gated") else None,
                )
        open_trials = [trial for trial in trials if trial.number not in self._ended]
        gated = {number: ended.gated for number, ended in self._ended.items() if ended.gated is not None}
        return StudySnapshot(
            finished=tuple(ended.finished for _, ended in sorted(self._ended.items()) if ended.finished is not None),
            running=tuple(settings_of(trial) for trial in open_trials if _is_running(trial)),
            gated=gated | {t.number: settings_of(t) for t in open_trials if t.user_attrs.get("gated")},
            has_queued=any(trial.state is TrialState.WAITING for trial in open_trials),
        )

    def start(self, candidate: Candidate, attrs: Mapping[str, Any], max_trials: int) -> int | None:
        """The number of a new running trial; None when another tuner was faster.

        Args:
            candidate: Settings to try.
            attrs: Further user attributes of the trial.
            max_trials: The study's budget. The other tuner started the same settings, or the last trial of the budget.
        """
        number = self._add(candidate, TrialState.RUNNING, attrs)
        refusal = self._why_withdrawn(number, candidate.settings, max_trials)
        if refusal is None:
            return number
        self._prune(number, refusal)
        return None

    def start_queued(self, attrs: Mapping[str, Any], max_trials: int) -> tuple[int, Candidate] | None:
        """The first trial of the queue, started; None when the queue is empty.

        Settings outside the space, settings already tried, and trials beyond the budget are pruned with a reason.
        """
        while any(trial.state is TrialState.WAITING for trial in self._trials()):
            with quiet():
                trial = self._study.ask()
            candidate = self._queued_candidate(trial)
            if candidate is None:
                continue
            self._set_attrs(trial.number, {**candidate_attrs(candidate), **attrs})
            refusal = self._why_withdrawn(trial.number, candidate.settings, max_trials)
            refusal = refusal or self.space.why_not(candidate.settings)
            if refusal is None:
                return trial.number, candidate
            self._prune(trial.number, refusal)
        return None

    def gate(self, candidate: Candidate, reason: str) -> None:
        """Records settings that will not run: a pruned trial with the reason."""
        number = self._add(candidate, TrialState.RUNNING, {"gated": True})
        self._prune(number, reason)

    def finish(self, number: int, result: TrialResult, ending: Verdict) -> None:
        """Tells Optuna a trial's ending; without effect on a reaped trial, because its settings are queued again."""
        trial_id = self._id(number)
        # Named as Optuna names them: `Trial.set_constraint` and `Study.tell` would read the trial five times.
        template = create_trial(state=TrialState.COMPLETE, value=ending.value, constraints=dict(ending.constraints))
        attrs = {**template.system_attrs, UNNAMED_CONSTRAINTS: list(ending.constraints.values())}
        # A tuner on another machine may reap the trial at any moment.
        with suppress(UpdateFinishedTrialError):
            self._set_attrs(number, ending_attrs(result, ending))
            for key, value in attrs.items():
                self._storage.set_trial_system_attr(trial_id, key, value)
            self._storage.set_trial_state_values(trial_id, TrialState.COMPLETE, [ending.value])

    def add_finished(self, candidate: Candidate, result: TrialResult, ending: Verdict, source: str) -> int:
        """Adds a trial measured by another study, at most once per source, and gives its number.

        Args:
            candidate: Settings and stage.
            result: Ending of the trial.
            ending: Optuna's values for the ending.
            source: Identity of the trial in the other study.
        """
        for trial in self._trials():
            if trial.user_attrs.get("taken_from") == source:
                return trial.number
        attrs = {**candidate_attrs(candidate), "taken_from": source, **ending_attrs(result, ending)}
        params = self._whole_space.told_params(candidate.settings)
        template = create_trial(
            state=TrialState.COMPLETE,
            value=ending.value,
            params=params,
            distributions={name: self._distributions[name] for name in params},
            user_attrs=attrs,
            system_attrs={UNNAMED_CONSTRAINTS: list(ending.constraints.values())},
            constraints=dict(ending.constraints),
        )
        with quiet():
            self._study.add_trial(template)
        return next(trial.number for trial in self._trials() if trial.user_attrs.get("taken_from") == source)

    def is_held(self, number: int, is_dead: Callable[[dict[str, Any]], bool]) -> bool:
        """True when a trial is running and its owner is not dead."""
        trial = self._storage.get_trial(self._id(number))
        return trial.state is TrialState.RUNNING and not is_dead(dict(trial.user_attrs))

    def fail(self, number: int, reason: str, *, is_host_fault: bool) -> None:
        """Fails a trial and queues its settings again; after faults of the host at most MAX_HOST_FAULTS times."""
        trial = self._storage.get_trial(self._id(number))
        if trial.state is not TrialState.RUNNING:
            return
        num_faults = int(trial.user_attrs.get("num_host_faults", 0)) + is_host_fault
        is_given_up = num_faults > MAX_HOST_FAULTS
        try:
            self._set_attrs(number, {"reason": reason, **({"given_up": True} if is_given_up else {})})
            with quiet():
                self._study.tell(number, state=TrialState.FAIL)
        except (UpdateFinishedTrialError, ValueError):  # Optuna's words for a trial that another tuner has just reaped
            return
        if not is_given_up:
            self._add(candidate_of(trial), TrialState.WAITING, {"retry_of": number, "num_host_faults": num_faults})

    def reap(self, is_dead: Callable[[dict[str, Any]], bool]) -> tuple[int, ...]:
        """Fails the running trials of dead owners, queues their settings again, and gives the trials' numbers."""
        reaped = []
        for trial in self._trials():
            if trial.state is TrialState.RUNNING and is_dead(dict(trial.user_attrs)):
                if "settings" not in trial.user_attrs:
                    candidate = self._queued_candidate(trial)
                    if candidate is None:
                        continue
                    self._set_attrs(trial.number, candidate_attrs(candidate))
                self.fail(trial.number, "The tuner of the trial ended.", is_host_fault=False)
                reaped.append(trial.number)
        return tuple(reaped)

    # --- Optuna's storage

    def _trials(self) -> list[FrozenTrial]:
        with quiet():
            return self._study.get_trials(deepcopy=False)

    def _add(self, candidate: Candidate, state: TrialState, attrs: Mapping[str, Any]) -> int:
        params = self._whole_space.told_params(candidate.settings)
        template = create_trial(
            state=state,
            params=params,
            distributions={name: self._distributions[name] for name in params},
            user_attrs={**candidate_attrs(candidate), **attrs},
        )
        trial_id = self._storage.create_new_trial(self._study_id, template_trial=template)
        return self._storage.get_trial_number_from_id(trial_id)

    def _why_not_asked(self, asked: Mapping[str, Any]) -> str | None:
        """Names the first asked value outside the search space, as one sentence; None without such a value."""
        for name, value in asked.items():
            if value not in self._whole_space.domains.get(name, ()):
                return f"{name} = {value} is not in the search space."
        try:
            self._whole_space.settings(asked)
        except SearchSpaceError as error:  # Python takes 1 for true, and 2.0 for 2.
            return str(error)
        return None

    def _tell_params(self, trial: Trial, settings: Settings) -> None:
        """Tells Optuna the parameters of a started trial: values fixed by `enqueue_trial`, and the script's own."""
        with quiet():
            for name in self._whole_space.told_params(settings):
                distribution = self._distributions[name]
                if isinstance(distribution, IntDistribution):
                    trial.suggest_int(name, distribution.low, distribution.high)
                elif isinstance(distribution, CategoricalDistribution):
                    trial.suggest_categorical(name, distribution.choices)

    def _why_withdrawn(self, number: int, settings: Settings, max_trials: int) -> str | None:
        """Reason to withdraw a new trial; None to keep it. Of two equal trials the lower number stays.

        A queued trial has a place in the budget: the trial was interrupted, and some tuner runs the settings again.
        """
        num_earlier = 0
        for other in self._trials():
            is_open = _is_running(other) or other.state is TrialState.WAITING
            if other.number < number and (is_open or other.state is TrialState.COMPLETE):
                num_earlier += 1
                if "settings" in other.user_attrs and settings_of(other) == settings:
                    return f"Trial {other.number} has the same settings."
        return None if num_earlier < max_trials else budget_spent(max_trials)

    def _queued_candidate(self, trial: Trial | FrozenTrial) -> Candidate | None:
        """The settings of a trial taken from the queue; None, and the trial pruned, without such settings."""
        if "settings" in trial.user_attrs:
            return candidate_of(trial)
        asked = self._storage.get_trial_system_attrs(self._id(trial.number)).get(QUEUED_PARAMS, {})
        refusal = self._why_not_asked(asked)
        if refusal is not None:
            self._prune(trial.number, refusal)
            return None
        settings = self._whole_space.settings(asked)
        if isinstance(trial, Trial):
            self._tell_params(trial, settings)
        return Candidate(settings=settings, stage=ENQUEUED_STAGE)

    def _prune(self, number: int, reason: str) -> None:
        self._set_attrs(number, {"reason": reason})
        with quiet():
            self._study.tell(number, state=TrialState.PRUNED)

    def _set_attrs(self, number: int, attrs: Mapping[str, Any]) -> None:
        trial_id = self._id(number)
        for key, value in attrs.items():
            self._storage.set_trial_user_attr(trial_id, key, value)

    def _id(self, number: int) -> int:
        return self._storage.get_trial_id_from_study_id_trial_number(self._study_id, number)


class _ScriptsOwn(BaseSampler):
    """Gives the script's own value of each parameter without a fixed value."""

    def __init__(self, own: Mapping[str, Any]) -> None:
        self._own = own

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """No parameters: none depends on others."""
        return {}

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """No values, as there are no parameters."""
        return {}

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """The script's own value."""
        return self._own[param_name]


def _distribution(name: str, space: SearchSpace) -> BaseDistribution:
    """The static distribution of a parameter, the same in every trial and on every host."""
    if name == SPLIT:
        return IntDistribution(0, len(space.divisors) - 1)
    return CategoricalDistribution(space.domains[name])


def _is_running(trial: FrozenTrial) -> bool:
    return trial.state is TrialState.RUNNING and "settings" in trial.user_attrs
