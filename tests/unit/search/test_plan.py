"""The stages of the plan: given these finished trials, what comes next."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotune.model.outcome import Outcome
from autotune.search.bounds import Bounds
from autotune.search.history import FinishedTrial, History
from autotune.search.plan import COMPILE_STAGE, PlanFinished, plan
from autotune.search.plan_state import PlanLimits
from autotune.settings import OmpWaitPolicy, Precision, Settings
from autotune.space.search_space import SearchSpace
from autotune.units import GIB
from tests.benchmarks.search.family import make_space

CAP_BYTES = 8 * GIB


def accelerator(*, batch_size=64, num_workers=0, **allowed):
    script_settings = Settings(num_workers=num_workers, batch_size=batch_size, intra_op_threads=4)
    return make_space(script_settings, {"num_workers": (0, 1, 2, 4, 6, 8), **allowed}, device_is_cpu=False)


def processor(*, batch_size=64, **allowed):
    script_settings = Settings(batch_size=batch_size, intra_op_threads=4)
    values = {
        "num_workers": (0, 1, 2, 3, 4),
        "intra_op_threads": (1, 2, 3, 4),
        "omp_wait_policy": ("default", "passive"),
    }
    return make_space(script_settings, {**values, **allowed}, device_is_cpu=True)


def trial(number, settings, rate=100.0, *, compute=None, peak=1.0, wait=0.0, outcome=Outcome.OK):
    """Peak in GiB; the compute-only rate is the rate unless it is given."""
    return FinishedTrial(
        number=number,
        settings=settings,
        stage="",
        outcome=outcome,
        samples_per_second=rate if outcome.is_complete else None,
        peak_memory_bytes=round(peak * GIB) if peak is not None else None,
        compute_samples_per_second=(compute or rate) if outcome.is_complete else None,
        data_wait_fraction=wait if outcome.is_complete else None,
        half_width_ratio=0.02,
    )


def next_of(
    space: SearchSpace, *trials: FinishedTrial, cpus=8.0, fixed_gib=0.0, num_loaders=1, has_bf16_instructions=False
):
    script_settings = space.script_settings.canonical(device_is_cpu=space.device_is_cpu)
    limits = PlanLimits(
        usable_cpus=cpus,
        cap_bytes=CAP_BYTES,
        fixed_bytes=fixed_gib * GIB,
        num_loaders=num_loaders,
        has_bf16_instructions=has_bf16_instructions,
    )
    return plan(History(trials, script_settings), space, limits)


def settings_of(space: SearchSpace, *trials: FinishedTrial, **machine) -> Settings:
    candidate = next_of(space, *trials, **machine)
    assert not isinstance(candidate, PlanFinished)
    return candidate.settings


def own(space: SearchSpace, **changes) -> Settings:
    return replace(space.script_settings, **changes).canonical(device_is_cpu=space.device_is_cpu)


@pytest.mark.parametrize("space", [accelerator(), processor()], ids=["accelerator", "cpu"])
def test_without_a_trial_the_baseline_is_next(space):
    assert settings_of(space) == own(space)


@pytest.mark.parametrize(
    ("has_instructions", "wait", "changed"),
    [
        (True, 0.0, {"precision", "channels_last"}),
        (False, 0.0, {"keep_freed_memory"}),
        (True, 0.6, {"keep_freed_memory"}),
    ],
)
def test_on_a_cpu_with_products_in_bf16_both_formats_come_first_unless_the_script_waits_for_data(
    has_instructions: bool, wait: float, changed: set[str]
) -> None:
    space = processor(precision=("fp32", "bf16"), channels_last=(False, True), keep_freed_memory=(False, True))
    baseline = trial(0, own(space), 50.0, wait=wait)
    following = settings_of(space, baseline, has_bf16_instructions=has_instructions)
    assert following.differences(own(space)).keys() == changed


def test_on_a_cpu_formats_that_are_slower_are_left_for_the_next_step() -> None:
    space = processor(precision=("fp32", "bf16"), keep_freed_memory=(False, True))
    trials = [trial(0, own(space), 50.0), trial(1, own(space, precision=Precision.BF16), 40.0)]
    assert settings_of(space, trials[0], has_bf16_instructions=True) == trials[1].settings
    following = settings_of(space, *trials, has_bf16_instructions=True)
    assert following.differences(own(space)).keys() == {"keep_freed_memory"}


def test_on_a_cpu_memory_that_steps_ask_for_again_and_again_is_kept_before_all_else():
    space = processor(keep_freed_memory=(False, True), precision=("fp32", "bf16"))
    assert settings_of(space, trial(0, own(space))) == own(space, keep_freed_memory=True)


def test_on_an_accelerator_memory_is_kept_after_the_usual_gains():
    space = accelerator(keep_freed_memory=(False, True), precision=("fp32", "bf16"))
    trials = [trial(0, own(space))]
    while not isinstance(found := next_of(space, *trials), PlanFinished):
        trials.append(trial(len(trials), found.settings, 150.0 + 20.0 * found.settings.keep_freed_memory))
    first = [each.settings.keep_freed_memory for each in trials].index(True)
    assert trials[1].settings.precision == trials[first].settings.precision == "bf16" and first > 1


def test_after_the_baseline_what_usually_helps_is_tried_at_once_with_the_workers_that_feed_it():
    space = accelerator(precision=("fp32", "bf16"), channels_last=(False, True), pin_memory=(False, True))
    # Loading takes as long as computing: at twice the compute-only rate two workers and a little are needed.
    following = settings_of(space, trial(0, own(space), 50.0, compute=100.0, wait=0.5))
    assert (following.precision, following.channels_last, following.pin_memory) == (Precision.BF16, True, True)
    assert following.num_workers == 2


def test_without_time_for_another_process_the_usual_gains_are_those_that_need_none():
    """Two ranks took 28 s to start again for `gradient_as_bucket_view`, and 120 s had no time left for finals."""
    space = accelerator(
        precision=("fp32", "bf16"),
        channels_last=(False, True),
        gradient_as_bucket_view=(False, True),
        pin_memory=(False, True),
        batch_size=32,
    )
    script_settings = own(space)
    limits = PlanLimits(
        usable_cpus=8.0,
        cap_bytes=CAP_BYTES,
        can_go_on=lambda settings: (
            not (settings.gradient_as_bucket_view or settings.channels_last or settings.pin_memory)
        ),
    )
    history = History((trial(0, script_settings, 50.0, compute=100.0, wait=0.5),), script_settings)
    short, usual = plan(history, space, limits), plan(history, space, PlanLimits(usable_cpus=8.0, cap_bytes=CAP_BYTES))
    assert short.settings.differences(script_settings).keys() == {"precision", "num_workers"}
    left_out = {"channels_last", "gradient_as_bucket_view", "pin_memory"}
    assert usual.settings.differences(short.settings).keys() == left_out


def with_knob(space: SearchSpace) -> SearchSpace:
    """The space of a script with a storage format as an argument that the user declared."""
    name, values = "knobs.storage", ("folder", "lmdb")
    own = replace(space.script_settings, knobs=(("storage", "folder"),))
    return replace(
        space,
        script_settings=own,
        domains={**space.domains, name: values},
        allowed={**space.allowed, name: values},
    )


def test_on_a_cpu_the_users_own_choice_is_tried_before_anything_else():
    space = with_knob(processor(keep_freed_memory=(False, True), precision=("fp32", "bf16")))
    assert settings_of(space, trial(0, own(space), 50.0, wait=0.9)).knobs == (("storage", "lmdb"),)


def test_on_an_accelerator_the_users_own_choice_follows_the_usual_gains():
    space = with_knob(accelerator(precision=("fp32", "bf16"), compile=(False, True)))
    first = trial(0, own(space), 50.0)
    usual = trial(1, settings_of(space, first), 80.0)
    assert usual.settings.precision is Precision.BF16 and usual.settings.knobs == (("storage", "folder"),)
    third = settings_of(space, first, usual)
    assert (third.knobs, third.precision) == ((("storage", "lmdb"),), Precision.BF16)


@pytest.mark.parametrize(
    ("methods", "method"), [(("default", "fork"), "fork"), (("default", "fork", "spawn", "forkserver"), "forkserver")]
)
def test_workers_that_inherited_spawn_are_forked_in_the_first_jump(methods, method):
    for space in (accelerator(multiprocessing_context=methods), processor(multiprocessing_context=methods)):
        following = settings_of(space, trial(0, own(space), 50.0, compute=100.0, wait=0.5))
        if method == "fork" or not space.device_is_cpu:
            assert following.num_workers and following.multiprocessing_context == method


def test_cudnns_search_is_not_among_the_first_changes_of_a_script_that_waits_for_data():
    space = accelerator(cudnn_benchmark=(False, True), channels_last=(False, True), num_workers=4)
    waits = settings_of(space, trial(0, own(space), 50.0, compute=100.0, wait=0.5))
    assert (waits.cudnn_benchmark, waits.channels_last) == (False, True)
    assert settings_of(space, trial(0, own(space), 98.0, compute=100.0, wait=0.01)).cudnn_benchmark


def test_where_cudnn_searches_for_each_size_the_loader_is_tried_before_the_formats():
    """YOLOX on an H200 spent 183 s on its first trial in bf16, and never tried the workers that it lacked."""
    space = accelerator(precision=("fp32", "bf16"), channels_last=(False, True), num_workers=4)
    quick = trial(0, own(space), 84.0, compute=115.0, wait=0.24)
    assert settings_of(space, quick).precision is Precision.BF16
    searched = replace(quick, kernel_search_s=55.0)
    first = settings_of(space, searched)
    assert (first.precision, first.channels_last, first.num_workers > 4) == (Precision.FP32, False, True)
    second = settings_of(space, searched, trial(1, first, 104.0, compute=115.0, wait=0.05))
    assert (second.precision, second.channels_last, second.num_workers) == (Precision.BF16, True, first.num_workers)
    fed = trial(0, own(space), 84.0, compute=85.0, wait=0.01)
    assert settings_of(space, replace(fed, kernel_search_s=55.0)).precision is Precision.BF16


@pytest.mark.parametrize(("rate", "outcome"), [(70.0, Outcome.OK), (None, Outcome.CRASHED), (70.0, Outcome.RACED_OUT)])
def test_a_loader_that_failed_or_was_slower_alone_is_not_part_of_the_dear_trial(rate, outcome):
    space = accelerator(precision=("fp32", "bf16"), channels_last=(False, True), num_workers=4)
    searched = replace(trial(0, own(space), 84.0, compute=115.0, wait=0.24), kernel_search_s=55.0)
    alone = trial(1, settings_of(space, searched), rate or 1.0, outcome=outcome)
    dear = settings_of(space, searched, alone)
    assert (dear.precision, dear.num_workers) == (Precision.BF16, 4)


def test_without_more_workers_to_try_the_dear_trial_is_the_first():
    space = make_space(
        Settings(num_workers=4, batch_size=64),
        {"num_workers": (4,), "pin_memory": (False, True), "precision": ("fp32", "bf16")},
        device_is_cpu=False,
    )
    searched = replace(trial(0, own(space), 84.0, compute=115.0, wait=0.24), kernel_search_s=55.0)
    assert settings_of(space, searched).precision is Precision.BF16


def test_a_loader_that_keeps_the_device_waiting_gets_the_workers_that_its_rate_asks_for():
    """Four workers of sixteen cores that deliver 700 of 1,900 samples per second are too few by a factor of 2.7."""
    space = make_space(Settings(num_workers=4, batch_size=64), {"num_workers": (4, 8, 12, 16, 24)}, device_is_cpu=False)
    usual = settings_of(space, trial(0, own(space), 700.0, compute=1900.0, wait=0.6), cpus=16.0)
    assert usual.num_workers == 16


def test_more_workers_than_cores_become_a_worker_per_core():
    """Scripts that take the machine's count start 64 workers where a job may use 16 cores."""
    space = make_space(Settings(num_workers=64, batch_size=4), {"num_workers": (8, 16, 32, 64)}, device_is_cpu=False)
    usual = settings_of(space, trial(0, own(space), 86.0, compute=244.0, wait=0.6), cpus=16.0)
    assert usual.num_workers == 16


