from __future__ import annotations

import math
from dataclasses import replace

import pytest

from autotune.settings import Precision, Settings
from autotune.settings.compile_mode import BUILD_S, UNCOMPILED, CompileMode, build_of
from autotune.study.budget import (
    CAUTION,
    ENDING_SHARE,
    FINAL_WINDOW_S,
    FINALS_SHARE,
    LEAST_ROUNDS,
    LIMIT_FACTOR,
    MOST_FINALISTS,
    NOISY_SHARE,
    NUM_FINALISTS,
    NUM_ROUNDS,
    TRIALS_PER_FINALIST,
    Budget,
)
from autotune.study.run_times import LEAST_FINAL_WINDOW_S, REBUILD_SHARE, RunTimes


class Clock:
    def __init__(self):
        self.now_s = 1000.0

    def __call__(self):
        return self.now_s


def test_time_of_earlier_runs_is_spent():
    clock = Clock()
    budget = Budget(100.0, 60.0, clock)
    clock.now_s += 15.0
    assert (budget.spent_s, budget.left_s) == (75.0, 25.0)


def test_time_left_is_never_negative():
    clock = Clock()
    budget = Budget(100.0, 0.0, clock)
    clock.now_s += 500.0
    assert budget.left_s == 0.0


def test_the_finals_are_reserved():
    clock = Clock()
    budget = Budget(600.0, 0.0, clock)
    for _ in range(4 * NUM_FINALISTS):
        budget.runs.trial_took(10.0, window_s=4.0)
    reserve_s = NUM_ROUNDS * (1 + NUM_FINALISTS) * budget.final_s
    clock.now_s += 600.0 - reserve_s - 11.0
    assert budget.allows_trial()
    clock.now_s += 2.0
    assert not budget.allows_trial()


def test_the_first_trial_is_always_allowed():
    assert Budget(1.0, 5.0, Clock()).allows_trial()


def test_unsaved_time_is_what_passed_since_it_was_asked():
    clock = Clock()
    budget = Budget(100.0, 60.0, clock)
    clock.now_s += 3.0
    assert budget.unsaved_s() == 3.0
    clock.now_s += 2.0
    assert budget.unsaved_s() == 2.0


def test_a_short_search_spends_its_time_on_trials():
    clock = Clock()
    budget = Budget(600.0, 0.0, clock)
    for _ in range(2):
        budget.runs.trial_took(10.0, window_s=4.0)
    clock.now_s += 600.0 - LEAST_ROUNDS * 2 * budget.least_final_s - 11.0
    assert budget.allows_trial()
    clock.now_s += 2.0
    assert not budget.allows_trial()


def test_the_second_trial_may_take_the_time_of_the_finals_and_no_more_than_a_tenth_beyond_it():
    clock = Clock()
    budget = Budget(100.0, 0.0, clock)
    clock.now_s += 60.0
    budget.runs.trial_took(30.0, window_s=2.0)
    assert budget.allows_trial()
    clock.now_s += 19.0
    assert budget.allows_trial()
    clock.now_s += 2.0
    assert not budget.allows_trial()


def test_a_round_is_afforded_if_it_ends_before_its_runs_would_be_cut():
    clock = Clock()
    budget = Budget(100.0, 0.0, clock)
    budget.runs.trial_took(20.0, window_s=4.0)
    clock.now_s += 100.0 * (1.1 - ENDING_SHARE) - 2 * budget.least_final_s
    assert budget.affords_last_round((0, 1)) and not budget.affords_last_round((0, 1, 2))


def test_a_slow_trial_is_ended_before_it_spends_the_time_of_the_finals():
    """Two trials of imagenet's resnet50 took 15 s beside their windows; the third one compiled for a minute."""
    clock = Clock()
    budget = Budget(180.0, 0.0, clock)
    clock.now_s += 60.0
    budget.runs.trial_took(20.0, window_s=5.0, number=0)
    assert budget.left_to_trials_s == pytest.approx((1.1 - ENDING_SHARE) * 180.0 - 60.0)
    budget.runs.trial_took(20.0, window_s=5.0, number=1)
    left_s = (1.1 - ENDING_SHARE) * 180.0 - 60.0
    assert budget.left_to_trials_s == pytest.approx(left_s - 4 * budget.least_final_s)
    assert budget.limit_s(0.0, is_alone=True) == pytest.approx(left_s - CAUTION * 4 * budget.least_final_s)


@pytest.mark.parametrize("total_s", [120.0, 180.0, 300.0, 600.0])
@pytest.mark.parametrize("start_s", [5.0, 10.0, 20.0, 40.0])
@pytest.mark.parametrize("is_live", [False, True])
@pytest.mark.parametrize("is_alone", [False, True])
def test_a_trial_that_may_begin_has_its_expected_time(total_s, start_s, is_live, is_alone):
    clock = Clock()
    budget = Budget(total_s, 0.0, clock)
    budget.runs.trial_took(start_s + 5.0, window_s=5.0, number=0, startup_s=start_s)
    budget.runs.trial_took(start_s + 5.0, window_s=5.0, number=1)
    if is_live:
        budget.allow_sharing(lambda: True)
        budget.runs.trial_took(8.0, window_s=5.0, number=2, is_fresh=False, switch_s=1.0)
    budget.keep_for((0, 1))
    while budget.spare_s(is_alone=is_alone) >= budget.trial_s():
        assert budget.limit_s(budget.trial_s(), is_alone=is_alone) >= budget.trial_s()
        clock.now_s += 1.0


