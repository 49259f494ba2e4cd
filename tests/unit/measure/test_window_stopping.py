import math
import random
from dataclasses import replace

import pytest

from autotune.measure.interval import estimate_rate
from autotune.measure.window_stopping import StopReason, WindowRule, block_size, decide, is_look, may_end, warmed_up

from .simulated import make_block, make_blocks

RULE = WindowRule(half_width_ratio=0.05)
STEADY_S = [0.20, 0.21, 0.19, 0.20]  # 32 samples each: 160 per second
UNSTEADY_S = [0.1, 0.3, 0.2, 0.2]  # the same rate, with a half-width of 20 % and more


@pytest.mark.parametrize(
    "change",
    [
        {"half_width_ratio": 0.0},
        {"half_width_ratio": 1.0},
        {"half_width_ratio": math.nan},
        {"min_blocks": 1},
        {"min_window_s": -1.0},
        {"min_window_s": 9.0},
        {"min_window_s": 0.0, "max_window_s": 0.0},
        {"max_window_s": math.inf},
        {"min_block_s": 0.0},
        {"race_margin": 0.0},
        {"race_margin": 1.01},
    ],
)
def test_an_impossible_rule_cannot_be_made(change):
    with pytest.raises(ValueError, match=next(iter(change))):
        replace(RULE, **change)


def test_looks_are_few_and_ever_further_apart():
    assert [n for n in range(200) if is_look(n)] == [8, 12, 18, 27, 40, 60, 90, 135]


def test_looks_may_begin_earlier():
    assert [n for n in range(20) if is_look(n, 2)] == [2, 3, 4, 6, 9, 13, 19]


def test_a_first_look_at_one_block_is_refused():
    with pytest.raises(ValueError, match="first look"):
        is_look(4, 1)


def test_a_steady_window_converges_at_the_first_look_and_not_before():
    blocks = make_blocks(STEADY_S * 2)
    assert [decide(blocks[:n], RULE, None) for n in range(8)] == [None] * 8
    assert decide(blocks, RULE, None) is StopReason.CONVERGED


def test_a_steady_window_of_long_blocks_converges_after_the_fewest_blocks():
    """Eight steps of nanoGPT took 11 s of a search of two minutes, and differed by 0.3 %."""
    rule = replace(RULE, max_window_s=30.0)
    steady = make_blocks([1.40, 1.41, 1.40, 1.41])
    assert [decide(steady[:n], rule, None) for n in range(4)] == [None] * 4
    assert decide(steady, rule, None) is StopReason.CONVERGED
    assert may_end(4, 5.62, rule)
    unsteady = make_blocks([1.4, 1.9, 1.4, 1.9, 1.4, 1.9])
    assert [decide(unsteady[:n], rule, None) for n in range(7)] == [None] * 7


def test_an_early_look_asks_for_half_the_width_and_the_usual_look_for_the_whole():
    rule = replace(RULE, max_window_s=60.0)
    blocks = make_blocks([1.40, 1.46, 1.40, 1.46] * 2)
    assert 0.025 < estimate_rate(blocks[:4]).half_width_ratio < 0.05
    assert decide(blocks[:4], rule, None) is None
    assert decide(blocks, rule, None) is StopReason.CONVERGED


def test_short_blocks_are_not_looked_at_earlier_for_a_single_long_block():
    blocks = make_blocks([3.0, 0.2, 0.2, 0.2])
    assert not may_end(4, 3.6, replace(RULE, max_window_s=30.0))
    assert decide(blocks, replace(RULE, half_width_ratio=0.99, max_window_s=30.0), None) is None


def test_a_rule_with_an_earlier_first_look_keeps_it_for_long_blocks():
    assert decide(make_blocks([1.4, 1.4]), replace(RULE, min_blocks=2), None) is StopReason.CONVERGED


def test_a_window_converges_only_at_a_look():
    blocks = make_blocks(STEADY_S * 3)
    assert [decide(blocks[:n], RULE, None) for n in (9, 10, 11)] == [None] * 3
    assert decide(blocks, RULE, None) is StopReason.CONVERGED


def test_a_window_converges_only_after_the_shortest_time():
    blocks = make_blocks([0.05] * 40)  # 8 blocks are 0.4 s, 18 are 0.9 s, 27 are 1.35 s
    assert [n for n in range(41) if decide(blocks[:n], RULE, None)] == [27, 40]


