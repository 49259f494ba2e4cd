"""Lists the settings left out of a study because trials have failed, from the records of the trials. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from autotune.model.search_result import LeftOut
from autotune.model.trial_records import TrialEnding
from autotune.search.blame import BATCH, FailingCombination, investigate
from autotune.search.history import FinishedTrial, History
from autotune.settings import text_of
from autotune.store.records import StudyRecord


def left_out_of(record: StudyRecord, trials: Iterable[TrialEnding]) -> tuple[LeftOut, ...]:
    """The settings left out of a study, each with the reason given by a trial.

    Args:
        record: The study; before the probe of the study, nothing is left out.
        trials: The endings of all trials of the study.
    """
    if record.script_settings is None:
        return ()
    device_is_cpu = record.facts is not None and record.facts.device == "cpu"
    script_settings = record.script_settings.canonical(device_is_cpu=device_is_cpu)
    history = History([_finished(trial) for trial in trials if trial.outcome.is_finished], script_settings)
    found = investigate(history, device_is_cpu=device_is_cpu)
    return tuple(_left_out(combination) for combination in found.combinations)


def _finished(trial: TrialEnding) -> FinishedTrial:
    failure = trial.failure
    return FinishedTrial(
        number=trial.number,
        settings=trial.settings,
        stage=trial.stage,
        outcome=trial.outcome,
        reason=failure.why if failure is not None else "",
        missed=failure.missed if failure is not None else (),
        is_inconclusive=failure is not None and failure.is_inconclusive,
    )


def _left_out(combination: FailingCombination) -> LeftOut:
    settings: dict[str, str] = {}
    for name, value in combination.changes:
        if name == BATCH:
            settings["batch_size"], settings["grad_accum_steps"] = map(text_of, value)
        else:
            settings[name] = text_of(value)
    return LeftOut(settings=tuple(settings.items()), reason=combination.trial.reason, trial=combination.trial.number)
