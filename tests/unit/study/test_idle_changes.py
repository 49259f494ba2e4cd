"""Changes of the winner that its runs put to no use."""

from dataclasses import replace

import pytest

from autotune.lab.function_runner import evaluate
from autotune.model.search_result import Contribution, Status
from autotune.settings import Precision, Settings
from autotune.study.idle_changes import worth_without
from autotune.units import GIB
from autotune.verdict.in_force import idle_changes
from tests.unit.runner.samples import rank
from tests.unit.study.whole_search import by_workers, folder

__all__ = ["folder"]

OWN = Settings(num_workers=4)
TUNED = replace(OWN, precision=Precision.BF16, non_blocking=True)


def run(*observed):
    """A run of the tuned settings with ranks that saw these settings in force."""
    return replace(
        evaluate(by_workers, TUNED, 4 * GIB), ranks=tuple(rank(observed=one, world_size=2) for one in observed)
    )


@pytest.mark.parametrize(
    ("runs", "kept", "idle"),
    [
        ([run({"precision": "bf16"})], (), ("non_blocking",)),
        ([run({"precision": "bf16", "non_blocking": True})], (), ()),
        ([run({"precision": "bf16"}, {"precision": "bf16", "non_blocking": True})], (), ()),
        ([run({"precision": "bf16"}), run({"precision": "bf16", "non_blocking": True})], (), ()),
        ([run({})], (), ()),
        ([], (), ()),
        ([run({"precision": "bf16"})], ("non_blocking",), ()),
    ],
    ids=["no use", "used", "used by a rank", "used in a run", "nothing reported", "no run", "asked for"],
)
def test_a_change_is_idle_if_no_rank_of_any_run_shows_its_use(runs, kept, idle):
    assert idle_changes(TUNED, OWN, runs, kept) == idle


def test_settings_read_back_from_the_script_are_never_idle():
    assert idle_changes(TUNED, OWN, [run({"num_workers": 4})]) == ("non_blocking",)
    assert idle_changes(OWN, OWN, [run({"num_workers": 4})]) == ()


def worth(*settings, is_along=True, ratio=1.2):
    return Contribution(
        settings=settings, ratio=ratio, interval=None, is_least=False, from_trial=0, to_trial=1, is_along=is_along
    )


def test_what_changes_were_worth_is_told_without_the_idle_ones():
    both = worth("precision", "non_blocking")
    assert worth_without([both, worth("compile")], {"non_blocking"}) == (worth("precision"), worth("compile"))
    assert worth_without([both, worth("precision", is_along=False)], {"non_blocking"}) == (worth("precision"),)
    assert worth_without([both, worth("compile", is_along=False)], set()) == (both, worth("compile", is_along=False))


def test_a_chain_with_a_link_of_idle_changes_alone_is_not_told():
    chain = [worth("non_blocking"), worth("precision"), worth("compile", is_along=False)]
    assert worth_without(chain, {"non_blocking"}) == (worth("compile", is_along=False),)


def unused(settings):
    return replace(evaluate(by_workers, settings, 4 * GIB), ranks=(rank(observed={"in_order": True}),))


def test_settings_that_do_what_the_scripts_own_do_are_no_gain(folder, monkeypatch):
    """A lucky trial of a change without any effect was published as a gain of the script's own settings."""
    changeable = [name for name in Settings.__dataclass_fields__ if name not in ("knobs", "batch_size")]
    monkeypatch.setattr("autotune.verdict.in_force.UNSEEN_FIELDS", tuple(changeable))
    folder.runner.measure = unused
    result = folder.search()
    assert result.status is Status.NO_GAIN and result.speedup is None
    assert result.best.trial == result.baseline.trial and result.best.settings == result.baseline.settings
    assert any("ran as your own settings do: " in note and "changed nothing." in note for note in result.notes)


def test_changes_that_were_taken_back_are_named(folder, monkeypatch):
    monkeypatch.setattr("autotune.verdict.in_force.UNSEEN_FIELDS", ("prefetch_factor",))
    folder.runner.measure = lambda settings: replace(
        unused(settings), ranks=(rank(observed={"num_workers": settings.num_workers}),)
    )
    result = folder.search(ranges=(("num_workers", "0,2"),), fixed=())
    own, best = result.baseline.settings, result.best.settings
    assert result.status is Status.IMPROVED and best.prefetch_factor == own.prefetch_factor
    with folder.repository() as repository:
        measured = {trial.number: trial.settings for trial in repository.trials("train")}[result.best.trial]
    is_told = any("prefetch_factor=" in note and "your own value is kept" in note for note in result.notes)
    assert is_told is (measured.prefetch_factor != own.prefetch_factor)