def test_a_round_costs_what_its_own_contenders_take_to_start():
    clock = Clock()
    budget = Budget(100.0, 0.0, clock)
    for number, wall_s in enumerate((20.0, 22.0, 80.0)):
        budget.runs.trial_took(wall_s, window_s=4.0, number=number)
    clock.now_s += 55.0
    assert budget.affords_last_round((0, 1)) and not budget.affords_last_round((0, 2))


def test_enough_time_is_what_is_spent_with_the_runs_that_are_missing():
    budget = Budget(60.0, 50.0, Clock())
    budget.runs.trial_took(20.0, window_s=4.0)
    assert budget.enough_s(num_rivals=0) == 50.0 + 20.0 + 4 * budget.least_final_s
    assert budget.enough_s(num_rivals=1) == 50.0 + 4 * budget.least_final_s
    assert budget.enough_s(num_rivals=2) == 50.0 + 6 * budget.least_final_s


def test_enough_time_after_finals_in_one_process_has_the_start_of_another():
    budget = Budget(60.0, 50.0, Clock())
    budget.allow_sharing(lambda: True)
    budget.runs.trial_took(20.0, window_s=4.0, number=0)
    budget.keep_for((0, 1))
    budget.share_process()
    assert budget.enough_s(num_rivals=2) == 50.0 + 3 * budget.round_s((0, 1)) + budget.runs.shared_process_s((0, 1))


def test_as_many_finalists_as_the_time_allows():
    clock = Clock()
    budget = Budget(6000.0, 5400.0, clock)
    budget.runs.trial_took(10.0)
    clock.now_s += 200.0
    assert budget.affordable_finalists() == NUM_FINALISTS
    clock.now_s += 400.0 - NUM_ROUNDS * 3 * budget.final_s - 1.0
    assert budget.affordable_finalists() == 2
    clock.now_s += 1000.0
    assert budget.affordable_finalists() == 1


def test_trials_that_ended_early_do_not_make_finals_look_short():
    budget = Budget(600.0, 0.0, Clock())
    budget.runs.trial_took(12.0, window_s=4.0)
    whole_s = budget.final_s
    for _ in range(20):
        budget.runs.trial_took(3.0)
    assert budget.final_s == whole_s == 8.0 + FINAL_WINDOW_S


def test_slow_trials_of_late_are_expected_again():
    clock = Clock()
    budget = Budget(600.0, 0.0, clock)
    for wall_s in (5.0, 5.0, 5.0, 5.0, 5.0, 5.0, 40.0, 40.0):
        budget.runs.trial_took(wall_s, window_s=2.0)
    clock.now_s += 600.0 - budget.reserve_s - 30.0
    assert budget.allows_trial()
    budget.runs.trial_took(40.0, window_s=2.0)
    clock.now_s = 1000.0 + 600.0 - budget.reserve_s - 30.0
    assert not budget.allows_trial()


def test_a_final_tells_what_the_next_one_takes():
    budget = Budget(600.0, 0.0, Clock())
    budget.runs.trial_took(10.0, window_s=4.0)
    for _ in range(8):
        budget.runs.final_took(30.0, window_s=5.0)
    assert budget.around_s == 25.0
    assert budget.least_final_s == 25.0 + LEAST_FINAL_WINDOW_S


def test_windows_share_what_is_left_and_are_never_of_no_use():
    clock = Clock()
    budget = Budget(100.0, 0.0, clock)
    budget.runs.trial_took(10.0, window_s=4.0)
    assert budget.final_window_s(10 * [0]) == 4.0
    assert budget.final_window_s([0]) == max(FINAL_WINDOW_S, budget.around_s)
    clock.now_s += 99.0
    assert budget.final_window_s(10 * [0]) == LEAST_FINAL_WINDOW_S


def test_windows_are_shorter_where_a_contender_compiles_for_long():
    budget = Budget(160.0, 0.0, Clock())
    budget.runs.trial_took(8.0, window_s=4.0, number=0)
    assert budget.final_window_s([0, 1, 0, 1]) == FINAL_WINDOW_S
    budget.runs.trial_took(73.0, window_s=4.0, number=1, settings=COMPILED)
    assert budget.final_window_s([0, 1, 0, 1]) == 160.0 / 4 - (4.0 + 69.0) / 2
    assert budget.final_window_s([1, 0]) == FINAL_WINDOW_S


def test_long_steps_need_long_windows_however_little_time_is_left():
    budget = Budget(100.0, 90.0, Clock())
    budget.runs.trial_took(40.0, window_s=20.0)
    assert budget.least_final_s == 20.0 + 10.0
    assert budget.final_window_s(6 * [0]) == 10.0
    assert budget.final_s == 40.0


COMPILED = Settings(compile=True)
COMPILATION_S = BUILD_S["default"]


def test_a_compilation_is_kept_time_when_the_compiled_model_leads():
    """Simulated GPU searches of five minutes ended too short: the finals of a compiled winner had no time."""
    clock = Clock()
    budget = Budget(300.0, 0.0, clock)
    budget.runs.trial_took(18.0, window_s=3.0, number=0, settings=Settings())
    budget.runs.trial_took(18.0, window_s=3.0, number=1, settings=Settings(num_workers=2))
    budget.keep_for((0, 1))
    plain_s = budget.reserve_s
    assert plain_s == LEAST_ROUNDS * 2 * (15.0 + LEAST_FINAL_WINDOW_S)
    budget.runs.trial_took(53.0, window_s=3.0, number=2, settings=COMPILED)
    budget.keep_for((0, 2))
    assert budget.reserve_s == plain_s + LEAST_ROUNDS * 35.0