def test_the_workers_of_two_loaders_share_the_cores():
    space = make_space(Settings(num_workers=2, batch_size=64), {"num_workers": (2, 4, 8, 16)}, device_is_cpu=False)
    baseline = trial(0, own(space), 700.0, compute=6000.0, wait=0.6)
    assert settings_of(space, baseline, cpus=16.0).num_workers == 16
    assert settings_of(space, baseline, cpus=16.0, num_loaders=2).num_workers == 8


def test_where_little_else_is_left_the_usual_gains_include_a_compiled_model():
    space = make_space(
        Settings(batch_size=64), {"compile": (False, True), "non_blocking": (False, True)}, device_is_cpu=False
    )
    usual = settings_of(space, trial(0, own(space), 100.0, compute=100.0, wait=0.0))
    assert usual.compile


def test_a_script_that_compiles_by_itself_grows_its_micro_batch_beside_small_gains():
    script_settings = Settings(batch_size=16, grad_accum_steps=4, compile=True, precision=Precision.BF16)
    values = {"split": (4, 5, 6), "non_blocking": (False, True)}
    space = make_space(script_settings, values, device_is_cpu=False)
    following = settings_of(space, trial(0, own(space), peak=0.5))
    assert following.non_blocking and following.batch_size > 16
    full = settings_of(space, trial(0, own(space), peak=7.5))
    assert full == own(space, non_blocking=True)


