"""What the ending of a trial means, one rule at a time."""

from __future__ import annotations

import signal
from dataclasses import replace
from typing import Any

import pytest

from autotune.measure.block import Phase
from autotune.model.outcome import Outcome
from autotune.model.result import RaisedError, RankResult, RankStatus
from autotune.protocol.job import Mode
from autotune.settings import Precision, Settings
from autotune.settings.keras_backend import KerasBackend
from autotune.units import GIB
from autotune.verdict.judge import is_out_of_memory, judge, judge_probe, not_in_force
from tests.jobs import changed
from tests.unit.facts import script_facts
from tests.unit.runner.samples import block, ending, job, rank


def error(**changes: Any) -> RaisedError:
    values: dict[str, Any] = {"kind": "ValueError", "message": "no such column", "is_out_of_memory": False}
    return RaisedError(**{**values, **changes})


def raised(**changes: Any) -> Any:
    return rank(status=RankStatus.RAISED, blocks=(), num_steps=0, error=error(**changes))


def test_a_measured_trial_under_the_cap_is_ok() -> None:
    verdict = judge(job(), ending(), [rank()])
    assert verdict.outcome is Outcome.OK
    assert verdict.reason == ""
    assert verdict.measurement is not None
    assert verdict.measurement.samples_per_second == pytest.approx(6400)


@pytest.mark.parametrize(
    ("how", "outcome", "reason"),
    [
        ({"is_cancelled": True}, Outcome.INTERRUPTED, "by the tuner"),
        ({"launch_error": "there is no 'pyhton'"}, Outcome.CRASHED, "there is no 'pyhton'"),
        ({"is_over_cap": True, "peak_memory_bytes": 9 * GIB}, Outcome.OVER_CAP, "9.0 GiB, the cap is 8.0 GiB"),
        ({"is_over_host_cap": True, "peak_host_bytes": 9 * GIB}, Outcome.OVER_CAP, "9.0 GiB of the host's memory"),
        ({"is_shared_memory_full": True}, Outcome.OVER_CAP, "/dev/shm"),
    ],
)
def test_what_was_seen_from_outside_comes_before_any_report(how: dict[str, Any], outcome: Outcome, reason: str) -> None:
    verdict = judge(job(), ending(**how), [rank()])
    assert verdict.outcome is outcome
    assert reason in verdict.reason
    assert verdict.measurement is None


@pytest.mark.parametrize(
    ("how", "outcome", "reason"),
    [
        ({"is_time_spent": True}, Outcome.INTERRUPTED, "The time left for it"),
        ({"is_start_overrun": True}, Outcome.TIMED_OUT, "no optimizer step"),
        ({"is_total_overrun": True}, Outcome.TIMED_OUT, "did not end within"),
        ({"is_ending_overrun": True}, Outcome.TIMED_OUT, "neither reported nor ended"),
        ({"is_disk_full": True}, Outcome.INTERRUPTED, "temporary space"),
        ({"is_supervisor_killed": True}, Outcome.INTERRUPTED, "from outside"),
    ],
)
def test_a_trial_is_measured_once_its_window_is_over_whatever_ends_it_then(
    how: dict[str, Any], outcome: Outcome, reason: str
) -> None:
    verdict = judge(job(), ending(**how), [])
    assert verdict.outcome is outcome and reason in verdict.reason
    assert judge(job(), ending(**how), [rank()]).outcome is Outcome.OK


def test_an_error_comes_before_how_long_the_trial_took_to_end_after_it() -> None:
    verdict = judge(job(), ending(exit_code=None, is_ending_overrun=True), [raised()])
    assert (verdict.outcome, verdict.reason) == (Outcome.CRASHED, "ValueError: no such column")


def test_the_tuners_own_wish_comes_before_all_else() -> None:
    how = {"is_cancelled": True, "is_over_cap": True, "is_total_overrun": True, "launch_error": "x"}
    assert judge(job(), ending(**how), []).outcome is Outcome.INTERRUPTED