def test_a_first_compilation_is_expected_to_take_long_in_the_trial_and_in_the_finals():
    budget = Budget(300.0, 0.0, Clock())
    for number in (0, 1):
        budget.runs.trial_took(18.0, window_s=3.0, number=number)
    assert budget.trial_s(COMPILED) == budget.trial_s() + COMPILATION_S
    assert budget.spare_s(COMPILED) == budget.spare_s() - LEAST_ROUNDS * COMPILATION_S


def test_a_compiled_second_trial_leaves_the_time_of_compiled_finals():
    budget = Budget(120.0, 0.0, Clock())
    budget.runs.trial_took(18.0, window_s=3.0, number=0)
    assert budget.spare_s() > 120.0
    assert budget.spare_s(COMPILED) < 120.0 - LEAST_ROUNDS * (2 * 15.0 + COMPILATION_S)


def test_a_compiled_second_trial_may_take_the_time_of_finals_that_could_not_begin_anyway():
    budget = Budget(120.0, 24.0, Clock())
    budget.runs.trial_took(30.0, window_s=10.0, number=0)
    assert budget.spare_s(COMPILED) == budget.spare_s() > 96.0


def test_a_compiled_trial_leaves_the_time_of_finals_that_the_waiting_process_can_measure():
    """BERT by a Trainer, 41 s to the first step: with two minutes a build took the time of all further trials."""
    budget = Budget(120.0, 27.0, Clock())
    budget.allow_sharing(lambda: True)
    budget.runs.trial_took(44.0, window_s=3.0, number=0)
    budget.runs.trial_took(4.5, number=1, is_fresh=False, switch_s=0.0)
    assert budget.spare_s() > 93.0, "a plain trial is needed for any comparison"
    assert budget.spare_s(COMPILED) == budget.spare_s() - LEAST_ROUNDS * 2 * (4.0 + LEAST_FINAL_WINDOW_S)


def test_a_script_that_compiles_by_itself_gets_its_second_trial_like_any_other():
    budget = Budget(120.0, 0.0, Clock())
    budget.runs.trial_took(53.0, window_s=3.0, number=0, settings=COMPILED)
    assert budget.spare_s(COMPILED) > 120.0


def test_windows_of_a_process_shared_by_several_trials_do_not_make_finals_look_cheap():
    budget = Budget(300.0, 0.0, Clock())
    budget.runs.trial_took(18.0, window_s=3.0, number=0)
    for number in range(1, 9):
        budget.runs.trial_took(3.5, window_s=3.0, number=number, is_fresh=False)
    budget.allow_sharing(lambda: True)
    assert budget.around_s == 15.0
    assert budget.trial_s() == 3.5


def test_a_trial_costs_a_start_where_no_process_waits():
    """After a trial ran out of memory, the next was expected to take 3 s, and took 18 s of the finals' time."""
    budget = Budget(300.0, 0.0, Clock())
    budget.runs.trial_took(18.0, window_s=3.0, number=0)
    budget.runs.trial_took(38.0, window_s=3.0, number=1, settings=COMPILED, is_fresh=False, switch_s=35.0)
    budget.runs.trial_took(3.0, window_s=3.0, number=2, is_fresh=False, switch_s=0.0)
    waiting = [False]
    budget.allow_sharing(lambda: waiting[0])
    assert (budget.trial_s(), budget.trial_s(COMPILED)) == (18.0, 53.0)
    waiting[0] = True
    assert budget.trial_s() == 3.0


def test_finals_of_steps_longer_than_a_second_are_expected_to_have_four_of_them():
    """nanoGPT has steps of 1.4 s: a final expected to take 10 s took 13 s, and the second run of the round was cut."""
    budget = Budget(120.0, 30.0, Clock())
    budget.allow_sharing(lambda: True)
    budget.runs.trial_took(20.5, window_s=5.6, num_blocks=4, number=0)
    assert budget.runs.least_window_s == 5.6
    budget.runs.trial_took(5.0, window_s=3.0, num_blocks=60, number=1, is_fresh=False, switch_s=0.1)
    budget.runs.trial_took(5.0, window_s=3.0, num_blocks=60, number=2, is_fresh=False, switch_s=0.1)
    assert budget.runs.least_window_s == LEAST_FINAL_WINDOW_S


def test_the_first_trial_in_the_waiting_process_is_not_expected_to_take_the_time_of_a_start():
    """Else two minutes end with the script's own settings alone, though 40 s are left and a switch takes two."""
    budget = Budget(120.0, 27.0, Clock())
    budget.runs.trial_took(53.0, window_s=3.0, number=0)
    waits = [True]
    budget.allow_sharing(lambda: waits[0])
    assert budget.trial_s() == budget.trial_s(is_fresh=False) == 13.0
    assert budget.trial_s(COMPILED) == 13.0 + COMPILATION_S
    assert budget.trial_s(is_fresh=True) == 53.0
    waits[0] = False
    assert budget.trial_s() == 53.0


