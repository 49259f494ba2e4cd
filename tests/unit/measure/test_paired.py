import math
import random
import statistics
from dataclasses import replace

import pytest

from autotune.measure.pair_interval import MOST_TYPICAL_SPREAD, PRIOR_WIDTH
from autotune.measure.paired import (
    SHARED_ERROR,
    Comparison,
    Final,
    choose_winner,
    compare,
    confidence_of,
    range_at_another_time,
    round_order,
    unselected,
)

BASELINE = 0


def finals_of(rates_by_candidate, infeasible=()):
    """One final per candidate and round; a rate of None leaves the round out."""
    return [
        Final(
            candidate=candidate,
            round=number,
            samples_per_second=rate,
            peak_memory_bytes=1024,
            feasible=(candidate, number) not in infeasible,
        )
        for candidate, rates in rates_by_candidate.items()
        for number, rate in enumerate(rates)
        if rate is not None
    ]


def no_preference(candidate):
    return (0.0,)


def mixture_half_width(*, sum_of_squares, num, typical, confidence):
    """The half width of `pair_interval` by another way: a fine sum over spreads, and the normal distribution's tail."""
    spreads = [math.exp(-9 + index / 100) for index in range(1200)]
    weights = [
        math.exp(-0.5 * (math.log(s / typical) / PRIOR_WIDTH) ** 2 - sum_of_squares / (2 * s * s)) / s ** (num - 1)
        for s in spreads
    ]
    low, high = 0.0, 10.0
    for _ in range(60):
        middle = (low + high) / 2
        tails = sum(
            2 * w * statistics.NormalDist(0, s / math.sqrt(num)).cdf(-middle)
            for s, w in zip(spreads, weights, strict=True)
        ) / sum(weights)
        low, high = (middle, high) if tails > 1 - confidence else (low, middle)
    return high


def test_three_rounds_that_all_say_twice_are_a_gain_though_one_is_disturbed():
    finals = finals_of({0: [981.0, 750.0, 793.0], 1: [1433.0, 1479.0, 1474.0]})
    comparison = compare(finals, 1, 0)
    assert comparison.is_gain and comparison.low > 1.1


def test_two_rounds_that_agree_find_a_gain_of_a_quarter():
    assert compare(finals_of({0: [0.78, 0.781], 1: [0.973, 0.975]}), 1, 0).is_gain


def test_two_rounds_that_agree_by_chance_beside_rates_that_jump_are_no_gain():
    assert not compare(finals_of({0: [100.0, 180.0], 1: [125.0, 225.0]}), 1, 0).is_gain


def test_three_rounds_of_runs_that_the_device_paces_find_a_gain_of_two_percent_and_two_do_not():
    finals = finals_of({0: [0.705, 0.7135, 0.71], 1: [0.7191, 0.7278, 0.7242]})
    paced = [replace(final, is_device_bound=True) for final in finals]
    assert not compare(finals, 1, 0).is_gain
    assert compare(paced, 1, 0).is_gain
    assert compare(paced[:2] + paced[3:5], 1, 0) == compare(finals[:2] + finals[3:5], 1, 0)


def test_one_run_that_waits_for_the_host_makes_the_whole_comparison_one_of_such_runs():
    finals = finals_of({0: [0.705, 0.7135, 0.71], 1: [0.7191, 0.7278, 0.7242], 2: [0.7, 0.7, 0.7]})
    paced = [replace(final, is_device_bound=final.candidate != 1 or final.round > 0) for final in finals]
    assert compare(paced, 1, 0) == compare(finals, 1, 0)


def test_the_comparison_is_the_one_computed_by_hand():
    # Log-ratios ln 2, ln 2 + 0.1, ln 2 - 0.1: mean ln 2. Their sums spread beyond the largest typical spread.
    finals = finals_of({0: [100.0, 50.0, 80.0], 1: [200.0, 100.0 * math.exp(0.1), 160.0 * math.exp(-0.1)]})
    comparison = compare(finals, 1, 0)
    half_width = mixture_half_width(
        sum_of_squares=0.02, num=3, typical=MOST_TYPICAL_SPREAD, confidence=confidence_of(3, 1)
    )
    assert comparison.ratio == pytest.approx(2.0)
    assert comparison.low == pytest.approx(2.0 * math.exp(-half_width), rel=1e-3)
    assert comparison.high == pytest.approx(2.0 * math.exp(half_width), rel=1e-3)
    assert comparison.num_rounds == 3
    assert comparison.is_gain