@pytest.mark.parametrize(
    ("number", "num_killed", "outcome", "reason"),
    [
        (signal.SIGKILL, 1, Outcome.OUT_OF_MEMORY, "kernel"),
        (signal.SIGKILL, 0, Outcome.INTERRUPTED, "from outside with SIGKILL"),
        (signal.SIGTERM, 0, Outcome.INTERRUPTED, "from outside with SIGTERM"),
        (signal.SIGHUP, 0, Outcome.INTERRUPTED, "from outside with SIGHUP"),
        (signal.SIGSEGV, 0, Outcome.CRASHED, "SIGSEGV"),
        (signal.SIGBUS, 0, Outcome.CRASHED, "shared memory"),
        (99, 0, Outcome.CRASHED, "signal 99"),
    ],
)
def test_a_signal_without_a_report(number: int, num_killed: int, outcome: Outcome, reason: str) -> None:
    verdict = judge(job(), ending(exit_code=None, signal=number, num_killed_by_kernel=num_killed), [])
    assert verdict.outcome is outcome
    assert reason in verdict.reason


def test_a_signal_after_all_ranks_have_measured_changes_nothing() -> None:
    assert judge(job(), ending(exit_code=None, signal=signal.SIGKILL), [rank()]).outcome is Outcome.OK


def test_a_signal_while_one_rank_was_still_measuring_counts() -> None:
    verdict = judge(job(), ending(exit_code=None, signal=signal.SIGSEGV), [rank(world_size=2)])
    assert verdict.outcome is Outcome.CRASHED


def test_no_report_is_a_crash_with_its_exit_code() -> None:
    verdict = judge(job(), ending(exit_code=3), [])
    assert verdict.outcome is Outcome.CRASHED
    assert "exit code 3" in verdict.reason


def test_a_launcher_that_passes_on_a_kill_by_the_kernel_ran_out_of_memory() -> None:
    assert judge(job(), ending(exit_code=137, num_killed_by_kernel=1), []).outcome is Outcome.OUT_OF_MEMORY
    assert judge(job(), ending(exit_code=137), []).outcome is Outcome.CRASHED


def test_an_unreadable_report_is_a_crash_that_says_why_on_one_line() -> None:
    verdict = judge(job(), ending(), [], "rank-0.json: it is\nno \x1b[2J report")
    assert verdict.outcome is Outcome.CRASHED
    assert "rank-0.json" in verdict.reason and verdict.reason.isprintable()


def test_a_missing_rank_is_a_crash_that_counts_them() -> None:
    verdict = judge(job(world_size=4), ending(), [rank(world_size=4), rank(rank=2, world_size=4)])
    assert verdict.outcome is Outcome.CRASHED
    assert "2 of 4" in verdict.reason


def test_an_exception_is_a_crash_with_its_first_line() -> None:
    verdict = judge(job(), ending(exit_code=1), [raised(message="no such column\nin the table")])
    assert verdict.outcome is Outcome.CRASHED
    assert verdict.reason == "ValueError: no such column"


def test_memory_that_was_refused_comes_before_other_exceptions() -> None:
    refused = rank(
        rank=1, world_size=2, status=RankStatus.RAISED, error=error(kind="OutOfMemoryError", is_out_of_memory=True)
    )
    other = rank(world_size=2, status=RankStatus.RAISED, error=error())
    assert judge(job(), ending(exit_code=1), [other, refused]).outcome is Outcome.OUT_OF_MEMORY


def test_memory_that_was_refused_without_a_word_is_named_by_its_kind() -> None:
    verdict = judge(job(), ending(exit_code=1), [raised(kind="MemoryError", message="", is_out_of_memory=True)])
    assert verdict.reason == "It ran out of memory: MemoryError"


def test_an_exception_beside_a_kill_by_the_kernel_ran_out_of_memory() -> None:
    lost = raised(kind="RuntimeError", message="DataLoader worker (pid 7) is killed by signal: Killed.")
    verdict = judge(job(), ending(exit_code=1, num_killed_by_kernel=1), [lost])
    assert verdict.outcome is Outcome.OUT_OF_MEMORY
    assert "worker" in verdict.reason


def test_words_like_out_of_memory_in_a_message_decide_nothing() -> None:
    assert judge(job(), ending(exit_code=1), [raised(message="out of memory")]).outcome is Outcome.CRASHED


def test_raised_without_an_exception_is_still_a_crash() -> None:
    assert judge(job(), ending(exit_code=1), [rank(status=RankStatus.RAISED)]).outcome is Outcome.CRASHED