def test_settings_that_the_waiting_process_cannot_take_cost_a_start():
    budget = Budget(300.0, 0.0, Clock())
    budget.runs.trial_took(18.0, window_s=3.0, number=0)
    budget.runs.trial_took(3.0, window_s=3.0, number=1, is_fresh=False, switch_s=0.0)
    budget.allow_sharing(lambda: True)
    assert (budget.trial_s(), budget.trial_s(is_fresh=True)) == (3.0, 18.0)
    assert budget.return_s() == 15.0, "a later trial starts the process again"
    budget.forbid_sharing()
    assert budget.trial_s() == budget.trial_s(is_fresh=False) == 18.0


def yolox() -> tuple[RunTimes, Settings, Settings]:
    """Times of YOLOX on an H200, the script's own settings, and the same without cuDNN's searches."""
    own = Settings(num_workers=4, pin_memory=True, batch_size=16, cudnn_benchmark=True)
    half, plain = replace(own, precision=Precision.BF16), replace(own, cudnn_benchmark=False)
    runs = Budget(780.0, 35.0, Clock()).runs
    runs.trial_took(84.5, window_s=2.9, num_blocks=4, number=0, settings=own, startup_s=13.4, left_out_s=52.2)
    runs.trial_took(168.1, window_s=8.5, num_blocks=4, number=2, settings=half, startup_s=24.5, left_out_s=117.0)
    runs.trial_took(22.1, window_s=8.3, num_blocks=5, number=3, settings=plain, is_fresh=False, switch_s=2.2)
    return runs, own, plain


PLAIN_START_S = (84.5 - 2.9 - 52.2 + 168.1 - 8.5 - 117.0) / 2


def test_a_new_process_is_expected_to_start_without_searches_that_its_settings_do_not_make():
    """After a trial that was cut off, no time seemed left for finals of a process."""
    runs, own, plain = yolox()
    assert runs.start_of(0) == pytest.approx(81.6), "as measured"
    assert runs.start_of(3) == pytest.approx(PLAIN_START_S)
    assert runs.start_of(4, own) == pytest.approx(PLAIN_START_S + 52.2)
    assert runs.start_of(4, replace(own, channels_last=True)) == pytest.approx(PLAIN_START_S + (52.2 + 117.0) / 2)
    assert runs.trial_s(own, is_fresh=True) - runs.trial_s(plain, is_fresh=True) == pytest.approx(52.2)


def test_a_shared_process_is_expected_to_search_kernels_for_each_of_its_contenders():
    runs, _, _ = yolox()
    assert runs.shared_process_s([3]) == pytest.approx(PLAIN_START_S)
    assert runs.shared_process_s([0, 3]) == pytest.approx(PLAIN_START_S + 52.2)
    assert runs.shared_process_s([0, 2]) == pytest.approx(PLAIN_START_S + 52.2 + 117.0)


def test_searches_of_a_script_that_compiles_by_itself_count_once():
    own = Settings(compile=True, compile_mode=CompileMode.DEFAULT, cudnn_benchmark=True)
    runs = Budget(780.0, 35.0, Clock()).runs
    for number in range(2):
        runs.trial_took(85.0, window_s=3.0, number=number, settings=own, left_out_s=52.0)
        assert runs.start_of(number) == runs.start_s(build_of(own)) == pytest.approx(82.0)
    assert runs.shared_process_s([0, 1]) == pytest.approx(82.0)


def test_searches_of_a_rival_are_not_expected_of_settings_that_make_none():
    own = Settings(num_workers=4)
    runs = Budget(780.0, 35.0, Clock()).runs
    for number in range(4):
        runs.trial_took(35.0, window_s=5.0, number=number, settings=replace(own, num_workers=number))
    runs.trial_took(135.0, window_s=5.0, number=4, settings=replace(own, cudnn_benchmark=True), left_out_s=100.0)
    assert runs.start_s(UNCOMPILED) == pytest.approx(30.0)
    assert runs.start_of(4) == pytest.approx(130.0)


def test_a_later_run_in_the_same_process_does_not_search_kernels_again():
    """YOLOX on an H200: with the searches in its price, no final fitted a search of six minutes."""
    budget = Budget(360.0, 221.0, Clock())
    budget.allow_sharing(lambda: True)
    budget.runs.trial_took(69.3, window_s=6.0, num_blocks=5, number=0, startup_s=10.2)
    budget.runs.trial_took(113.3, window_s=4.1, num_blocks=5, number=1, is_fresh=False, switch_s=15.4, left_out_s=78.0)
    assert budget.runs.shared_start_s < 20.0
    assert budget.affords_shared_rounds(NUM_ROUNDS, (0, 1))
    assert budget.fresh_s(1, Settings()) > 100.0, "a new process searches again"