def with_modes(modes=("default", "regional", "reduce-overhead")) -> SearchSpace:
    return accelerator(precision=("fp32", "bf16"), compile=(False, True), compile_mode=modes)


@pytest.mark.parametrize(("utilization", "mode"), [(0.3, "reduce-overhead"), (0.95, "regional"), (None, "regional")])
def test_a_compiled_model_follows_the_usual_gains_and_an_idle_device_gets_cuda_graphs(utilization, mode):
    space = with_modes()
    baseline = replace(trial(0, own(space)), device_utilization=utilization)
    following = settings_of(space, baseline, trial(1, settings_of(space, baseline), 90.0))
    assert (following.compile, following.compile_mode, following.precision) == (True, mode, Precision.BF16)


@pytest.mark.parametrize(("own_share", "usual_share", "mode"), [(0.9, 0.4, "reduce-overhead"), (0.4, 0.9, "regional")])
def test_an_idle_device_is_one_that_idles_beside_the_usual_gains(own_share, usual_share, mode):
    """Half precision leaves a busy device to the host's launches, and workers feed a device that waited for data."""
    space = with_modes()
    baseline = replace(trial(0, own(space)), device_utilization=own_share)
    usual = replace(trial(1, settings_of(space, baseline), 110.0), device_utilization=usual_share)
    assert settings_of(space, baseline, usual).compile_mode == mode


