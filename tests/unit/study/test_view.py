"""A stored study gathered for whoever tells it, after a whole search."""

from __future__ import annotations

from autotune.lab.function_runner import Measured
from autotune.measure.bottleneck import BottleneckKind
from autotune.study.view import tell

from .whole_search import by_workers, folder

__all__ = ["folder"]


def test_a_searched_study_is_told_with_its_best_its_stalls_and_what_matters(folder):
    def measure(settings):
        rate = by_workers(settings).samples_per_second
        return Measured(samples_per_second=rate, compute_samples_per_second=400.0, data_wait_fraction=1 - rate / 400.0)

    folder.runner.measure = measure
    result = folder.search(max_trials=10, command=("python", "train.py", "--api-key", "hunter2"))
    with folder.repository() as repository:
        view, plain = tell("train", repository, with_importances=True), tell("train", repository)
    assert (view.status, view.is_final, view.is_live) == (result.status.value, True, False)
    assert view.command == ("python", "train.py", "--api-key", "***")
    assert view.baseline_number == 0 and view.best_number == result.best.trial
    assert view.baseline.settings == view.script_settings and view.best.settings == result.best.settings
    assert view.before.kind is BottleneckKind.LOADER and view.before.data_wait_fraction > 0.7
    assert view.after.data_wait_fraction < view.before.data_wait_fraction
    assert max(view.importances, key=view.importances.get) == "num_workers" and plain.importances == {}
    assert len(view.finals) == len({(final.round, final.number) for final in view.finals}) > 0
    assert {"cpu", "torch", "autotune"} <= set(view.machine)
    assert set(view.environment) <= set(view.trials[0].environment)


def test_a_study_that_was_not_finished_is_told_by_its_single_trials(folder):
    folder.search(max_trials=4)
    with folder.repository() as repository:
        repository.set_status("train", "running")
        view = tell("train", repository)
    assert not view.is_final
    fastest = max(view.trials, key=lambda trial: trial.result.rate_or_bound or 0.0)
    assert view.best_number == fastest.number and view.result.speedup is None