def test_formats_that_the_process_has_not_had_cost_cudnns_searches_again():
    """YOLOX on an H200: after a quick trial of the loader, bf16 took 183 s, of which most were searches."""
    own = Settings(cudnn_benchmark=True)
    loader = replace(own, num_workers=12)
    half, tf32 = (replace(loader, precision=precision) for precision in (Precision.BF16, Precision.TF32))
    runs = Budget(780.0, 35.0, Clock()).runs
    runs.trial_took(84.0, window_s=6.0, num_blocks=5, number=0, settings=own, startup_s=10.0, left_out_s=55.0)
    assert runs.live_trial_s(half) == runs.live_trial_s(loader) + 55.0
    runs.trial_took(14.0, window_s=6.0, num_blocks=5, number=1, settings=loader, is_fresh=False, switch_s=2.0)
    assert (runs.trial_s(loader), runs.trial_s(half)) == (14.0, 14.0 + 55.0)
    runs.trial_took(183.0, window_s=6.0, number=2, settings=half, is_fresh=False, switch_s=2.0, left_out_s=150.0)
    assert runs.trial_s(half) == runs.trial_s(loader) == 33.0, "the process has both kinds of kernels"
    assert runs.trial_s(tf32) == 33.0 + 150.0
    assert runs.trial_s(replace(tf32, cudnn_benchmark=False)) == 33.0, "without the benchmark nothing is searched"
    runs.trial_took(90.0, window_s=6.0, number=3, settings=half, startup_s=10.0)
    assert runs.trial_s(loader) == 33.0 + 150.0, "a new process has only the kernels of its own first trial"
    runs.final_took(30.0, window_s=6.0, number=1, settings=loader, is_live=True)
    assert runs.trial_s(loader) == 33.0, "a final searches too"


def two_ranks_of_a_trainer(clock: Clock) -> Budget:
    """GPT-2 by the Trainer on two H100: six trials in one process, after 138 s of 300 s."""
    budget = Budget(300.0, 27.0, clock, keeps_builds=True)
    budget.allow_sharing(lambda: True)
    budget.runs.trial_took(31.6, window_s=2.4, number=0, startup_s=24.1)
    budget.runs.trial_took(6.8, window_s=1.8, number=1, is_fresh=False, switch_s=2.3)
    regional = of_mode(CompileMode.REGIONAL)
    budget.runs.trial_took(19.5, window_s=1.6, number=2, settings=regional, is_fresh=False, switch_s=16.2)
    graphs = of_mode(CompileMode.REDUCE_OVERHEAD)
    budget.runs.trial_took(39.2, window_s=1.3, number=5, settings=graphs, is_fresh=False, switch_s=36.1)
    budget.keep_for((0, 5))
    clock.now_s += 111.0
    return budget


def test_a_trial_that_the_limit_ends_leaves_time_for_another_process_of_the_finals():
    """A last trial in new processes spent the time of the start and the builds, and no final could begin."""
    clock = Clock()
    budget = two_ranks_of_a_trainer(clock)
    limit_s = budget.limit_s(0.0)
    assert budget.left_to_trials_s - limit_s > 31.6 - 2.4 + 36.1
    clock.now_s += limit_s
    budget.allow_sharing(lambda: False)
    assert budget.affords_shared_rounds(NUM_ROUNDS, (0, 5))
    clock.now_s += 1.0
    assert not budget.affords_shared_rounds(NUM_ROUNDS, (0, 5))


def test_a_short_trial_in_the_process_of_the_finals_may_take_the_time_of_another_process():
    clock = Clock()
    budget = two_ranks_of_a_trainer(clock)
    clock.now_s += budget.limit_s(0.0) - 10.0
    assert budget.limit_s(4.9) == budget.limit_s(0.0) == pytest.approx(10.0)
    assert budget.limit_s(20.0) == pytest.approx(40.0), "twice its price, rather than all the time of another process"
    assert budget.limit_s(100.0) == budget.left_to_trials_s > 10.0 + 31.6 - 2.4 + 36.1
    assert budget.limit_s(20.0, is_alone=True) == pytest.approx(10.0), "the finals start another process in any case"


def test_a_process_without_a_contender_s_build_builds_before_the_finals():
    clock = Clock()
    budget = two_ranks_of_a_trainer(clock)
    clock.now_s += budget.left_to_finals_s - LEAST_ROUNDS * 2 * 6.775 - 1.0
    assert budget.affords_shared_rounds(LEAST_ROUNDS, (0, 5))
    budget.runs.trial_took(31.6, window_s=2.4, number=6, startup_s=24.1)
    assert not budget.affords_shared_rounds(LEAST_ROUNDS, (0, 5)), "a new process has no compiled model"
    assert budget.affords_shared_rounds(LEAST_ROUNDS, (0, 1))
    graphs = of_mode(CompileMode.REDUCE_OVERHEAD)
    budget.runs.final_took(40.9, window_s=3.0, number=5, settings=graphs, is_live=True, switch_s=36.1)
    assert budget.affords_shared_rounds(LEAST_ROUNDS, (0, 5)), "now it has one, and later switches are short"


def test_the_start_of_a_process_for_shared_finals_is_no_part_of_the_later_finals_there():
    """After 81 s of a start, a build and two finals another round was expected to take 107 s, and took 14 s."""
    budget = two_ranks_of_a_trainer(Clock())
    budget.share_process()
    round_s = budget.round_s((0, 5))
    budget.runs.final_took(33.0, window_s=3.0, number=0)
    budget.runs.final_took(
        43.0, window_s=3.0, number=5, settings=of_mode(CompileMode.REDUCE_OVERHEAD), is_live=True, switch_s=36.1
    )
    assert budget.round_s((0, 5)) == pytest.approx(round_s, abs=2.0)


def test_a_look_after_shared_finals_is_as_short_as_they_only_in_their_process():
    budget = two_ranks_of_a_trainer(Clock())
    assert (
        budget.first_look_s(0, Settings())
        == budget.fresh_s(0, Settings())
        == pytest.approx(29.2 + LEAST_FINAL_WINDOW_S)
    )
    budget.share_process()
    assert budget.first_look_s(0, Settings()) < 10.0
    assert budget.fresh_s(0, Settings()) == pytest.approx(29.2 + LEAST_FINAL_WINDOW_S)