@pytest.mark.parametrize(("own_share", "usual_share", "mode"), [(0.9, 0.4, "reduce-overhead"), (0.4, 0.9, "regional")])
def test_gains_that_exclude_each_other_or_start_slowly_are_the_usual_ones_all_the_same(own_share, usual_share, mode):
    """A copy on a stream of its own makes `non_blocking` inert; cuDNN's search is left out where data is waited for."""
    switches = dict.fromkeys(("non_blocking", "stream_prefetch", "cudnn_benchmark", "compile"), (False, True))
    space = accelerator(precision=("fp32", "bf16"), compile_mode=("default", "regional", "reduce-overhead"), **switches)
    baseline = replace(trial(0, own(space), 50.0, compute=100.0, wait=0.5), device_utilization=own_share)
    usual = settings_of(space, baseline)
    assert (usual.stream_prefetch, usual.non_blocking, usual.cudnn_benchmark) == (True, False, False)
    following = settings_of(space, baseline, replace(trial(1, usual, 95.0), device_utilization=usual_share))
    assert (following.compile, following.compile_mode) == (True, mode)


def test_an_idle_device_gets_compiled_regions_where_the_model_allows_no_graphs():
    space = with_modes(("default", "regional"))
    baseline = replace(trial(0, own(space)), device_utilization=0.3)
    assert settings_of(space, baseline, trial(1, settings_of(space, baseline), 110.0)).compile_mode == "regional"


