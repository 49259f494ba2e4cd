"""The cap on a CUDA device holds while the trial runs, and its figures are those that NVML sees."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotune.model.outcome import Outcome
from autotune.model.result import TrialResult
from autotune.settings import Settings
from autotune.units import GIB, MIB, format_bytes
from tests.gpu.bench import Bench, note, rank_of, said, used_when_settled
from tests.unit.facts import script_facts

pytestmark = pytest.mark.gpu

CAP = "6GiB"


def test_the_allocators_share_is_set_before_the_script_and_read_back(bench: Bench, plain: TrialResult) -> None:
    assert plain.outcome is Outcome.OK, plain.reason + plain.log_tail
    fraction = bench.probed("trains.py").target.cap_fraction
    assert 0.5 < fraction < 1.0
    assert said(plain)["fraction"] == pytest.approx(fraction, abs=1e-4)
    assert float(rank_of(plain).observed["memory_fraction"]) == pytest.approx(fraction, abs=1e-4)


@pytest.mark.parametrize("options", ["", "max_split_size_mb:512"])
def test_segments_that_grow_are_seen_in_force_beside_the_users_options(
    bench: Bench, plain: TrialResult, options: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if options:
        monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", options)
    assert rank_of(plain).observed["expandable_segments"] is False
    result = bench.run(bench.trial(bench.probed("trains.py"), expandable_segments=True))
    assert result.outcome is Outcome.OK, result.reason + result.log_tail
    assert rank_of(result).observed["expandable_segments"] is True


def test_copies_that_do_not_wait_are_counted(bench: Bench) -> None:
    result = bench.run(bench.trial(bench.probed("trains.py"), pin_memory=True, non_blocking=True))
    assert result.outcome is Outcome.OK, result.reason + result.log_tail
    assert rank_of(result).observed["non_blocking"] is True


def test_a_script_that_takes_another_share_than_asked_for_is_invalid(bench: Bench) -> None:
    job = bench.trial(bench.probed("trains.py"), memory_fraction=0.4)
    result = bench.run(replace(job, command=(*job.command, "--own-fraction"), cap_fraction=0.5))
    assert result.outcome is Outcome.INVALID, result.reason + result.log_tail
    assert "memory_fraction" in result.reason


def test_a_script_that_takes_another_share_by_itself_is_measured_with_it(bench: Bench) -> None:
    job = bench.trial(bench.probed("trains.py"))
    result = bench.run(replace(job, command=(*job.command, "--own-fraction"), cap_fraction=0.5))
    assert result.outcome is Outcome.OK, result.reason + result.log_tail
    assert rank_of(result).observed["memory_fraction"] != 0.5


def test_more_than_the_allocators_share_is_out_of_memory_and_stays_under_the_cap(bench: Bench) -> None:
    before = used_when_settled(bench)
    jobs = bench.probed("grows.py", cap=CAP)
    # What the script holds when it is refused is what counts, not how fast it got there.
    handle = bench.runner.start(replace(bench.trial(jobs), start_limit_s=120.0, total_limit_s=180.0))
    handle.wait()
    seen = handle.memory.device.peak_bytes
    result = handle.result()
    assert result.outcome is Outcome.OUT_OF_MEMORY, result.reason + result.log_tail
    assert seen <= 6 * GIB, f"NVML saw {format_bytes(seen)} under a cap of {CAP}"
    assert result.peak_memory_bytes is not None and result.peak_memory_bytes > 5 * GIB
    assert not result.lacks_host_memory
    note("peak by NVML when the allocator refused, cap 6 GiB", format_bytes(seen))
    assert abs(used_when_settled(bench) - before) < GIB // 2


def test_what_lies_outside_the_allocator_is_measured(bench: Bench, plain: TrialResult) -> None:
    probed = bench.probed("trains.py").facts
    assert probed is not None and probed.outside_allocator_bytes is not None
    assert 50 * MIB < probed.outside_allocator_bytes < 4 * GIB
    assert plain.outside_allocator_bytes is not None
    assert 50 * MIB < plain.outside_allocator_bytes < 4 * GIB
    note("outside the allocator, in the probe", format_bytes(probed.outside_allocator_bytes))
    note("outside the allocator, in a trial", format_bytes(plain.outside_allocator_bytes))


def test_the_peak_of_a_trial_is_what_nvml_sees(bench: Bench) -> None:
    used_when_settled(bench)
    handle = bench.runner.start(bench.trial(bench.probed("trains.py")))
    handle.wait()
    seen = handle.memory.device.peak_bytes
    result = handle.result()
    assert result.outcome is Outcome.OK, result.reason + result.log_tail
    rank = rank_of(result)
    assert rank.peak_reserved_bytes is not None and result.peak_memory_bytes is not None
    assert rank.peak_reserved_bytes < result.peak_memory_bytes
    assert result.peak_memory_bytes == pytest.approx(seen, rel=0.1, abs=200 * MIB)
    note("peak of a trial, by NVML from outside", format_bytes(seen))
    note("peak of a trial, as recorded", format_bytes(result.peak_memory_bytes))


def test_memory_outside_of_any_share_is_seen_by_the_parent_and_ends_the_run(bench: Bench) -> None:
    before = used_when_settled(bench)
    jobs = replace(
        bench.jobs("allocates.py", str(20 * GIB)), facts=script_facts(device="cuda"), script_settings=Settings()
    )
    job = replace(jobs.trial(Settings()), cap_bytes=4 * GIB, cap_fraction=1.0)
    result = bench.run(job)
    assert result.outcome is Outcome.OVER_CAP, result.reason + result.log_tail
    assert result.peak_memory_bytes is not None and 4 * GIB < result.peak_memory_bytes < 12 * GIB
    assert "held" not in result.log_tail
    assert abs(used_when_settled(bench) - before) < GIB // 2


def test_a_validation_that_the_probe_saw_counts_though_trials_end_before_it(bench: Bench) -> None:
    jobs = bench.probed("validates.py")
    assert jobs.facts is not None and jobs.facts.validation_bytes is not None
    assert 2 * GIB < jobs.facts.validation_bytes < 4 * GIB
    result = bench.run(bench.trial(jobs))
    assert result.outcome is Outcome.OK, result.reason + result.log_tail
    assert "validated" not in result.log_tail
    assert result.peak_memory_bytes is not None and result.peak_memory_bytes > 2 * GIB
    roomy = bench.trial(jobs)
    tight = bench.run(replace(roomy, cap_bytes=2 * GIB))
    assert tight.outcome is Outcome.OVER_CAP, tight.reason + tight.log_tail


def test_an_allocator_that_gives_back_and_asks_again_is_near_the_cap(bench: Bench, plain: TrialResult) -> None:
    result = bench.run(bench.trial(bench.probed("thrashes.py", cap=CAP)))
    assert result.outcome is Outcome.OK, result.reason + result.log_tail
    assert rank_of(result).num_alloc_retries > 2
    assert result.is_near_cap
    assert not plain.is_near_cap
    note("retries of an allocator at its cap", str(rank_of(result).num_alloc_retries))


def test_the_cap_holds_in_the_probe_too_and_is_not_taken_for_the_scripts_own(bench: Bench) -> None:
    facts = bench.probed("trains.py").facts
    assert facts is not None and not facts.own_memory_fraction
    handle = bench.runner.start(bench.jobs("allocates.py", str(20 * GIB), cap="2GiB").probe())
    handle.wait()
    seen = handle.memory.device.peak_bytes
    result = handle.probe_result()
    assert result.is_out_of_memory, result.reason + result.log_tail
    assert result.facts is None
    assert seen <= 2 * GIB, f"NVML saw {format_bytes(seen)}"