def test_settings_that_share_no_process_with_the_script_s_own_need_finals_in_new_processes():
    budget = two_ranks_of_a_trainer(Clock())
    regional = of_mode(CompileMode.REGIONAL)
    assert budget.spare_s(regional) > budget.trial_s(regional, is_fresh=True)
    round_s = budget.round_s((0, 2))
    assert budget.spare_s(regional, is_alone=True) == pytest.approx(budget.left_s - LEAST_ROUNDS * round_s)


def test_a_build_that_no_cache_has_costs_a_new_process_all_its_time():
    """Of autotuned kernels 71 s were expected in new processes, and 136 s did not suffice."""
    budget = two_ranks_of_a_trainer(Clock())
    autotuned, built = of_mode(CompileMode.MAX_AUTOTUNE), of_mode(CompileMode.REGIONAL)
    assert budget.trial_s(autotuned, is_fresh=True) - budget.trial_s(is_fresh=True) > 100.0
    assert budget.trial_s(built, is_fresh=True) - budget.trial_s(is_fresh=True) == pytest.approx(16.2)
    budget.allow_sharing(lambda: False)
    assert budget.trial_s(autotuned) == budget.trial_s(autotuned, is_fresh=True)
    missing_s = budget.trial_s(autotuned)
    budget.runs.trial_took(60.0, number=6, settings=autotuned, is_complete=False)
    assert budget.trial_s(autotuned) == missing_s
    budget.runs.trial_took(60.0, number=7, settings=autotuned)
    assert budget.trial_s(autotuned) < missing_s, "a trial that raced out has filled the cache"


def test_without_sharing_the_finals_have_the_time_of_new_processes():
    clock = Clock()
    budget = two_ranks_of_a_trainer(clock)
    shared_s = budget.reserve_s
    budget.share_process()
    budget.forbid_sharing()
    assert budget.reserve_s == LEAST_ROUNDS * budget.round_s((0, 5)) > 2 * shared_s
    assert not budget.plans_sharing
    clock.now_s += budget.left_to_finals_s - budget.round_s((0, 5)) - 1.0
    assert budget.affords_shared_rounds(1, (0, 5)), "rounds begun in a shared process go on in new ones"
    assert not budget.affords_shared_rounds(2, (0, 5))


def test_a_short_search_keeps_time_for_finals_in_the_process_of_the_trials():
    """Of 120 s, four new processes of 18 s left nothing for a third trial."""
    fresh, shared = Budget(120.0, 0.0, Clock()), Budget(120.0, 0.0, Clock())
    shared.allow_sharing(lambda: True)
    for budget in (fresh, shared):
        budget.runs.trial_took(18.0, window_s=3.0, number=0, startup_s=14.0)
        budget.runs.trial_took(3.5, window_s=3.0, number=1, is_fresh=False, switch_s=0.1)
        budget.keep_for((0, 1))
    assert fresh.reserve_s == LEAST_ROUNDS * 2 * 18.0
    assert shared.reserve_s == pytest.approx(NUM_ROUNDS * 2 * 3.5)
    assert shared.affords_shared_rounds(2, (0, 1))
    longer = Budget(300.0, 0.0, Clock())
    longer.allow_sharing(lambda: True)
    longer.runs.trial_took(18.0, window_s=3.0, number=0)
    assert longer.reserve_s == LEAST_ROUNDS * 2 * 18.0, "new processes are worth a quarter of the time"


def test_a_trial_that_may_end_the_only_process_for_the_finals_needs_twice_its_time():
    """A speaker model on an H100: compiled it was 1.8x as fast; the next compilation, cut, took that process along."""
    clock = Clock()
    budget = Budget(180.0, 31.0, clock)
    budget.allow_sharing(lambda: True)
    budget.runs.trial_took(7.7, window_s=2.8, number=0, startup_s=2.2)
    budget.runs.trial_took(15.2, window_s=3.6, number=1, is_fresh=False, switch_s=7.8)
    compiled, other = Settings(compile=True), Settings(compile=True, compile_mode=CompileMode.MAX_AUTOTUNE)
    budget.runs.trial_took(56.2, window_s=1.3, number=2, settings=compiled, is_fresh=False, switch_s=52.3)
    clock.now_s += 72.0
    assert not budget.affords_least_rounds((0, 2)) and budget.affords_shared_rounds(LEAST_ROUNDS, (0, 2))
    spare_s = {}
    for is_in_process in (False, True):
        budget.keep_for((0, 2), is_in_process=is_in_process)
        spare_s[is_in_process] = budget.spare_s(other)
    assert spare_s[False] - spare_s[True] == (LIMIT_FACTOR - 1) * budget.trial_s(other) > 0