def test_the_comparison_the_other_way_round_is_the_inverse():
    finals = finals_of({0: [100.0, 90.0, 95.0], 1: [130.0, 120.0, 140.0]})
    there, back = compare(finals, 1, 0), compare(finals, 0, 1)
    assert back.ratio == pytest.approx(1 / there.ratio)
    assert (back.low, back.high) == (pytest.approx(1 / there.high), pytest.approx(1 / there.low))
    assert not back.is_gain


def test_what_slows_a_whole_round_cancels():
    finals = finals_of({0: [100.0, 10.0, 55.0], 1: [120.0, 12.0, 66.0]})
    comparison = compare(finals, 1, 0)
    assert comparison.ratio == pytest.approx(1.2) and comparison.is_gain


def test_only_rounds_that_both_were_measured_in_are_compared():
    finals = finals_of({0: [100.0, 100.0, None, 1.0], 1: [110.0, 110.0, 500.0]})
    comparison = compare(finals, 1, 0)
    assert (comparison.ratio, comparison.num_rounds) == (pytest.approx(1.1), 2)


@pytest.mark.parametrize("rates", [[110.0], [None, None, 110.0, 110.0], [110.0, 0.0]])
def test_fewer_than_two_common_rounds_are_not_compared(rates):
    finals = finals_of({0: [100.0, 100.0], 1: rates}, infeasible={(1, 1)})
    with pytest.raises(ValueError, match="candidates 1 and 0 share"):
        compare(finals, 1, 0)


def test_two_finals_of_a_candidate_in_a_round_are_refused():
    finals = finals_of({0: [100.0, 100.0], 1: [110.0, 110.0]})
    with pytest.raises(ValueError, match="candidate 1 has two finals in round 1"):
        compare([*finals, finals[-1]], 1, 0)


def test_an_interval_that_reaches_one_is_no_gain():
    assert not Comparison(ratio=1.1, low=1.0, high=1.2, num_rounds=3).is_gain
    assert Comparison(ratio=1.1, low=1.0001, high=1.2, num_rounds=3).is_gain


@pytest.mark.parametrize("change", [{"low": 1.2}, {"high": 1.0}, {"low": -1.0}, {"high": math.inf}, {"num_rounds": 1}])
def test_an_impossible_comparison_cannot_be_made(change):
    with pytest.raises(ValueError, match="a comparison needs"):
        replace(Comparison(ratio=1.1, low=1.05, high=1.15, num_rounds=3), **change)


@pytest.mark.parametrize(
    "change", [{"samples_per_second": -1.0}, {"samples_per_second": math.nan}, {"peak_memory_bytes": -1}]
)
def test_an_impossible_final_cannot_be_made(change):
    with pytest.raises(ValueError, match=next(iter(change))):
        replace(finals_of({0: [100.0]})[0], **change)


def test_only_an_infeasible_final_may_lack_a_rate():
    assert finals_of({0: [0.0]}, infeasible={(0, 0)})[0].samples_per_second == 0.0
    with pytest.raises(ValueError, match="candidate 0 cannot be feasible at 0"):
        finals_of({0: [0.0]})


def test_the_fastest_wins_with_its_comparison():
    finals = finals_of({0: [100.0, 101.0, 99.0], 1: [150.0, 152.0, 149.0], 2: [120.0, 121.0, 119.0]})
    winner, comparisons = choose_winner(finals, BASELINE, no_preference)
    assert winner == 1
    assert comparisons == {number: compare(finals, number, 0, num_candidates=2) for number in (1, 2)}


def test_within_one_percent_the_preferred_wins():
    finals = finals_of({0: [100.0] * 3, 1: [150.0] * 3, 2: [148.6] * 3, 3: [148.4] * 3})
    memory = {0: 4.0, 1: 9.0, 2: 5.0, 3: 1.0}  # the third is the smallest but 1.1 % slower than the best
    assert choose_winner(finals, BASELINE, lambda candidate: (memory[candidate],))[0] == 2