def test_where_launches_bind_formats_and_graphs_come_before_more_workers():
    """The loader keeps up with a device that idles: more workers gain 5 % at most, and fewer launches far more."""
    formats, modes = ("fp32", "tf32", "bf16"), ("default", "regional", "reduce-overhead")
    space = accelerator(num_workers=2, precision=formats, compile=(False, True), compile_mode=modes)
    baseline = replace(trial(0, own(space), 100.0, compute=112.0, wait=0.1), device_utilization=0.25)
    usual = replace(trial(1, settings_of(space, baseline), 120.0, compute=135.0, wait=0.1), device_utilization=0.2)
    third = settings_of(space, baseline, usual)
    assert third == replace(usual.settings, precision=Precision.TF32)
    for rate in (110.0, 130.0):
        tried = [baseline, usual, replace(trial(2, third, rate, compute=rate * 1.1, wait=0.1), device_utilization=0.3)]
        compiled = settings_of(space, *tried)
        changes = {"compile": True, "compile_mode": "reduce-overhead", "precision": Precision.BF16}
        assert compiled == replace(usual.settings, **changes)
        tried.append(trial(3, compiled, 300.0, compute=500.0, wait=0.4))
        assert settings_of(space, *tried).num_workers > compiled.num_workers


def test_a_device_that_idles_for_want_of_data_gets_workers_first():
    space = accelerator(num_workers=2, precision=("fp32", "tf32", "bf16"), compile=(False, True))
    baseline = replace(trial(0, own(space), 50.0, compute=100.0, wait=0.5), device_utilization=0.25)
    usual = settings_of(space, baseline)
    following = settings_of(
        space, baseline, replace(trial(1, usual, 60.0, compute=150.0, wait=0.6), device_utilization=0.2)
    )
    assert following == replace(usual, num_workers=following.num_workers) != usual


def crowded(**allowed):
    """Two workers of the script, and four threads, on four cores."""
    return accelerator(num_workers=2, precision=("fp32", "tf32", "bf16"), intra_op_threads=(1, 2, 4), **allowed)


def test_threads_that_crowd_the_workers_on_an_accelerators_host_are_halved_before_all_else():
    """Little wait for data, and a cached batch trains five times as fast: the operations wait for cores."""
    space = crowded(omp_wait_policy=("default", "passive"))
    baseline = replace(trial(0, own(space), 20.0, compute=100.0, wait=0.5), device_utilization=0.05)
    usual = replace(
        trial(1, settings_of(space, baseline, cpus=4.0), 40.0, compute=200.0, wait=0.01), device_utilization=0.05
    )
    half = settings_of(space, baseline, usual, cpus=4.0)
    assert half == replace(usual.settings, intra_op_threads=2)
    faster = [baseline, usual, replace(trial(2, half, 90.0, compute=200.0, wait=0.04), device_utilization=0.1)]
    single = settings_of(space, *faster, cpus=4.0)
    assert single == replace(half, intra_op_threads=1)
    sleeping = settings_of(space, *faster, trial(3, single, 80.0, compute=200.0, wait=0.04), cpus=4.0)
    assert sleeping == replace(half, omp_wait_policy=OmpWaitPolicy.PASSIVE)