def test_a_larger_batch_is_run_only_if_the_finals_can_start_and_build_again_afterwards():
    """A speaker model on an H200: 75 s were left; the larger batch took 39 s, and the winner's process along."""
    clock = Clock()
    compiled = Settings(compile=True, compile_mode=CompileMode.REDUCE_OVERHEAD)

    def budget_of(total_s):
        budget = Budget(total_s, 13.0, clock)
        budget.allow_sharing(lambda: True)
        budget.runs.trial_took(10.0, window_s=5.1, number=0, startup_s=2.2)
        budget.runs.trial_took(14.2, window_s=4.3, number=1, is_fresh=False, switch_s=6.7)
        budget.runs.trial_took(54.2, window_s=1.6, number=2, settings=compiled, is_fresh=False, switch_s=49.0)
        budget.runs.trial_took(2.7, is_fresh=False)
        budget.keep_for((0, 2), is_in_process=True)
        return budget

    short, long = budget_of(180.0), budget_of(400.0)
    clock.now_s += 80.0
    assert short.affords_shared_rounds(LEAST_ROUNDS, (0, 2))
    assert not short.affords_larger_batch(compiled) and short.affords_larger_batch(Settings())
    assert long.affords_larger_batch(compiled)


def test_the_batch_as_it_is_is_measured_again_only_if_the_finals_keep_their_time():
    clock = Clock()
    budget = Budget(180.0, 13.0, clock)
    budget.runs.trial_took(10.0, window_s=4.0)
    budget.keep_for((0, 2))
    assert budget.affords_same_batch(Settings())
    clock.now_s += budget.left_s - budget.reserve_s - budget.trial_s(Settings()) + 0.1
    assert not budget.affords_same_batch(Settings())


def test_a_second_trial_may_compile_where_finals_can_share_its_process():
    budget = Budget(120.0, 0.0, Clock())
    budget.allow_sharing(lambda: True)
    budget.runs.trial_took(18.0, window_s=3.0, number=0)
    assert budget.spare_s(COMPILED) > 120.0 - 40.0


def test_a_new_process_of_settings_measured_live_takes_as_long_to_fill_its_queues():
    """ResNet-50's first batches from 16 workers came after 10 s, those of its own 4 workers after 1 s."""
    budget = Budget(300.0, 0.0, Clock())
    budget.runs.trial_took(15.0, window_s=5.0, number=0, startup_s=4.0)
    budget.runs.trial_took(27.0, window_s=9.0, number=1, is_fresh=False, switch_s=2.0)
    assert budget.round_s((1,)) - budget.round_s((0,)) == (4.0 + 27.0 - 9.0 - 2.0) - (15.0 - 5.0)


def test_a_new_process_of_settings_measured_live_chooses_their_kernels_too():
    """A diffusion model on an H100: a switch of 10 s, and finals of 17 s where the script's own took 7 s."""
    budget = Budget(180.0, 0.0, Clock())
    budget.runs.trial_took(7.1, window_s=3.2, number=0, startup_s=1.7)
    budget.runs.trial_took(21.1, window_s=8.9, number=1, is_fresh=False, switch_s=10.0)
    assert budget.round_s((1,)) - budget.round_s((0,)) == pytest.approx((1.7 + 8.0 + 2.2) - (7.1 - 3.2))


def test_a_long_compilation_leaves_the_finals_time_although_they_take_longer_than_expected():
    """torchvision's detector on an H100, three minutes: a round of finals took 28 s, where 20 s were expected."""
    clock = Clock()
    budget = Budget(180.0, 61.3, clock)
    budget.allow_sharing(lambda: True)
    budget.runs.trial_took(13.7, window_s=8.4, number=0, startup_s=2.9)
    budget.runs.trial_took(17.2, window_s=8.5, number=1, is_fresh=False, switch_s=1.5)
    budget.runs.trial_took(11.6, window_s=7.6, number=2, is_fresh=False, switch_s=1.0)
    budget.keep_for((0, 2))
    clock.now_s += budget.limit_s(46.0)
    assert budget.affords_least_rounds((0, 2))
    clock.now_s += 28.0
    budget.runs.final_took(17.0, window_s=4.0, number=2)
    budget.runs.final_took(10.9, window_s=4.1, number=0)
    assert budget.affords_last_round((0, 2))


def test_more_than_the_fewest_rounds_take_a_third_of_the_time_at_most():
    budget = Budget(200.0, 0.0, Clock())
    for _ in range(12):
        budget.runs.trial_took(10.0, window_s=4.0)
    assert budget.reserve_s == FINALS_SHARE * 200.0


def test_the_first_windows_leave_time_for_two_trials_and_a_round_of_finals():
    clock = Clock()
    budget = Budget(120.0, 20.0, clock)
    assert budget.trial_window_s(10.0) == 100.0 / 4 - 10.0
    clock.now_s += 25.0
    budget.runs.trial_took(25.0, window_s=13.0, number=0)
    assert budget.trial_window_s(10.0) == 75.0 / 3 - 12.0
    assert budget.trial_window_s(20.0) == 75.0 / 3 - 12.0  # The probe started anew, trials go on from a prepared start.
    budget.runs.trial_took(25.0, window_s=13.0, number=1)
    assert budget.trial_window_s(10.0) == math.inf


def test_more_finalists_than_usual_take_a_part_of_much_time_that_is_left():
    budget = Budget(3600.0, 0.0, Clock())
    budget.runs.trial_took(10.0, window_s=4.0)
    assert budget.affordable_finalists() == MOST_FINALISTS


def test_a_window_is_not_longer_than_usual_where_another_round_tells_more():
    budget = Budget(900.0, 0.0, Clock())
    budget.runs.trial_took(30.0, window_s=4.0)
    assert budget.final_window_s([0, 0]) == budget.around_s == 26.0