def test_with_equal_preference_the_faster_of_the_tied_wins():
    finals = finals_of({0: [100.0] * 3, 1: [149.5] * 3, 2: [150.0] * 3})
    assert choose_winner(finals, BASELINE, no_preference)[0] == 2


def unselected_of(finals):
    """The winner's comparison, before and after the luck of the choice is taken out."""
    winner, comparisons = choose_winner(finals, BASELINE, no_preference)
    return comparisons[winner], unselected(comparisons[winner], finals, winner, BASELINE, no_preference)


def test_a_clear_winner_keeps_its_ratio_and_every_winner_its_interval():
    clear, kept = unselected_of(finals_of({0: [100.0] * 3, 1: [150.0, 152.0, 149.0], 2: [120.0, 121.0, 119.0]}))
    assert kept.ratio == pytest.approx(clear.ratio)
    lucky, corrected = unselected_of(finals_of({0: [100.0] * 3, 1: [160.0, 150.0, 150.0], 2: [150.0, 152.0, 151.0]}))
    assert (corrected.low, corrected.high, corrected.num_rounds) == (lucky.low, lucky.high, lucky.num_rounds)


def test_each_round_counts_for_the_candidate_that_the_other_rounds_choose():
    """Of the first, the lucky one wins by 168; without that round the other is chosen."""
    finals = finals_of({0: [100.0] * 3, 1: [168.0, 150.0, 150.0], 2: [155.0, 155.0, 155.0]})
    lucky, corrected = unselected_of(finals)
    assert lucky.ratio == pytest.approx((1.68 * 1.5 * 1.5) ** (1 / 3))
    assert corrected.ratio == pytest.approx((1.55 * 1.5 * 1.5) ** (1 / 3))


def test_a_candidate_measured_in_fewer_rounds_counts_in_its_own():
    finals = finals_of({0: [100.0] * 3, 1: [150.0, 150.0, 153.0], 2: [120.0, 121.0, None]})
    lucky, corrected = unselected_of(finals)
    assert corrected.ratio == pytest.approx(lucky.ratio)


def test_the_ratio_of_the_luckiest_of_equals_is_right_on_average():
    rng, errors = random.Random(0), ([], [])
    for _ in range(80):
        rates = {0: [], 1: [], 2: [], 3: []}
        for candidate in 4 * list(rates):
            rates[candidate].append((4.0 if candidate else 1.0) * math.exp(rng.gauss(0.0, 0.1)))
        for comparison, found in zip(unselected_of(finals_of(rates)), errors, strict=True):
            found.append(math.log(comparison.ratio / 4.0))
    before, after = map(statistics.fmean, errors)
    assert abs(after) < 0.01 < 0.03 < before


def test_a_gain_that_is_not_real_keeps_the_baseline():
    finals = finals_of({0: [100.0, 100.0, 100.0], 1: [130.0, 95.0, 110.0]})
    winner, comparisons = choose_winner(finals, BASELINE, no_preference)
    assert winner == BASELINE
    assert comparisons[1].ratio > 1.1


def test_a_slower_candidate_keeps_the_baseline():
    assert choose_winner(finals_of({0: [100.0] * 3, 1: [90.0] * 3}), BASELINE, no_preference)[0] == BASELINE


def test_a_lone_baseline_wins():
    assert choose_winner(finals_of({0: [100.0]}), BASELINE, no_preference) == (BASELINE, {})


def test_a_real_gain_is_not_lost_to_a_faster_one_that_is_erratic():
    finals = finals_of({0: [100.0] * 3, 1: [180.0, 95.0, 160.0], 2: [120.0, 121.0, 119.0]})
    assert not compare(finals, 1, 0).is_gain
    assert choose_winner(finals, BASELINE, no_preference)[0] == 2


def test_a_tiny_gain_ties_with_a_preferred_baseline():
    finals = finals_of({0: [100.0] * 6, 1: [100.5, 100.6, 100.5] * 2})
    assert compare(finals, 1, 0).is_gain
    assert choose_winner(finals, BASELINE, lambda candidate: (candidate,))[0] == BASELINE
    assert choose_winner(finals, BASELINE, lambda candidate: (-candidate,))[0] == 1