@pytest.mark.parametrize(("threads", "is_tried"), [((1, 2, 4), False), ((4,), True)], ids=["no help", "fixed"])
def test_threads_sleep_where_fewer_helped_or_are_not_to_be_had(threads, is_tried):
    space = accelerator(num_workers=2, intra_op_threads=threads, omp_wait_policy=("default", "passive"))
    baseline = trial(0, own(space), 20.0, compute=100.0, wait=0.5)
    tried = [baseline, trial(1, settings_of(space, baseline, cpus=4.0), 40.0, compute=200.0, wait=0.01)]
    if not is_tried:
        tried.append(trial(2, settings_of(space, *tried, cpus=4.0), 39.0, compute=200.0, wait=0.01))
        assert tried[-1].settings.intra_op_threads == 2
    following = next_of(space, *tried, cpus=4.0)
    is_asleep = not isinstance(following, PlanFinished) and following.settings.omp_wait_policy is OmpWaitPolicy.PASSIVE
    assert is_asleep is is_tried


@pytest.mark.parametrize(
    ("rate", "wait", "cpus"),
    [(190.0, 0.01, 4.0), (60.0, 0.7, 4.0), (40.0, 0.01, 16.0)],
    ids=["nothing is lost", "the loader is slow", "cores for all"],
)
def test_threads_are_left_alone_where_they_crowd_nobody(rate, wait, cpus):
    space = crowded()
    baseline = trial(0, own(space), 20.0, compute=100.0, wait=0.5)
    usual = trial(1, settings_of(space, baseline, cpus=cpus), rate, compute=200.0, wait=wait)
    following = next_of(space, baseline, usual, cpus=cpus)
    assert isinstance(following, PlanFinished) or following.settings.intra_op_threads == 4


def test_a_script_that_compiles_by_itself_gets_no_trial_for_it():
    """Its usual gains were slower; the same gains without their part of the loader are nothing that compiles."""
    script_settings = Settings(batch_size=64, compile=True)
    values = {"num_workers": (0, 2, 4), "precision": ("fp32", "bf16"), "pin_memory": (False, True)}
    space = make_space(script_settings, values, device_is_cpu=False)
    baseline = trial(0, own(space), 95.0, compute=100.0, wait=0.02)
    following = next_of(space, baseline, trial(1, settings_of(space, baseline), 60.0, compute=60.0, wait=0.0))
    assert isinstance(following, PlanFinished) or following.stage != COMPILE_STAGE


def test_a_mode_that_the_model_does_not_allow_gives_way_to_the_default():
    space = with_modes(("default", "max-autotune"))
    baseline = trial(0, own(space))
    following = settings_of(space, baseline, trial(1, settings_of(space, baseline), 150.0))
    assert (following.compile, following.compile_mode) == (True, "default")


def test_no_model_is_compiled_for_a_loader_that_cannot_keep_up():
    space = with_modes()
    baseline = trial(0, own(space), 50.0, compute=100.0, wait=0.5)
    following = next_of(space, baseline, trial(1, settings_of(space, baseline), 60.0, compute=300.0, wait=0.6))
    assert isinstance(following, PlanFinished) or not following.settings.compile


def test_where_what_usually_helps_fails_together_the_loaders_part_is_tried_alone():
    space = accelerator(
        precision=("fp32", "tf32", "bf16"), channels_last=(False, True), compile=(False, True), pin_memory=(False, True)
    )
    finished = [trial(0, own(space), 50.0, compute=100.0, wait=0.5)]
    together = settings_of(space, *finished)
    finished.append(trial(1, together, outcome=Outcome.INVALID))
    following = settings_of(space, *finished)
    assert (following.precision, following.channels_last, following.pin_memory) == (Precision.FP32, False, True)
    assert following.num_workers == together.num_workers


def test_a_baseline_over_the_cap_is_followed_by_a_quarter_of_its_micro_batch():
    space = accelerator(batch_size=64, split=tuple(range(7)))
    following = settings_of(space, trial(0, own(space), outcome=Outcome.OUT_OF_MEMORY, peak=None))
    assert (following.batch_size, following.grad_accum_steps) == (16, 4)