def test_no_step_is_a_crash() -> None:
    verdict = judge(job(), ending(), [rank(status=RankStatus.ENDED, num_steps=0, blocks=())])
    assert verdict.outcome is Outcome.CRASHED
    assert "without one optimizer step" in verdict.reason


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"is_loss_finite": False}, "not finite"),
        ({"has_changed_parameters": False}, "No parameter changed"),
        ({"observed": {"num_workers": "unknown, since none was built"}}, "num_workers is unknown, since none"),
        ({"blocks": (block(),) * 3, "status": RankStatus.ENDED}, "ended before enough"),
        ({"blocks": (), "status": RankStatus.ENDED}, "ended before enough"),
        ({"blocks": (block(),) * 3}, "at its limit with too few steps"),
    ],
)
def test_what_does_not_hold_is_invalid_with_its_reason(changes: dict[str, Any], reason: str) -> None:
    verdict = judge(job(), ending(), [rank(**changes)])
    assert verdict.outcome is Outcome.INVALID
    assert reason in verdict.reason


def test_weights_that_stay_the_same_without_any_gradient_are_the_scripts_own_affair() -> None:
    own = replace(job(), facts=script_facts(first_grad_norm=0.0))
    assert judge(own, ending(), [rank(has_changed_parameters=False)]).outcome is Outcome.OK


FP16 = Settings(precision=Precision.FP16)


def skipping(num_skipped: int) -> Any:
    """A rank that skipped so many of the last of 200 steps of its window."""
    early = block(phase=Phase.WARMUP, num_skipped_steps=10)  # there the scale is found
    skipped = [max(0, min(10, num_skipped - 10 * before)) for before in range(20)]
    return rank(blocks=(early, *(block(num_skipped_steps=num) for num in reversed(skipped))))


@pytest.mark.parametrize("seen", [skipping(200), rank(blocks=())], ids=["in the window", "in the warm-up"])
def test_a_trial_whose_scaler_skipped_every_step_is_told_so(seen: RankResult) -> None:
    """A script of pytorch/examples in fp16: 'The script ended (exit code None) without one optimizer step'."""
    asked = job(settings=Settings(batch_size=64, precision=Precision.FP16))
    verdict = judge(asked, ending(exit_code=None), [replace(seen, num_steps=0, num_skipped_steps=210)])
    assert verdict.outcome is Outcome.INVALID
    assert verdict.reason == "All 210 optimizer steps were skipped because gradients overflowed."


@pytest.mark.parametrize(("num_skipped", "outcome"), [(10, Outcome.OK), (11, Outcome.INVALID)])
def test_a_twentieth_of_the_windows_steps_may_be_skipped_and_no_more(num_skipped: int, outcome: Outcome) -> None:
    for asked in (job(own_skipped_share=0.0), job(settings=Settings(batch_size=64, num_workers=2))):
        verdict = judge(asked, ending(), [skipping(num_skipped)])
        assert verdict.outcome is outcome
        assert ("11 of 200 optimizer steps" in verdict.reason) is (outcome is Outcome.INVALID)


@pytest.mark.parametrize("pins", [False, True])
@pytest.mark.parametrize(("num_skipped", "outcome"), [(11, Outcome.OK), (180, Outcome.OK), (181, Outcome.INVALID)])
def test_a_script_that_skips_many_steps_by_itself_is_measured_by_the_speed_of_all_steps(
    num_skipped: int, outcome: Outcome, pins: bool
) -> None:
    """Pytorch-UNet skipped 83 of 256 steps with made-up images, and its search ended without an answer."""
    own = replace(FP16, batch_size=64, pin_memory=pins)  # which a CPU cannot do, and canonical settings leave out
    asked = job(script_settings=own, settings=replace(own, pin_memory=False))
    verdict = judge(asked, ending(), [skipping(num_skipped)])
    assert verdict.outcome is outcome
    if outcome is Outcome.OK:
        assert verdict.measurement is not None and verdict.measurement.samples_per_second == pytest.approx(6400)