def test_one_infeasible_round_is_enough_not_to_win():
    finals = finals_of({0: [100.0] * 3, 1: [150.0] * 3, 2: [120.0] * 3}, infeasible={(1, 2)})
    winner, comparisons = choose_winner(finals, BASELINE, no_preference)
    assert winner == 2
    assert set(comparisons) == {2}


def test_with_an_infeasible_baseline_the_best_feasible_wins_without_a_comparison():
    finals = finals_of({0: [0.0, 0.0], 1: [40.0, 41.0], 2: [50.0, 51.0]}, infeasible={(0, 0), (0, 1)})
    assert choose_winner(finals, BASELINE, no_preference) == (2, {})


def test_the_best_feasible_is_found_in_one_round_too():
    finals = finals_of({0: [0.0], 1: [40.0], 2: [50.0]}, infeasible={(0, 0)})
    assert choose_winner(finals, BASELINE, no_preference) == (2, {})


def test_candidates_are_ranked_by_the_rounds_that_all_of_them_share():
    # The third round was twice as fast for all; candidate 2 was not in it.
    finals = finals_of({0: [100.0, 100.0, 200.0], 1: [120.0, 120.0, 240.0], 2: [130.0, 130.0]})
    assert choose_winner(finals, BASELINE, no_preference)[0] == 2


def test_candidates_that_share_no_round_are_ranked_by_their_own():
    finals = finals_of({0: [100.0] * 4, 1: [120.0, 120.0], 2: [None, None, 130.0, 130.0]})
    assert choose_winner(finals, BASELINE, no_preference)[0] == 2


def test_a_candidate_of_a_single_round_cannot_beat_the_baseline():
    finals = finals_of({0: [100.0] * 2, 1: [300.0]})
    assert choose_winner(finals, BASELINE, no_preference) == (BASELINE, {})


def test_finals_without_a_feasible_candidate_are_refused():
    with pytest.raises(ValueError, match="no candidate of the finals is feasible"):
        choose_winner(finals_of({0: [1.0]}, infeasible={(0, 0)}), BASELINE, no_preference)


def test_finals_without_the_baseline_are_refused():
    with pytest.raises(ValueError, match="lack the baseline, candidate 0"):
        choose_winner(finals_of({1: [1.0, 1.0]}), BASELINE, no_preference)


def simulated_finals(rng, gains, *, noise=0.015):
    """The winner of the finals of a baseline and of settings that are truly so many times as fast, and its comparison.

    They are looked at after 3 rounds and, while the best seems faster but not beyond doubt, after each of 9 more.
    """
    speeds = [1.0, *gains]
    drift = [rng.gauss(0, 0.03) for _ in range(12)]
    rates = [[100 * speed * math.exp(d + rng.gauss(0, noise)) for d in drift] for speed in speeds]
    for num_rounds in range(3, 13):
        finals = finals_of({number: of_rounds[:num_rounds] for number, of_rounds in enumerate(rates)})
        winner, comparisons = choose_winner(finals, BASELINE, no_preference)
        best = max(comparisons.values(), key=lambda comparison: comparison.ratio)
        if best.is_gain or best.ratio <= 1:
            break
    return winner, comparisons.get(winner)


def num_gains(gains, num_finals, *, seed):
    rng = random.Random(seed)
    return sum(simulated_finals(rng, gains)[0] != BASELINE for _ in range(num_finals))


def test_equal_candidates_are_called_a_gain_at_most_once_in_forty():
    """95 % over all looks leaves 2.5 % on the upper side; every look at 95 % would find 60."""
    assert 1 <= num_gains([1.0], 1000, seed=7) <= 25


def test_of_three_equal_candidates_one_is_called_a_gain_at_most_twice_in_a_hundred():
    assert num_gains([1.0] * 3, 400, seed=7) <= 8


def test_each_of_several_candidates_gets_its_share_of_the_error():
    assert 1 - confidence_of(3, 3) == pytest.approx((1 - confidence_of(3, 1)) / 3)
    finals = finals_of({0: [100.0, 101.0, 99.0], 1: [150.0, 152.0, 149.0]})
    assert compare(finals, 1, 0, num_candidates=3).low < compare(finals, 1, 0).low


