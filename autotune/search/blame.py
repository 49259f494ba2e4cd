"""Finds the settings that make a script fail, from finished trials alone, and the next trial to narrow them down. Pure.

A failed trial is taken apart at once. The changes of the failed trial are put in order, changes of a measured trial
first, and halved until the first failing part is as short as possible. The last change of this part is needed for the
failure. When the change fails alone, the change is guilty; otherwise its partners are looked for in the same way. A
search leaves guilty settings out and tries the rest. A resumed search learns the same from the trials.

After the plan a trial may add one untried value to measured settings. When such a trial fails, the search leaves out
the untried value beside all other settings, without further trials.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any

from autotune.model.outcome import Outcome
from autotune.search.history import FinishedTrial, History
from autotune.search.plan_state import Candidate
from autotune.search.search_stopping import AFTER_PLAN
from autotune.settings import GROUP_OF_FIELD, Settings, Value
from autotune.space.search_space import SPLIT, SearchSpace

TAKEN_APART_STAGE = "taken_apart"
"""Stage of trials run to find the settings that made an earlier trial fail."""

BATCH = "batch_size"
"""Change of the micro-batch and of gradient accumulation as one, because their product is held fixed."""

KNOB = "knobs."

REMEMBERED = 1 << 16
"""Size of the caches of changes: every proposal of a large study asks for the changes of all its trials."""

FORMAT = re.compile(r"\b(?:c10::|torch\.)?(?:bfloat16|float16|half|bf16|fp16)\b", re.IGNORECASE)
"""Names of number formats in torch's error messages."""
PLACE = re.compile(r"\S:\d+|line \d+")
"""A file with a line."""

Changes = Mapping[str, Any]
"""Values that differ from the script's own, by name; the value of `batch_size` is the pair with the accumulation."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FailingCombination:
    """Settings that make the script fail together, or a single setting that fails alone."""

    changes: tuple[tuple[str, Any], ...]
    """Names and values as in `Changes`, at least one pair."""
    trial: FinishedTrial
    """The failed trial of exactly these settings; without one, the failed trial taken apart."""
    is_exact: bool = False
    """True when numbers beyond a guilty value may still be tried."""

    def covers(self, changes: Changes, own: Changes) -> bool:
        """True when settings with the given changes would fail for the same reason.

        A number beyond a guilty value, seen from the script's own value, is guilty too: even more workers.

        Args:
            changes: Changes of the settings in question.
            own: The script's own values of all changes.
        """
        # A loop without a generator: a large study asks 40,000 times for each proposal.
        for name, value in self.changes:
            if name not in changes:
                return False
            if changes[name] != value and (self.is_exact or not _is_as_far(changes[name], value, own[name])):
                return False
        return True


@dataclass(frozen=True, kw_only=True, slots=True)
class Investigation:
    """The guilty settings of all failed trials, and the next trial to run."""

    combinations: tuple[FailingCombination, ...]
    next_trial: Candidate | None
    """The trial to explain the next failure; None when no failure needs a trial, or another tuner runs it now."""


class _Untried(Exception):  # noqa: N818 -- a signal to the investigation, not an error
    """Signals that only a trial of the settings can tell whether the script fails."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.settings = settings


def investigate(
    history: History,
    *,
    device_is_cpu: bool,
    running: Iterable[Settings] = (),
    may_be_tried: Callable[[Settings], bool] = lambda settings: True,
    least_workers: int | None = None,
) -> Investigation:
    """Gives the guilty settings of a study, and the next trial to find out more.

    Args:
        history: Finished trials.
        device_is_cpu: True when the script trains on a CPU, where some settings do nothing.
        running: Settings that other tuners measure now.
        may_be_tried: Returns True for settings in the space.
        least_workers: The smallest number of workers to try: when the smallest number fails, every number fails. None =
            the smallest number tried beside the script's own settings.
    """
    trials = history.trials
    changes = {trial.number: changes_of(trial.settings, history.script_settings) for trial in trials}
    measured = _MeasuredChanges(
        {trial.number: changes[trial.number] for trial in trials if trial.outcome is Outcome.OK}
    )
    fewest = least_workers or _fewest_alone(changes.values())
    investigator = _Investigator(history, measured, device_is_cpu, may_be_tried, fewest)
    candidate = None
    failed = [trial for trial in trials if _has_failed(trial) and changes[trial.number]]
    # A failure with few changes explains failures with more changes.
    for trial in sorted(failed, key=lambda trial: len(changes[trial.number])):
        if investigator.is_explained(trial.settings):
            continue
        try:
            investigator.take_apart(trial)
        except _Untried as untried:
            if candidate is None and untried.settings not in running:
                candidate = Candidate(settings=untried.settings, stage=TAKEN_APART_STAGE)
    return Investigation(combinations=tuple(investigator.combinations), next_trial=candidate)