@pytest.mark.parametrize(
    ("precision", "own_share", "num_skipped", "outcome"),
    [
        (Precision.FP16, 0.3, 120, Outcome.OK),
        (Precision.FP16, 0.3, 121, Outcome.INVALID),
        (Precision.FP16, 0.6, 181, Outcome.INVALID),
        (Precision.BF16, 0.3, 11, Outcome.INVALID),
    ],
)
def test_in_the_format_of_such_a_script_settings_may_skip_twice_its_share(
    precision: Precision, own_share: float, num_skipped: int, outcome: Outcome
) -> None:
    asked = job(script_settings=FP16, settings=Settings(precision=precision), own_skipped_share=own_share)
    assert judge(asked, ending(), [skipping(num_skipped)]).outcome is outcome


@pytest.mark.parametrize(("own_share", "rate"), [(0.04, 6400 * 0.95), (0.06, 6400)])
def test_what_the_scripts_own_settings_skip_decides_which_samples_count_in_all_trials(
    own_share: float, rate: float
) -> None:
    for num_skipped in (9, 10):
        asked = job(script_settings=FP16, settings=replace(FP16, num_workers=2), own_skipped_share=own_share)
        verdict = judge(asked, ending(), [skipping(num_skipped)])
        assert verdict.measurement is not None
        assert verdict.measurement.samples_per_second == pytest.approx(rate, rel=0.006)


@pytest.mark.parametrize(("num_skipped", "outcome"), [(1, Outcome.OK), (0, Outcome.INVALID), (10, Outcome.INVALID)])
def test_a_loss_that_is_not_finite_is_harmless_where_the_scaler_skips_its_step_and_trains_on(
    num_skipped: int, outcome: Outcome
) -> None:
    """Pytorch-UNet's loss is nan now and then in fp16; the script goes on, and could not be searched."""
    blocks = (*(block(),) * 30, block(num_skipped_steps=num_skipped))
    assert judge(job(), ending(), [rank(blocks=blocks, is_loss_finite=False)]).outcome is outcome


@pytest.mark.parametrize(("num_late", "outcome"), [(1, Outcome.OK), (8, Outcome.INVALID)])
def test_a_skip_at_the_end_is_no_harm_and_eight_in_a_row_are(num_late: int, outcome: Outcome) -> None:
    steps = [block(num_steps=1, num_micro_batches=1) for _ in range(200)]
    late = [block(num_steps=1, num_micro_batches=1, num_skipped_steps=1) for _ in range(num_late)]
    assert judge(job(), ending(), [rank(blocks=(*steps, *late), is_loss_finite=False)]).outcome is outcome


def test_a_peak_that_only_a_validation_comes_to_is_told_apart() -> None:
    verdict = judge(job(), ending(peak_memory_bytes=9 * GIB, trained_bytes=5 * GIB), [rank()])
    assert verdict.outcome is Outcome.OVER_CAP
    assert "held 5.0 GiB" in verdict.reason and "needs 9.0 GiB with the script's validation" in verdict.reason
    verdict = judge(job(), ending(peak_memory_bytes=10 * GIB, trained_bytes=9 * GIB), [rank()])
    assert "validation" not in verdict.reason


def test_a_peak_over_the_cap_is_over_cap_even_when_it_was_measured() -> None:
    verdict = judge(job(), ending(peak_memory_bytes=8 * GIB + 1), [rank()])
    assert verdict.outcome is Outcome.OVER_CAP
    assert verdict.measurement is None
    assert judge(job(), ending(peak_memory_bytes=8 * GIB), [rank()]).outcome is Outcome.OK
    assert judge(job(), ending(peak_memory_bytes=None), [rank()]).outcome is Outcome.OK


def test_a_raced_out_trial_keeps_its_bound() -> None:
    verdict = judge(job(), ending(), [rank(status=RankStatus.RACED_OUT)])
    assert verdict.outcome is Outcome.RACED_OUT
    assert verdict.measurement is not None


def test_figures_that_no_training_has_are_a_crash_and_no_error_of_ours() -> None:
    verdict = judge(job(), ending(), [rank(blocks=(block(num_samples=1e308, duration_s=1e-300),) * 12)])
    assert verdict.outcome is Outcome.CRASHED
    assert "impossible" in verdict.reason


# Settings asked and in force ----------------------------------------------------------------------------------------


SPLIT = Settings(batch_size=32, grad_accum_steps=2)