def test_a_noisy_window_goes_on_until_the_time_limit():
    rng = random.Random(1)
    blocks = make_blocks(rng.choice(UNSTEADY_S) for _ in range(40))
    assert estimate_rate(blocks).half_width_ratio > 0.05
    limit_s = sum(block.duration_s for block in blocks) - 0.05
    reasons = [decide(blocks[:n], replace(RULE, max_window_s=limit_s), None) for n in range(41)]
    assert reasons == [None] * 40 + [StopReason.TIME_LIMIT]


def test_a_narrower_rule_takes_longer():
    blocks = make_blocks(STEADY_S * 7)
    assert decide(blocks[:8], replace(RULE, half_width_ratio=0.02), None) is None
    assert decide(blocks[:27], replace(RULE, half_width_ratio=0.02), None) is StopReason.CONVERGED


def test_the_time_limit_holds_between_the_looks():
    blocks = make_blocks([2.0, 1.0, 3.0, 2.5])
    assert [decide(blocks[:n], RULE, None) for n in range(5)] == [None, None, None, None, StopReason.TIME_LIMIT]


def test_a_window_of_too_few_blocks_to_be_judged_is_waited_for_four_times_as_long():
    for num in (1, 2, 3):
        assert decide([make_block(9.0 / num)] * num, RULE, None) is None
        assert decide([make_block(32.0 / num)] * num, RULE, None) is None
    for num in (1, 2):
        assert decide([make_block(32.1 / num)] * num, RULE, None) is StopReason.TIME_LIMIT
    assert decide(make_blocks([1.1, 3.1, 2.1, 2.1]), RULE, None) is StopReason.TIME_LIMIT


def test_a_window_about_to_be_long_enough_to_be_judged_goes_on_after_that():
    """YOLOX's own settings had three blocks of 5.2 s when the time was up: the search ended without an answer."""
    assert decide([make_block(11.0)] * 3, RULE, None) is None
    assert decide([make_block(11.0)] * 4, RULE, None) is StopReason.CONVERGED
    assert decide([make_block(16.1)] * 3, RULE, None) is StopReason.TIME_LIMIT


def test_a_slow_window_takes_no_longer_to_lose_a_race():
    assert decide([make_block(9.0)], RULE, 100.0) is None
    assert decide([make_block(9.0), make_block(9.0)], RULE, 100.0) is StopReason.TIME_LIMIT


@pytest.mark.parametrize("num", [2, 3])
def test_a_window_that_may_win_its_race_is_waited_for_like_any_other(num):
    """Blocks of 16 workers' batches took 1.4 s each, in windows of 3 s: trials as fast as the best had no figure."""
    fast = [make_block(9.0, num_samples=900.0)] + [make_block(9.0, num_samples=600.0)] * (num - 1)
    assert decide(fast, RULE, 100.0) is None
    assert decide([*fast, *[make_block(1.0)] * (4 - num)], RULE, 100.0) is StopReason.TIME_LIMIT


def test_a_window_that_cannot_win_is_raced_out():
    blocks = make_blocks(UNSTEADY_S * 2)
    upper_bound = estimate_rate(blocks, 0.98).interval.high
    assert decide(blocks, RULE, upper_bound / 0.97 * 1.001) is StopReason.RACED_OUT
    assert decide(blocks, RULE, upper_bound / 0.97 * 0.999) is None
    assert decide(blocks, RULE, None) is None


def test_a_race_is_judged_only_at_a_look_and_after_the_shortest_time():
    blocks = make_blocks(UNSTEADY_S * 3)
    assert decide(blocks[:9], RULE, 1e6) is None
    assert decide(blocks[:8], replace(RULE, min_window_s=1.7), 1e6) is None


def test_converged_says_more_than_raced_out():
    assert decide(make_blocks(STEADY_S * 2), RULE, 1e6) is StopReason.CONVERGED


@pytest.mark.parametrize("rate", [0.0, -1.0, math.nan, math.inf])
def test_an_impossible_incumbent_is_refused(rate):
    with pytest.raises(ValueError, match="incumbent"):
        decide([], RULE, rate)


def test_a_narrow_but_nonstationary_window_is_extended_to_the_next_look_only():
    # First slow, then 3 % faster for good: the halves of 8 and of 12 differ, and the interval is narrow at both.
    blocks = make_blocks([0.206, 0.206, 0.206, 0.206] + [0.2] * 14)
    for num_blocks in (8, 12):
        estimate = estimate_rate(blocks[:num_blocks])
        assert estimate.half_width_ratio < 0.05
        assert estimate.nonstationary
    assert decide(blocks[:8], RULE, None) is None
    assert [decide(blocks[:n], RULE, None) for n in (9, 10, 11)] == [None] * 3
    assert decide(blocks[:12], RULE, None) is StopReason.CONVERGED