def test_a_noisy_machine_keeps_time_for_more_rounds_of_finals():
    budget = Budget(600.0, 0.0, Clock())
    for _ in range(4 * NUM_FINALISTS):
        budget.runs.trial_took(10.0, window_s=4.0)
    quiet_s = budget.reserve_s
    budget.keep_for((), is_noisy=True)
    assert quiet_s < budget.reserve_s <= NOISY_SHARE * 600.0


def test_a_compiled_trial_in_a_process_of_others_is_kept_the_time_of_its_own_compilation():
    budget = Budget(600.0, 0.0, Clock())
    budget.runs.trial_took(20.0, window_s=5.0, number=0, settings=Settings())
    budget.runs.trial_took(8.0, window_s=5.0, number=1, settings=Settings(compile=True), is_fresh=False)
    assert budget.round_s((1,)) >= budget.round_s((0,)) + COMPILATION_S


def of_mode(mode: CompileMode) -> Settings:
    return Settings(compile=True, compile_mode=mode)


def test_each_mode_of_compilation_has_a_price_of_its_own():
    budget = Budget(900.0, 0.0, Clock())
    for number in (0, 1):
        budget.runs.trial_took(18.0, window_s=3.0, number=number)
    prices = {mode: budget.trial_s(of_mode(mode)) for mode in CompileMode}
    assert prices[CompileMode.REGIONAL] < prices[CompileMode.DEFAULT] < prices[CompileMode.MAX_AUTOTUNE]
    budget.runs.trial_took(30.0, window_s=3.0, number=2, settings=of_mode(CompileMode.REGIONAL))
    assert budget.trial_s(of_mode(CompileMode.REGIONAL)) == 30.0
    assert budget.trial_s(COMPILED) > 30.0


def test_finals_find_the_builds_of_trials_in_the_cache_that_a_study_shares():
    alone, shared = Budget(900.0, 0.0, Clock()), Budget(900.0, 0.0, Clock(), keeps_builds=True)
    for budget in (alone, shared):
        budget.runs.trial_took(18.0, window_s=3.0, number=0)
        budget.runs.trial_took(53.0, window_s=3.0, number=1, settings=COMPILED)
    assert shared.trial_s(COMPILED) == alone.trial_s(COMPILED)
    assert alone.round_s((1,)) - alone.round_s((0,)) == pytest.approx(35.0)
    assert shared.round_s((1,)) - shared.round_s((0,)) == pytest.approx(REBUILD_SHARE * 35.0)
    shared.runs.final_took(26.0, window_s=3.0, number=1, settings=COMPILED)
    assert shared.round_s((1,)) - shared.round_s((0,)) == pytest.approx(8.0)


def test_a_switch_to_a_compiled_model_in_a_process_of_others_tells_what_finals_take():
    """ResNet-50 took 36 and 41 s to switch; its finals took 41 and 47 s more than others, in spite of the cache."""
    budget = Budget(900.0, 0.0, Clock(), keeps_builds=True)
    budget.runs.trial_took(18.0, window_s=3.0, number=0)
    for number, switch_s in ((1, 36.0), (2, 41.0), (3, 28.0)):
        took_s = switch_s + 4.0
        budget.runs.trial_took(
            took_s, window_s=3.0, number=number, settings=COMPILED, is_fresh=False, switch_s=switch_s
        )
    for number in (1, 2, 3):
        assert budget.round_s((number,)) - budget.round_s((0,)) == pytest.approx(41.0)
    budget.keep_for((0, 2))
    assert budget.reserve_s >= LEAST_ROUNDS * (budget.round_s((0,)) + budget.round_s((2,)))


def test_a_slow_build_of_one_mode_raises_the_price_of_the_others():
    """A graph that takes twice the usual time by default takes about twice the time in every mode."""
    usual, slow = Budget(900.0, 0.0, Clock()), Budget(900.0, 0.0, Clock())
    for budget in (usual, slow):
        budget.runs.trial_took(18.0, window_s=3.0, number=0)
    slow.runs.trial_took(18.0 + 2 * COMPILATION_S, window_s=3.0, number=1, settings=COMPILED)
    mode = of_mode(CompileMode.REDUCE_OVERHEAD)
    assert slow.trial_s(mode) - slow.trial_s() == pytest.approx(2 * (usual.trial_s(mode) - usual.trial_s()))


def test_without_a_trial_that_may_win_only_the_fewest_rounds_are_kept():
    """Beside trials slower than the script's own settings, half of a search of 2 minutes was left unspent."""
    budget = Budget(120.0, 0.0, Clock())
    for number in range(2 * TRIALS_PER_FINALIST):
        budget.runs.trial_took(5.0, window_s=2.0, number=number)
    budget.keep_for((0, 1), is_noisy=True)
    hopeful_s = budget.reserve_s
    budget.keep_for((0, 1), is_noisy=True, num_rivals=0)
    assert budget.reserve_s == LEAST_ROUNDS * budget.round_s((0, 1)) < hopeful_s


@pytest.mark.parametrize(("total_s", "keeps"), [(120.0, False), (299.0, False), (300.0, True), (900.0, True)])
def test_a_short_search_keeps_no_time_for_the_memory_of_its_winner(total_s, keeps):
    budget = Budget(total_s, 0.0, Clock())
    for number in range(2):
        budget.runs.trial_took(10.0, window_s=3.0, number=number)
    before_s = budget.left_s
    budget.keep_for_looks(1, Settings(num_workers=2))
    assert (budget.left_s < before_s) is keeps