@pytest.mark.parametrize(
    ("asked", "observed", "reason"),
    [
        (Settings(batch_size=64, num_workers=2), {"num_workers": "3"}, "Asked for num_workers 2, in force was 3."),
        (SPLIT, {"grad_accum_steps": "3"}, "Asked for grad_accum_steps 2, in force was 3."),
        (SPLIT, {"grad_accum_steps": "2.25"}, "took 2.25 batches each on average, not 2 as"),
        (SPLIT, {"grad_accum_steps": "0.33"}, "several steps with a batch"),
    ],
)
def test_what_was_asked_for_and_is_not_in_force_is_invalid(
    asked: Settings, observed: dict[str, str], reason: str
) -> None:
    verdict = judge(job(settings=asked), ending(), [rank(observed=observed)])
    assert verdict.outcome is Outcome.INVALID
    assert reason in verdict.reason


@pytest.mark.parametrize(
    "observed",
    [
        {"num_workers": "3", "batch_size": "32", "precision": "bf16"},
        {"channels_last": "True", "intra_op_threads": "16", "omp_wait_policy": "passive"},
        {"grad_accum_steps": "1.25"},
        {"memory_fraction": "0.3"},
    ],
)
def test_what_nobody_asked_for_never_makes_the_baseline_invalid(observed: dict[str, str]) -> None:
    baseline = job(device="cuda", cap_fraction=0.5)
    assert judge(baseline, ending(), [rank(observed=observed)]).outcome is Outcome.OK


def test_beside_what_was_asked_for_the_script_may_move_what_trains_the_same() -> None:
    trial = job(settings=Settings(batch_size=64, num_workers=2))
    seen = rank(observed={"num_workers": "2", "intra_op_threads": "4", "grad_accum_steps": "1.25"})
    assert judge(trial, ending(), [seen]).outcome is Outcome.OK


def test_beside_what_was_asked_for_the_script_may_not_train_another_batch() -> None:
    trial = job(settings=Settings(batch_size=64, num_workers=2))
    verdict = judge(trial, ending(), [rank(observed={"num_workers": "2", "batch_size": "32"})])
    assert verdict.outcome is Outcome.INVALID
    assert verdict.reason == "The script changed its own batch_size from 64 to 32 under these settings."


def test_a_script_with_tf32_of_its_own_may_keep_it_beside_another_format() -> None:
    """nanoGPT sets allow_tf32 and has its own autocast: no product is left in fp32 for the switch to change."""
    own = Settings(batch_size=64, precision=Precision.BF16)
    trial = job(settings=replace(own, compile=True), script_settings=own, device="cuda")
    assert judge(trial, ending(), [rank(observed={"compile": True, "matmul_precision": "high"})]).outcome is Outcome.OK


def test_inert_settings_are_not_compared() -> None:
    asked = Settings(batch_size=64, num_workers=0, prefetch_factor=4, pin_memory=True)
    seen = {"prefetch_factor": "2", "persistent_workers": "False", "pin_memory": "False"}
    assert not_in_force(job(settings=asked), rank(observed=seen)) == ""


def test_what_could_not_be_seen_is_not_compared() -> None:
    assert not_in_force(job(settings=Settings(batch_size=64, num_workers=4)), rank(observed={})) == ""


def test_a_mapped_setting_that_nobody_saw_in_force_is_a_difference() -> None:
    asked = job(settings=Settings(batch_size=64, num_workers=4), mapped=("num_workers",))
    assert "num_workers 4 through the script's argument" in not_in_force(asked, rank(observed={}))
    assert not_in_force(asked, rank(observed={"num_workers": "4"})) == ""
    assert not_in_force(changed(asked, settings=asked.script_settings), rank(observed={})) == ""


def test_a_precision_that_is_not_in_force_is_a_difference() -> None:
    asked = Settings(batch_size=64, precision=Precision.BF16)
    assert "precision bf16, in force was fp32" in not_in_force(
        job(settings=asked), rank(observed={"precision": "fp32"})
    )


@pytest.mark.parametrize(("seen", "is_different"), [("0.12", False), ("0.13", False), ("0.14", True), ("", True)])
def test_a_share_that_engines_round_is_compared_with_the_rounding(seen: str, is_different: bool) -> None:
    settings = Settings(batch_size=64, keras_backend=KerasBackend.JAX, engine_memory_fraction=0.125)
    asked = job(device="cuda", settings=settings)
    missed = not_in_force(asked, rank(observed={"engine_memory_fraction": seen, "keras_backend": "jax"}))
    assert ("engine_memory_fraction" in str(missed)) is is_different