def _fewest_alone(tried: Iterable[Changes]) -> int | None:
    """The smallest number of workers tried beside the script's own settings; None before the first such trial."""
    return min((changes["num_workers"] for changes in tried if list(changes) == ["num_workers"]), default=None)


@lru_cache(maxsize=REMEMBERED)
def changes_of(settings: Settings, script_settings: Settings) -> Changes:
    """The values in which settings differ from the script's own, by name in a fixed order."""
    changes: dict[str, Any] = {}
    for name, (here, _) in settings.differences(script_settings).items():
        if name in (BATCH, "grad_accum_steps"):
            changes[BATCH] = (settings.batch_size, settings.grad_accum_steps)
        else:
            changes[name] = here
    return changes


def with_changes(changes: Changes, script_settings: Settings, *, device_is_cpu: bool) -> Settings:
    """The script's own settings with these changes, canonical: the inverse of `changes_of`."""
    return _with_changes(tuple(changes.items()), script_settings, device_is_cpu)


@lru_cache(maxsize=REMEMBERED)
def _with_changes(pairs: tuple[tuple[str, Any], ...], script_settings: Settings, device_is_cpu: bool) -> Settings:
    changes = dict(pairs)
    values = {name: value for name, value in changes.items() if name != BATCH and not name.startswith(KNOB)}
    if BATCH in changes:
        values["batch_size"], values["grad_accum_steps"] = changes[BATCH]
    knobs = dict(script_settings.knobs)
    knobs.update({name.removeprefix(KNOB): value for name, value in changes.items() if name.startswith(KNOB)})
    settings = replace(script_settings, **values, knobs=tuple(knobs.items()))
    return settings.canonical(device_is_cpu=device_is_cpu)


def values_of(settings: Settings) -> dict[str, Any]:
    """The values of everything a search can change, under the names of `changes_of`."""
    values = {name: getattr(settings, name) for name in GROUP_OF_FIELD if name != "grad_accum_steps"}
    values[BATCH] = (settings.batch_size, settings.grad_accum_steps)
    return values | {f"{KNOB}{name}": value for name, value in settings.knobs}


class _MeasuredChanges:
    """The changes of all measured trials, to be asked about parts of changes at once among thousands of trials.

    Args:
        changes: Changes by trial number.
    """

    def __init__(self, changes: Mapping[int, Changes]) -> None:
        self._numbers = sorted(changes)
        self._changes = [changes[number] for number in self._numbers]
        self._trials_with: dict[tuple[str, Any], int] = {}
        """For each change the trials with the change, as bits: bit n stands for the n-th trial."""
        for n, measured in enumerate(self._changes):
            for change in measured.items():
                self._trials_with[change] = self._trials_with.get(change, 0) | 1 << n

    def contain(self, part: Changes) -> bool:
        """True when a trial has all changes of `part`."""
        trials = _first_bits(len(self._numbers))
        for change in part.items():
            trials &= self._trials_with.get(change, 0)
        return trials != 0

    def largest_within(self, changes: Changes, *, before: int) -> Changes:
        """The changes of the trial with the most changes, among trials without changes beside the given changes.

        Only trials with a number below `before` count; of equals the first.
        """
        others = 0
        for change, trials in self._trials_with.items():
            if change not in changes.items():
                others |= trials
        within = _first_bits(bisect_left(self._numbers, before)) & ~others
        return max((self._changes[n] for n in _set_bits(within)), key=len, default={})


def _first_bits(num: int) -> int:
    return (1 << num) - 1


def _set_bits(bits: int) -> Iterator[int]:
    """Positions of the set bits, ascending."""
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest


class _Investigator:
    """Tells from finished trials whether settings fail, and collects the guilty settings.

    Args:
        history: Finished trials.
        measured: Changes of the measured trials.
        device_is_cpu: True when the script trains on a CPU, where some settings do nothing.
        may_be_tried: Returns True for settings in the space.
        least_workers: The smallest number of workers to try.
    """

    def __init__(
        self,
        history: History,
        measured: _MeasuredChanges,
        device_is_cpu: bool,
        may_be_tried: Callable[[Settings], bool],
        least_workers: int | None,
    ) -> None:
        self.combinations: list[FailingCombination] = []
        self._history, self._device_is_cpu, self._may_be_tried = history, device_is_cpu, may_be_tried
        self._least_workers = least_workers
        self._own = values_of(history.script_settings)
        self._measured = measured

    def is_explained(self, settings: Settings) -> bool:
        """True when the settings contain settings known to be guilty."""
        changes = changes_of(settings, self._history.script_settings)
        return any(combination.covers(changes, self._own) for combination in self.combinations)

    def take_apart(self, trial: FinishedTrial) -> None:
        """Finds the guilty settings of a failed trial.

        Raises:
            _Untried: A further trial has to run first.
        """
        changes = changes_of(trial.settings, self._history.script_settings)
        not_in_force = {BATCH if name == "grad_accum_steps" else name for name in trial.missed}
        missed = [name for name in changes if name in not_in_force]
        untried = {} if missed else self._untried_after_plan(trial, changes)
        if untried:
            self.combinations.append(FailingCombination(changes=tuple(untried.items()), trial=trial, is_exact=True))
            return
        core = {name: changes[name] for name in missed[:1]} or self._known_core(trial, changes)
        core = core or self._core(trial, self._ordered(changes, trial.number))
        shown = self._history.get(self._settings(core))
        is_shown = shown is not None and _has_failed(shown)
        self.combinations.append(
            FailingCombination(changes=tuple(core.items()), trial=shown if shown and is_shown else trial)
        )

    def _untried_after_plan(self, trial: FinishedTrial, changes: Changes) -> dict[str, Any]:
        """The one value of a trial after the plan that no sound trial before had; empty unless the rest was measured.

        The usual gains come in the plan. Partners of a split batch once took nine trials, a third of a search. Workers
        are taken apart as ever: a machine without room for them fails with every number.
        """
        innocent = self._measured.largest_within(changes, before=trial.number)
        added = [name for name in changes if name not in innocent]
        if trial.stage not in AFTER_PLAN or len(added) != 1 or added == ["num_workers"]:
            return {}
        name, own = added[0], self._history.script_settings
        sound = (other.settings for other in self._history.sound if other.number < trial.number)
        if any(changes_of(settings, own).get(name) == changes[name] for settings in sound):
            return {}
        return {name: changes[name]}

    def _known_core(self, trial: FinishedTrial, changes: Changes) -> dict[str, Any]:
        """The changes of settings guilty with other values for the same reason; empty without such settings.

        A model that fails in one number format often fails in another, at the same place.
        """
        reason = _without_formats(trial.reason)
        for failing in self.combinations if _has_place(reason) else ():
            names = [name for name, _ in failing.changes]
            if all(name in changes for name in names) and _without_formats(failing.trial.reason) == reason:
                return {name: changes[name] for name in names}
        return {}

    def _core(self, trial: FinishedTrial, changes: dict[str, Any]) -> dict[str, Any]:
        """The smallest failing part of the changes, as far as halving can tell."""
        rest, core = list(changes), dict[str, Any]()
        while True:
            num = self._num_failing({name: changes[name] for name in rest}, core)
            core = {rest[num - 1]: changes[rest[num - 1]], **core}
            rest = rest[: num - 1]
            # Every further trial of timed-out settings costs the whole time limit.
            if trial.outcome is Outcome.TIMED_OUT:
                return core
            core = self._with_least_workers(core)
            if not rest or self._fails(core):
                return core

    def _num_failing(self, changes: dict[str, Any], core: Changes) -> int:
        """The least number of leading changes that fail together with `core`; all changes are known to fail."""
        names = list(changes)
        low, high = 1, len(names)
        while low < high:
            middle = (low + high) // 2
            if self._fails({**{name: changes[name] for name in names[:middle]}, **core}):
                high = middle
            else:
                low = middle + 1
        return high

    def _with_least_workers(self, core: dict[str, Any]) -> dict[str, Any]:
        """Replaces guilty workers by the smallest number of workers, when the smallest number fails too.

        The number of workers is then not the cause of the failure.
        """
        least = self._least_workers
        if list(core) != ["num_workers"] or least is None or self._own["num_workers"]:
            return core
        fewest = {"num_workers": min(least, core["num_workers"])}
        return fewest if self._fails(fewest) else core

    def _ordered(self, changes: Changes, number: int) -> dict[str, Any]:
        """Puts known harmless changes first: the changes of the largest measured trial within the given changes.

        Only trials with a smaller number count, because later results must not alter the halves under examination.
        """
        innocent = self._measured.largest_within(changes, before=number)
        return {**{name: value for name, value in changes.items() if name in innocent}, **changes}

    def _fails(self, changes: Changes) -> bool:
        """True when the script fails with the given changes.

        Raises:
            _Untried: Only a further trial can tell.
        """
        settings = self._settings(changes)
        if settings == self._history.script_settings:
            return False
        if self.is_explained(settings):
            return True
        trial = self._history.get(settings)
        if trial is not None:
            return _has_failed(trial)
        wanted = changes_of(settings, self._history.script_settings)
        if self._measured.contain(wanted) or not self._may_be_tried(settings):
            return False
        raise _Untried(settings)

    def _settings(self, changes: Changes) -> Settings:
        return with_changes(changes, self._history.script_settings, device_is_cpu=self._device_is_cpu)