def test_a_look_before_the_shortest_time_is_no_extension():
    # 0.8 s at the first look, which is none therefore; the second is the first to see that the halves differ.
    blocks = make_blocks([0.103] * 6 + [0.1] * 12)
    assert estimate_rate(blocks[:8]).half_width_ratio < 0.05
    assert estimate_rate(blocks[:12]).nonstationary
    assert decide(blocks[:12], RULE, None) is None
    assert decide(blocks, RULE, None) is StopReason.CONVERGED


def test_a_window_that_was_too_wide_at_the_looks_before_is_still_extended():
    blocks = make_blocks([0.20] * 6 + [0.24] * 12)
    rule = replace(RULE, half_width_ratio=0.07)
    assert estimate_rate(blocks[:8]).half_width_ratio > 0.07
    assert estimate_rate(blocks[:12]).half_width_ratio < 0.07
    assert estimate_rate(blocks[:12]).nonstationary
    assert decide(blocks[:12], rule, None) is None
    assert decide(blocks, rule, None) is StopReason.CONVERGED


def test_a_block_is_whole_cycles_of_workers_and_of_accumulation():
    assert block_size(4, 6, 1.0, 0.05) == 12
    assert block_size(8, 1, 1.0, 0.05) == 8
    assert block_size(0, 3, 1.0, 0.05) == 3
    assert block_size(0, 1, 1.0, 0.05) == 1


def test_a_block_takes_at_least_the_shortest_time():
    assert block_size(4, 1, 0.003, 0.05) == 20  # 17 micro-batches would do; 20 are whole cycles
    assert block_size(0, 1, 0.01, 0.07) == 7  # exactly, though the quotient of the floats is above 7
    assert block_size(0, 1, 0.0001, 0.05) == 500


def test_a_cycle_of_more_than_64_is_relaxed_to_whole_steps_with_a_batch_of_every_worker():
    assert block_size(8, 8, 1.0, 0.05) == 8
    assert block_size(32, 2, 1.0, 0.05) == 32
    assert block_size(64, 1, 1.0, 0.05) == 64
    assert block_size(16, 5, 1.0, 0.05) == 20  # lcm 80
    assert block_size(12, 100, 1.0, 0.05) == 100  # lcm 300
    assert block_size(0, 100, 1.0, 0.05) == 100
    assert block_size(16, 5, 0.001, 0.05) == 60


@pytest.mark.parametrize(
    "arguments", [(-1, 1, 0.1, 0.05), (0, 0, 0.1, 0.05), (0, 1, 0.0, 0.05), (0, 1, math.nan, 0.05), (0, 1, 0.1, 0.0)]
)
def test_an_impossible_block_is_refused(arguments):
    with pytest.raises(ValueError, match=r"workers|times"):
        block_size(*arguments)


def test_steps_are_warm_when_two_windows_of_three_agree():
    assert warmed_up([1.0, 1.0, 1.0, 1.02, 1.02, 1.02])
    assert not warmed_up([1.04, 1.04, 1.04, 1.0, 1.0, 1.0])
    assert not warmed_up([1.0, 1.0, 1.0, 1.04, 1.04, 1.04])


def test_only_the_last_two_windows_decide():
    assert warmed_up([60.0, 5.0, 2.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0])
    assert not warmed_up([60.0, 1.0, 1.0, 1.0, 1.0, 1.0])


def test_five_steps_are_too_few_to_be_warm():
    assert not warmed_up([1.0] * 5)
    assert warmed_up([1.0] * 6)


def test_the_window_and_the_tolerance_of_the_warm_up_may_be_set():
    assert warmed_up([1.0, 1.08], window=1, tolerance=0.1)
    assert not warmed_up([1.0, 1.08], window=1, tolerance=0.05)


@pytest.mark.parametrize(
    ("step_s", "options"),
    [([1.0, 0.0], {}), ([math.nan], {}), ([1.0], {"window": 0}), ([1.0], {"tolerance": 0.0})],
)
def test_an_impossible_warm_up_is_refused(step_s, options):
    with pytest.raises(ValueError, match=r"step times|warm-up"):
        warmed_up(step_s, **options)