@pytest.mark.parametrize(
    ("seen", "is_different"),
    [("0.5", False), ("0.5004", False), ("0.505", True), ("much", True), ("nan", True), ("", True)],
)
def test_a_memory_fraction_is_the_smaller_of_setting_and_cap(seen: str, is_different: bool) -> None:
    asked = job(device="cuda", cap_fraction=0.5, settings=Settings(batch_size=64, memory_fraction=0.9))
    assert bool(not_in_force(asked, rank(observed={"memory_fraction": seen}))) is is_different


# Probes -------------------------------------------------------------------------------------------------------------


def probe(**changes: Any) -> Any:
    return rank(status=RankStatus.PROBED, blocks=(), facts=script_facts(), **changes)


def test_a_probe_with_facts_taught_something_however_it_ended() -> None:
    asked = job(mode=Mode.PROBE, settings=None, facts=None)
    assert judge_probe(asked, ending(), [probe()]) == ""
    assert judge_probe(asked, ending(exit_code=None, signal=signal.SIGSEGV), [probe()]) == ""


@pytest.mark.parametrize(
    ("how", "ranks", "reason"),
    [
        ({"exit_code": 0}, [rank(status=RankStatus.ENDED, num_steps=0, blocks=())], "without one optimizer step"),
        (
            {"exit_code": 0},
            [rank(status=RankStatus.ENDED, num_steps=0, blocks=(), empty_loaders=("train.py:9",))],
            "DataLoader built at train.py:9 gave no batch",
        ),
        ({"exit_code": 2}, [], "exit code 2"),
        ({"exit_code": 1}, [raised()], "no such column"),
        ({"exit_code": None, "signal": signal.SIGSEGV}, [], "SIGSEGV"),
        ({"is_total_overrun": True}, [probe()], "did not end within"),
        ({"launch_error": "there is no 'x'"}, [], "there is no 'x'"),
    ],
)
def test_a_probe_that_taught_nothing_says_why(how: dict[str, Any], ranks: list[Any], reason: str) -> None:
    assert reason in judge_probe(job(mode=Mode.PROBE, settings=None, facts=None), ending(**how), ranks)


def test_a_probe_ran_out_of_memory_at_the_cap_by_the_kernel_or_by_an_allocator() -> None:
    assert is_out_of_memory(ending(is_over_cap=True), [])
    assert is_out_of_memory(ending(num_killed_by_kernel=1), [])
    assert is_out_of_memory(ending(), [raised(is_out_of_memory=True)])
    assert not is_out_of_memory(ending(), [raised()])


@pytest.mark.parametrize(
    ("how", "is_host"),
    [
        ({"is_over_cap": True}, False),
        ({"is_over_host_cap": True}, True),
        ({"is_shared_memory_full": True}, True),
    ],
)
def test_it_is_said_whose_memory_did_not_suffice(how: dict[str, Any], is_host: bool) -> None:
    trial = job(device="cuda", host_cap_bytes=8 * GIB)
    assert judge(trial, ending(**how), []).lacks_host_memory is is_host
    assert is_out_of_memory(ending(**how), [])


@pytest.mark.parametrize("is_host", [True, False])
def test_refused_memory_is_the_hosts_or_the_devices_as_the_error_says(is_host: bool) -> None:
    refused = raised(message="no room", is_out_of_memory=True, is_host_memory=is_host)
    verdict = judge(job(device="cuda"), ending(exit_code=1), [refused])
    assert verdict.outcome is Outcome.OUT_OF_MEMORY
    assert verdict.lacks_host_memory is is_host


def test_an_abort_after_a_reported_error_is_that_error() -> None:
    message = "CUDA error: device-side assert triggered"
    aborted = ending(exit_code=None, signal=signal.SIGABRT)
    verdict = judge(job(), aborted, [raised(kind="AcceleratorError", message=message)])
    assert verdict.outcome is Outcome.CRASHED
    assert "device-side assert" in verdict.reason
    assert "SIGABRT" in judge(job(), aborted, []).reason