def test_noisy_candidates_tie_within_one_standard_error_and_at_most_three_percent():
    rates = {0: [50.0] * 3, 1: [100.0, 110.0, 100.0], 2: [104.0, 102.0, 104.0]}
    prefers_second = lambda candidate: (-candidate,)  # noqa: E731 -- a key of one line
    prefers_first = lambda candidate: (candidate,)  # noqa: E731
    assert choose_winner(finals_of(rates), BASELINE, prefers_second)[0] == 2
    assert choose_winner(finals_of(rates), BASELINE, prefers_first)[0] == 1
    slower = {**rates, 1: [96.0, 106.0, 96.0]}
    assert choose_winner(finals_of(slower), BASELINE, prefers_first)[0] == 2


def test_a_gain_of_a_tenth_is_nearly_always_called_one():
    assert num_gains([1.1], 200, seed=8) >= 196


@pytest.mark.parametrize("gains", [[1.2], [1.2, 1.2, 1.2], [1.2, 1.18, 1.15], [1.05, 1.05, 1.05]])
def test_the_interval_of_the_winner_holds_though_it_is_the_luckiest(gains):
    rng = random.Random(9)
    finals = [simulated_finals(rng, gains) for _ in range(300)]
    won = [(comparison, gains[winner - 1]) for winner, comparison in finals if comparison is not None]
    assert len(won) >= 290
    covered = sum(comparison.low <= truth <= comparison.high for comparison, truth in won)
    bias = statistics.fmean(comparison.ratio / truth - 1 for comparison, truth in won)
    print(f"{covered / len(won):.3f} hold, {bias:+.2%} too high")
    assert covered >= 0.95 * len(won)
    assert abs(bias) < 0.01


def test_a_round_has_the_same_order_each_time_whatever_order_the_candidates_come_in():
    first = round_order([3, 1, 7, 0], 2, 11)
    assert sorted(first) == [0, 1, 3, 7]
    assert round_order([0, 1, 3, 7], 2, 11) == first


def test_the_order_changes_with_the_round_and_with_the_seed():
    candidates = range(8)
    assert len({tuple(round_order(candidates, number, 1)) for number in range(5)}) == 5
    assert len({tuple(round_order(candidates, 0, seed)) for seed in range(5)}) == 5


def test_every_candidate_comes_first_about_equally_often():
    firsts = [round_order([0, 1, 2], number, 5)[0] for number in range(300)]
    assert all(70 <= firsts.count(candidate) <= 130 for candidate in range(3))


def test_clear_gains_of_noisy_rounds_are_found_with_the_noise_of_all_finalists():
    rates = {0: [348.0, 475.0, 477.0], 1: [474.0, 635.0, 564.0], 9: [827.0, 827.0, 827.0], 17: [839.0, 825.0, 927.0]}
    alone = {number: rates[number] for number in (0, 9)}
    assert not compare(finals_of(alone), 9, 0, num_candidates=3).is_gain
    assert compare(finals_of(rates), 9, 0, num_candidates=3, is_last=True).is_gain


def test_rounds_in_a_process_of_earlier_runs_make_the_interval_longer_by_their_share():
    finals = finals_of({0: [100.0, 101.0], 1: [150.0, 151.0]})
    fresh = compare(finals, 1, 0)
    one = [replace(final, is_shared=final.round == 0 and final.candidate == 1) for final in finals]
    both = [replace(final, is_shared=True) for final in finals]
    for found, error in ((compare(one, 1, 0), SHARED_ERROR / 2), (compare(both, 1, 0), SHARED_ERROR)):
        assert found.ratio == fresh.ratio
        assert math.log(found.low) == pytest.approx(math.log(fresh.low) - error)
        assert math.log(found.high) == pytest.approx(math.log(fresh.high) + error)


@pytest.mark.parametrize(
    ("interval", "expected"), [((1.2, 1.17, 1.23), (1.105, 1.303)), ((3.2, 2.1, 4.9), (2.084, 4.937))], ids=str
)
def test_at_another_time_a_narrow_interval_is_much_longer_and_a_long_one_hardly(interval, expected):
    assert range_at_another_time(*interval) == pytest.approx(expected, abs=2e-3)


def test_a_ratio_outside_its_interval_has_no_range():
    with pytest.raises(ValueError, match="0 < low <= ratio <= high"):
        range_at_another_time(1.2, 0.0, 1.5)