def test_the_smallest_micro_batch_over_the_cap_is_followed_by_half_the_width():
    space = accelerator(batch_size=4, split=(0, 1, 2), precision=("fp32", "bf16"))
    failed = [
        trial(number, own(space, batch_size=size, grad_accum_steps=4 // size), outcome=Outcome.OUT_OF_MEMORY, peak=None)
        for number, size in enumerate((4, 1))
    ]
    following = settings_of(space, *failed)
    assert (following.batch_size, following.precision) == (1, Precision.BF16)


def free(batch_size: int) -> SearchSpace:
    """A space of micro-batches alone, on an accelerator."""
    sizes = tuple(size for size in (4, 8, 16, 32, 64, 128, 256) if size >= min(batch_size, 8))
    return make_space(Settings(batch_size=batch_size), {"batch_size": sizes}, device_is_cpu=False)


def test_what_did_not_help_a_small_micro_batch_is_tried_again_when_it_has_grown():
    allowed = {"batch_size": (8, 64), "precision": ("fp32", "bf16"), "channels_last": (False, True)}
    space = make_space(Settings(batch_size=8, num_workers=1), allowed, device_is_cpu=False)
    half = {"precision": "bf16", "channels_last": True}
    small = [trial(0, own(space), 100.0), trial(1, own(space, **half), 90.0)]
    large = trial(2, own(space, batch_size=64), 600.0, peak=2.0)
    assert settings_of(space, *small, large) == own(space, **half, batch_size=64)
    failed = trial(1, own(space, **half), outcome=Outcome.INVALID)
    assert isinstance(next_of(space, small[0], failed, large), PlanFinished)


def test_a_model_is_compiled_once_at_the_micro_batch_that_was_found_without():
    """Four sizes of a compiled model took 38 s each, of a search of five minutes."""
    allowed = {"batch_size": (8, 64), "precision": ("fp32", "bf16"), "compile": (False, True)}
    space = make_space(Settings(batch_size=8, num_workers=1), allowed, device_is_cpu=False)
    bf16 = {"precision": "bf16"}
    small = [trial(0, own(space), 100.0), trial(1, own(space, **bf16), 150.0)]
    large = own(space, **bf16, batch_size=64)
    assert settings_of(space, *small) == large
    assert settings_of(space, *small, trial(2, large, 600.0, peak=2.0)) == replace(large, compile=True)
    again = trial(2, large, 140.0, peak=2.0)
    assert settings_of(space, *small, again) == own(space, **bf16, compile=True), "it has not grown"


def test_a_micro_batch_that_surely_fits_is_tried_at_once_in_a_bounded_step():
    space = free(16)
    assert settings_of(space, trial(0, own(space), peak=1.0)).batch_size == 128


def test_where_growth_in_proportion_would_not_fit_a_small_micro_batch_is_probed_first():
    space = free(64)
    assert settings_of(space, trial(0, own(space), peak=6.0)).batch_size == 16


def test_the_line_through_two_micro_batches_gives_the_largest_that_fits():
    space = free(64)
    trials = [trial(0, own(space), 100.0, peak=5.0), trial(1, own(space, batch_size=16), 50.0, peak=4.7)]
    assert settings_of(space, *trials).batch_size == 256


def test_what_does_not_grow_with_the_micro_batch_lets_it_grow_further():
    space = free(64)
    baseline = trial(0, own(space), peak=4.5)
    assert settings_of(space, baseline).batch_size == 16
    assert settings_of(space, baseline, fixed_gib=3.0).batch_size == 128


def test_a_larger_micro_batch_that_should_gain_no_more_than_the_noise_is_not_tried():
    space = free(64)
    trials = [trial(0, own(space), 100.0, peak=5.0), trial(1, own(space, batch_size=16), 99.5, peak=4.0)]
    assert isinstance(next_of(space, *trials), PlanFinished)


def test_with_nothing_smaller_to_probe_the_next_larger_micro_batch_is_the_probe():
    space = free(8)
    assert settings_of(space, trial(0, own(space), peak=7.5)).batch_size == 16


def test_after_a_larger_micro_batch_over_the_cap_nothing_as_large_is_tried_again():
    space = free(8)
    trials = [
        trial(0, own(space), peak=7.5),
        trial(1, own(space, batch_size=16), outcome=Outcome.OUT_OF_MEMORY, peak=6.0),
    ]
    assert isinstance(next_of(space, *trials), PlanFinished)


def test_where_no_loader_could_feed_the_compute_a_worker_per_core_comes_first_and_fewer_next():
    space = accelerator(compile=(False, True))
    # One core loads 12.5 samples/s, eight of them 100 at most.
    baseline = trial(0, own(space), 1 / (1 / 1000 + 1 / 12.5), compute=1000.0, wait=0.9)
    usual = settings_of(space, baseline)
    following = settings_of(space, baseline, trial(1, usual, 80.0, compute=1000.0, wait=0.9))
    assert not following.compile
    assert usual.num_workers == 8
    assert following.num_workers < usual.num_workers


def test_an_accelerator_that_hardly_waits_gets_no_more_workers():
    space = accelerator(num_workers=2)
    baseline = trial(0, own(space), 99.0, compute=100.0, wait=0.01)
    usual = settings_of(space, baseline)
    finished = next_of(space, baseline, trial(1, usual, 99.0, compute=100.0, wait=0.01))
    assert isinstance(finished, PlanFinished)


def test_on_a_cpu_workers_and_threads_share_the_cores_from_the_first_try():
    space = processor()
    following = settings_of(space, trial(0, own(space), 50.0, compute=100.0), cpus=4.0)
    assert following.num_workers + following.intra_op_threads <= 4
    assert following.num_workers > 0


def test_on_a_cpu_the_workers_of_two_loaders_and_the_threads_share_the_cores():
    space = processor()
    following = settings_of(space, trial(0, own(space), 50.0, compute=100.0), cpus=4.0, num_loaders=2)
    assert 0 < 2 * following.num_workers <= 4 - following.intra_op_threads


def test_on_a_cpu_threads_that_crowd_the_workers_sleep_at_once():
    space = processor(intra_op_threads=(4,))
    following = settings_of(space, trial(0, own(space), 50.0, compute=100.0), cpus=4.0)
    assert following.omp_wait_policy == OmpWaitPolicy.PASSIVE


def test_a_second_micro_batch_tells_what_others_would_gain():
    space = free(64)
    trials = [trial(0, own(space), 100.0), trial(1, own(space, batch_size=32), 50.0)]
    bounds = Bounds(History(trials, own(space)), device_is_cpu=False)
    assert bounds.batch_gain(own(space), 128) == pytest.approx(2.0)
    assert bounds.batch_gain(own(space), 32) == pytest.approx(0.5)


def test_one_micro_batch_with_several_accumulations_tells_nothing_of_other_micro_batches():
    space = free(64)
    trials = [trial(n, own(space, grad_accum_steps=n + 1), 100.0 + n) for n in range(3)]
    assert Bounds(History(trials, own(space)), device_is_cpu=True).batch_gain(own(space), 128) is None
    smaller = trial(3, own(space, batch_size=32), 51.0)
    bounds = Bounds(History([*trials, smaller], own(space)), device_is_cpu=True)
    assert bounds.batch_gain(own(space), 32) == pytest.approx(0.5)


def test_a_finished_plan_holds_while_the_trials_that_it_visited_are_the_same():
    space = accelerator(num_workers=2)
    trials = [trial(0, own(space), 99.0, compute=100.0, wait=0.01)]
    trials.append(trial(1, settings_of(space, *trials), 99.0, compute=100.0, wait=0.01))
    finished = next_of(space, *trials)
    assert isinstance(finished, PlanFinished)
    elsewhere = trial(2, own(space, num_workers=8), 120.0)
    assert finished.holds_for(History([*trials, elsewhere], own(space)))
    again = trial(3, own(space), 200.0)
    assert not finished.holds_for(History([*trials, again], own(space)))