def _without_formats(reason: str) -> str:
    """The reason with one word for all number formats."""
    return FORMAT.sub("FORMAT", reason)


def _has_place(reason: str) -> bool:
    """Whether a reason names a line of code; without one, equal words may have several causes."""
    return PLACE.search(reason) is not None


def _has_failed(trial: FinishedTrial) -> bool:
    return trial.outcome.is_failed and not trial.is_inconclusive


def _is_as_far(value: Any, guilty: Any, own: Any) -> bool:
    """True when a value equals the guilty value, or is a number further from the script's own value."""
    if value == guilty:
        return True
    if isinstance(value, tuple):  # a micro-batch and the accumulation
        value, guilty, own = value[0], guilty[0], own[0]
    if not (_is_number(value) and _is_number(guilty) and _is_number(own)):
        return False
    return bool(value > guilty > own or value < guilty < own)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


@dataclass(frozen=True, kw_only=True)
class ReducedSpace(SearchSpace):
    """The part of a space without settings known to be guilty."""

    combinations: tuple[FailingCombination, ...]

    def why_not(self, settings: Settings) -> str | None:
        """The reason against trying the settings, as one sentence; None when the settings may be tried."""
        script_settings = self.script_settings.canonical(device_is_cpu=self.device_is_cpu)
        changes, own = (
            changes_of(settings.canonical(device_is_cpu=self.device_is_cpu), script_settings),
            values_of(script_settings),
        )
        shown = next((combination.trial for combination in self.combinations if combination.covers(changes, own)), None)
        if shown is not None:
            return f"Trial {shown.number} failed with these settings: {shown.reason}"
        return super().why_not(settings)


def without(space: SearchSpace, combinations: Sequence[FailingCombination]) -> SearchSpace:
    """A space without the settings known to be guilty.

    A parameter with only guilty values keeps all values, like a parameter fixed by the user: no value is left to try.
    """
    own = values_of(space.script_settings.canonical(device_is_cpu=space.device_is_cpu))
    alone = [combination for combination in combinations if len(combination.changes) == 1]
    values = {one.name: getattr(space, one.name) for one in fields(SearchSpace)}
    values["allowed"] = {
        name: tuple(value for value in allowed if not _is_guilty_alone(space, name, value, alone, own)) or allowed
        for name, allowed in space.allowed.items()
    }
    return ReducedSpace(**values, combinations=tuple(combinations)) if combinations else space


def _is_guilty_alone(
    space: SearchSpace, name: str, value: Value, alone: Sequence[FailingCombination], own: Mapping[str, Any]
) -> bool:
    """True when a value of a parameter is guilty alone, whatever the remaining settings."""
    if name == "batch_size":
        return False  # In a space with the micro-batch as a parameter, the accumulation is a second parameter.
    if name == SPLIT:
        micro_batch = space.divisors[int(value)]
        here: dict[str, Any] = {BATCH: (micro_batch, (space.batch_per_device or 0) // micro_batch)}
    else:
        here = {name: value}
    return any(here[key] != own.get(key) for key in here) and any(
        combination.covers(here, own) for combination in alone
    )
