from __future__ import annotations

import math
from dataclasses import replace

import pytest

from autotune.model.facts import ArgumentFacts
from autotune.protocol.job import Mode
from autotune.settings import OmpWaitPolicy, Settings, variables_of
from autotune.settings.compile_mode import CompileMode
from autotune.space.script_settings import script_settings_of
from autotune.study.jobs import Jobs
from autotune.study.target import make_target
from autotune.units import GIB, MIB
from tests.unit.facts import cpu_machine, gpu_machine, script_facts, search_spec


def jobs(**spec):
    facts = script_facts()
    asked = search_spec(memory_cap="4GiB", **spec)
    return Jobs(
        spec=asked,
        target=make_target(asked, cpu_machine().device),
        facts=facts,
        script_settings=script_settings_of(facts),
    )


def test_the_baseline_changes_neither_command_nor_environment():
    made = jobs(maps=(("batch_size", "--batch-size={}"),))
    assert made.script_settings is not None
    job = made.trial(made.script_settings)
    assert job.command == ("python", "train.py")
    assert job.environment == ()


def test_a_look_at_the_whole_of_the_cap_leaves_the_settings_as_they_are():
    device = replace(gpu_machine().device, total_bytes=85_029_158_912)
    for cap_bytes in range(2 * GIB, 70 * GIB, 99_700_003):
        asked = search_spec(memory_cap=f"{cap_bytes}B")
        target, facts = make_target(asked, device), script_facts(device="cuda")
        made = Jobs(spec=asked, target=target, facts=facts, script_settings=script_settings_of(facts))
        settings, guard = made.script_settings, int(target.cap_fraction * target.device.total_bytes)
        assert made.look(settings, guard).request.settings.memory_fraction == settings.memory_fraction
        assert made.look(settings, guard - MIB).request.settings.memory_fraction < target.cap_fraction


def test_a_probe_that_hangs_takes_no_longer_than_the_search_may():
    limits = [jobs(budget_s=budget_s).probe().start_limit_s for budget_s in (20.0, 400.0, 900.0, 1e6)]
    assert limits == [20.0, 400.0, 900.0, 900.0]


def test_a_trial_that_builds_code_may_start_later():
    made = jobs()
    assert made.script_settings is not None
    plain, compiled, timed = (
        made.trial(replace(made.script_settings, compile=is_compiled, compile_mode=mode)).start_limit_s
        for is_compiled, mode in (
            (False, CompileMode.MAX_AUTOTUNE),
            (True, CompileMode.REDUCE_OVERHEAD),
            (True, CompileMode.MAX_AUTOTUNE),
        )
    )
    assert compiled >= plain + 60 and timed >= plain + 300


def test_mapped_settings_are_arguments():
    made = jobs(maps=(("batch_size", "--batch-size={}"),))
    assert made.script_settings is not None
    job = made.trial(replace(made.script_settings, batch_size=16, grad_accum_steps=4))
    assert job.command[-1] == "--batch-size=16"
    assert job.mapped == ("batch_size",)


TAKEN = (ArgumentFacts(name="num_workers", template="-j={}", is_taken=True),)


@pytest.mark.parametrize(
    ("spec", "is_final", "arguments"),
    [
        ({"start": "live"}, False, ()),
        ({"start": "live"}, True, ("-j=2",)),
        ({"start": "fresh"}, False, ("-j=2",)),
        ({"start": "live", "maps": (("num_workers", "--workers={}"),)}, False, ("--workers=2",)),
    ],
)
def test_a_process_that_serves_several_trials_gets_workers_without_the_argument_found_by_the_probe(
    spec, is_final, arguments
):
    made = jobs(**spec)
    made = replace(made, facts=replace(made.facts, arguments=TAKEN))
    job = made.trial(replace(made.script_settings, num_workers=2), is_final=is_final)
    assert job.command[2:] == arguments
    assert job.mapped == (("num_workers",) if arguments else ())


def test_threads_and_wait_policy_are_set_before_the_interpreter_starts():
    script_settings = Settings(intra_op_threads=2)
    asked = replace(script_settings, intra_op_threads=1, omp_wait_policy=OmpWaitPolicy.PASSIVE)
    assert variables_of(asked, {}, script_settings) == {
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "OMP_WAIT_POLICY": "PASSIVE",
    }


def test_finals_measure_longer_and_do_not_race():
    made = jobs()
    assert made.script_settings is not None
    trial = made.trial(made.script_settings, incumbent=100.0)
    final = made.trial(made.script_settings, incumbent=100.0, is_final=True)
    assert trial.request.incumbent_samples_per_second == 100.0
    assert final.request.incumbent_samples_per_second is None
    assert (trial.request.window.half_width_ratio, final.request.window.half_width_ratio) == (0.05, 0.02)
    assert trial.request.window.min_block_s == final.request.window.min_block_s == 0.05
    assert final.request.window.max_window_s > trial.request.window.max_window_s


def test_long_steps_get_a_long_window_and_a_late_limit():
    slow = replace(jobs(), facts=script_facts(step_s=3.0))
    assert slow.script_settings is not None
    job = slow.trial(slow.script_settings)
    assert job.request.window.max_window_s == 36.0
    assert job.total_limit_s > job.start_limit_s + 36.0


def test_a_split_probe_takes_the_loss_for_a_mean():
    made = jobs()
    job = made.split_probe(Settings(batch_size=32, grad_accum_steps=2))
    assert job.mode is Mode.SPLIT_PROBE
    assert job.facts is not None
    assert job.facts.loss_reduction == "mean"


def test_a_finals_window_keeps_to_the_time_that_is_left_and_stays_of_use():
    made = jobs()
    assert made.script_settings is not None
    limits = {
        limit_s: made.trial(made.script_settings, is_final=True, window_limit_s=limit_s).request.window
        for limit_s in (1, 5, 99)
    }
    assert [window.max_window_s for window in limits.values()] == [3.0, 5.0, 12.0]
    assert {window.min_window_s for window in limits.values()} == {3.0}


def test_long_steps_are_given_long_windows_even_in_short_finals():
    made = replace(jobs(), facts=script_facts(step_s=2.0))
    assert made.script_settings is not None
    window = made.trial(made.script_settings, is_final=True, window_limit_s=1.0).request.window
    assert window.max_window_s == 12.0


def test_where_time_is_short_a_trial_measures_half_of_the_usual_steps_and_no_less():
    """Under --time 2m a script with steps of 5 s measured its baseline for a minute, and was cut off."""
    made = replace(jobs(), facts=script_facts(step_s=5.0))
    assert made.script_settings is not None
    longest = {limit: made.trial(made.script_settings, window_limit_s=limit) for limit in (1.0, 40.0, math.inf)}
    assert [job.request.window.max_window_s for job in longest.values()] == [30.0, 40.0, 60.0]


def test_a_larger_batch_is_probed_under_the_settings_as_they_are_with_time_for_its_steps():
    made = jobs()
    assert made.script_settings is not None
    trial, probe = made.trial(made.script_settings), made.batch_probe(made.script_settings, 4)
    assert (trial.request.batch_probe_factor, probe.request.batch_probe_factor) == (None, 4)
    assert probe.request.settings == trial.request.settings
    assert probe.total_limit_s - probe.start_limit_s == 4 * (trial.total_limit_s - trial.start_limit_s)


def test_what_the_probe_saw_outside_the_allocator_goes_with_every_trial():
    made = replace(jobs(), facts=script_facts(outside_allocator_bytes=123))
    assert made.script_settings is not None
    assert made.trial(made.script_settings).outside_allocator_bytes == 123
    assert jobs().probe().outside_allocator_bytes is None
