"""From the blocks of all ranks to the throughput of the trial."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from autotune.measure.block import Phase
from autotune.measure.build_rate import BUILT_WEIGHT
from autotune.measure.window_stopping import LEAST_BLOCKS
from autotune.model.result import RaisedError, RankResult, RankStatus
from autotune.protocol.codec import from_plain, to_plain
from autotune.units import GIB
from autotune.verdict.aggregate import RACED_MARGIN, device_peak_bytes, measurement_of, probed_facts
from tests.unit.facts import script_facts
from tests.unit.runner.samples import block, rank


def test_one_rank_gives_its_own_rate_and_waits() -> None:
    measured = measurement_of([rank()])
    assert measured is not None
    assert measured.samples_per_second == pytest.approx(6400)
    assert measured.low == pytest.approx(6400) and measured.high == pytest.approx(6400)
    assert measured.data_wait_fraction == pytest.approx(0.2)
    assert measured.num_blocks == 12
    assert measured.window_s == pytest.approx(1.2)
    assert measured.compute_samples_per_second == 8000


def test_ranks_together_give_all_samples_over_the_slowest_ones_time() -> None:
    slow = rank(rank=1, world_size=2, blocks=(block(duration_s=0.2, data_wait_s=0.1),) * 12)
    measured = measurement_of([rank(world_size=2), slow])
    assert measured is not None
    assert measured.samples_per_second == pytest.approx(2 * 640 / 0.2)
    assert measured.data_wait_fraction == pytest.approx(0.5)
    assert measured.low == pytest.approx(6400) and measured.high == pytest.approx(6400)


def test_only_blocks_of_the_window_count() -> None:
    slow = [block(phase=phase, duration_s=5.0) for phase in (Phase.WARMUP, Phase.COMPUTE, Phase.RAMP)]
    measured = measurement_of([rank(blocks=(*slow, *(block(),) * 12))])
    assert measured is not None
    assert measured.samples_per_second == pytest.approx(6400)


def test_too_few_blocks_on_any_rank_give_no_measurement() -> None:
    few = rank(rank=1, world_size=2, blocks=(block(),) * (LEAST_BLOCKS - 1))
    assert measurement_of([rank(world_size=2), few]) is None


def test_a_wait_longer_than_the_time_is_all_of_it() -> None:
    measured = measurement_of([rank(blocks=(block(data_wait_s=0.11),) * 12)])
    assert measured is not None
    assert measured.data_wait_fraction == 1.0


def test_a_race_lost_before_the_window_leaves_the_rate_of_the_fastest_step_as_a_bound() -> None:
    compute = [block(phase=Phase.COMPUTE, duration_s=s, data_wait_s=0.0) for s in (0.1, 0.08, 0.2)]
    measured = measurement_of(
        [rank(status=RankStatus.RACED_OUT, blocks=tuple(compute), compute_samples_per_second=5e3)]
    )
    assert measured is not None
    assert measured.samples_per_second == pytest.approx(8000)
    assert measured.high == pytest.approx(8000 * (1 + RACED_MARGIN))
    assert measured.low < 5000
    assert measured.num_blocks == 0


def test_ranks_that_lost_a_race_together_are_bounded_by_the_slowest_of_them() -> None:
    ranks = []
    for number, durations_s in enumerate(((0.1, 0.08), (0.2, 0.18))):
        blocks = tuple(block(phase=Phase.COMPUTE, duration_s=s, data_wait_s=0.0) for s in durations_s)
        lost = {"status": RankStatus.RACED_OUT, "blocks": blocks, "compute_samples_per_second": 640 / durations_s[0]}
        ranks.append(rank(rank=number, world_size=2, **lost))
    measured = measurement_of(ranks)
    assert measured is not None
    assert measured.samples_per_second == pytest.approx(2 * 640 / 0.18)
    assert measured.compute_samples_per_second == pytest.approx(2 * 640 / 0.2)
    assert measured.low == pytest.approx(2 * 640 / 0.2 * (1 - RACED_MARGIN))


def test_a_race_lost_without_a_compute_block_leaves_nothing() -> None:
    assert measurement_of([rank(status=RankStatus.RACED_OUT, blocks=())]) is None


def test_the_compute_rate_is_unknown_when_one_rank_does_not_know_it() -> None:
    unknown = rank(rank=1, world_size=2, compute_samples_per_second=None)
    measured = measurement_of([rank(world_size=2), unknown])
    assert measured is not None
    assert measured.compute_samples_per_second is None


def test_the_compute_rate_of_several_ranks_is_that_of_the_slowest_times_their_number() -> None:
    slow = rank(rank=1, world_size=2, compute_samples_per_second=3000.0)
    measured = measurement_of([rank(world_size=2), slow])
    assert measured is not None
    assert measured.compute_samples_per_second == 6000


def test_convergence_holds_for_all_ranks_and_priming_for_any() -> None:
    other = rank(rank=1, world_size=2, is_converged=False, is_primed=True)
    measured = measurement_of([rank(world_size=2), other])
    assert measured is not None
    assert not measured.is_converged
    assert measured.is_primed


def refused(**changes: Any) -> RankResult:
    values: dict[str, Any] = {
        "kind": "OutOfMemoryError",
        "message": "",
        "is_out_of_memory": True,
        "requested_bytes": 2 * GIB,
    }
    return rank(
        status=RankStatus.RAISED,
        peak_reserved_bytes=5 * GIB,
        reserved_bytes=4 * GIB,
        error=RaisedError(**{**values, **changes}),
    )


def test_the_peak_is_the_allocators_and_what_lies_outside_of_it_or_what_was_seen() -> None:
    trained = rank(peak_reserved_bytes=5 * GIB)
    assert device_peak_bytes([trained], seen_bytes=3 * GIB, outside_bytes=GIB) == 6 * GIB
    assert device_peak_bytes([trained], seen_bytes=7 * GIB, outside_bytes=GIB) == 7 * GIB
    assert device_peak_bytes([rank()], seen_bytes=3 * GIB, outside_bytes=GIB) == 3 * GIB
    assert device_peak_bytes([], seen_bytes=0, outside_bytes=GIB) == 0


def test_of_several_devices_the_fullest_is_the_peak() -> None:
    ranks = [rank(rank=i, world_size=2, peak_reserved_bytes=(5 + i) * GIB) for i in range(2)]
    assert device_peak_bytes(ranks, seen_bytes=0, outside_bytes=GIB) == 7 * GIB


def test_a_validation_that_the_trial_did_not_come_to_is_the_least_peak() -> None:
    trained = rank(peak_reserved_bytes=5 * GIB)
    assert device_peak_bytes([trained], seen_bytes=0, outside_bytes=GIB, validation_bytes=7 * GIB) == 8 * GIB
    assert device_peak_bytes([trained], seen_bytes=0, outside_bytes=GIB, validation_bytes=GIB) == 6 * GIB


def test_what_was_refused_is_added_to_what_was_held() -> None:
    assert device_peak_bytes([refused()], seen_bytes=5 * GIB, outside_bytes=GIB) == 7 * GIB
    assert device_peak_bytes([refused(requested_bytes=1)], seen_bytes=0, outside_bytes=GIB) == 6 * GIB
    assert device_peak_bytes([refused(is_host_memory=True)], seen_bytes=0, outside_bytes=GIB) == 6 * GIB


def restarted(**changes: Any) -> RankResult:
    """A rank with epochs of 120 micro-batches of 10 ms, whose start took 0.3 s for 10 of them after an end of 0.1 s."""
    blocks = (*(block(),) * 12, block(phase=Phase.RESTART, duration_s=0.3))
    return rank(**{"blocks": blocks, "epoch_micro_batches": 120, "epoch_end_s": 0.1, **changes})


def test_the_start_of_an_epoch_is_spread_over_its_samples() -> None:
    measured = measurement_of([restarted()])
    assert measured is not None
    assert measured.restart_s == pytest.approx(0.3)
    assert measured.epoch_s == pytest.approx(1.2)
    assert measured.samples_per_second == pytest.approx(6400 * 1.2 / 1.5)
    assert measured.steady_samples_per_second == pytest.approx(6400)
    assert measured.low == pytest.approx(measured.samples_per_second)


def test_what_full_queues_save_at_an_epochs_end_is_no_cost_of_its_start() -> None:
    """Of 10 ms a batch 8 compute beside busy workers; alone a batch takes 5 ms, also the 4 x 2 in the queues."""
    observed = {"num_workers": "4", "prefetch_factor": "2", "persistent_workers": "True"}
    alone = restarted(observed=observed, compute_samples_per_second=64 / 0.005)
    measured, plain = measurement_of([alone]), measurement_of([restarted(observed=observed)])
    assert measured is not None and plain is not None
    assert measured.restart_s == pytest.approx((plain.restart_s or 0.0) - 8 * 0.003)


def test_a_last_round_that_not_all_workers_have_a_batch_for_is_a_part_of_the_epochs_cost() -> None:
    """120 batches of 16 workers are 7.5 rounds: 8 workers idle, for a fifth of 10 ms each; of the 10 seen, 6 did."""
    observed = {"num_workers": "16", "persistent_workers": "True"}
    measured = measurement_of([restarted(observed=observed)])
    assert measured is not None
    assert measured.restart_s == pytest.approx(0.3 + (8 - 6) * 0.2 * 0.01)
    unseen = measurement_of([restarted(observed=observed, epoch_end_s=None)])
    assert unseen is not None
    assert unseen.restart_s == pytest.approx(8 * 0.2 * 0.01)


def test_workers_that_began_far_apart_share_the_last_round_out() -> None:
    """The first batch came after 0.17 s, of which one of 16 workers took 0.16 s: the last began 0.19 s after it.

    Then the 8 batches of the last round are there before those of the round before: 80 ms less than all start late.
    """
    observed = {"num_workers": "16", "persistent_workers": "False"}
    first = block(phase=Phase.RESTART, num_steps=1, num_micro_batches=1, num_samples=64.0, duration_s=0.17)
    rest = block(phase=Phase.RESTART, num_steps=31, num_micro_batches=31, num_samples=1984.0, duration_s=0.35)
    window = (block(data_wait_s=0.1),) * 12
    measured = measurement_of([restarted(blocks=(*window, first, rest), observed=observed)])
    assert measured is not None
    assert measured.restart_s == pytest.approx(0.1 + 0.2 + 8 * 0.01 - 0.19 / 2)


def test_a_rate_is_that_of_what_was_built_where_the_loader_binds() -> None:
    window = (block(data_wait_s=0.1, num_built=11.0),) * 12
    measured = measurement_of([restarted(blocks=(*window, block(phase=Phase.RESTART, duration_s=0.3)))])
    assert measured is not None
    factor = 1 + 0.1 * BUILT_WEIGHT
    assert measured.steady_samples_per_second == pytest.approx(6400 * factor)
    assert measured.epoch_s == pytest.approx(1.2 / factor)
    assert measured.restart_s == pytest.approx(0.4 - 0.1 / factor)


def test_without_a_restart_or_a_length_the_steady_rate_is_the_rate() -> None:
    for changes in ({"epoch_end_s": None}, {"epoch_micro_batches": None}, {"num_epoch_ends": 2}):
        measured = measurement_of([restarted(**changes)])
        assert measured is not None
        assert measured.samples_per_second == measured.steady_samples_per_second == pytest.approx(6400)
        assert measured.restart_s is None


def test_a_loader_that_is_built_anew_for_every_epoch_starts_as_the_first_one_did() -> None:
    """A fifth of the time is waited for data: so much of a cycle of 2 workers, 20 ms, was gained."""
    observed = {"num_workers": "2", "persistent_workers": "True"}
    rebuilt = restarted(epoch_end_s=None, is_loader_rebuilt=True, first_batch_s=0.3, observed=observed)
    measured = measurement_of([rebuilt])
    assert measured is not None
    assert measured.restart_s == pytest.approx(0.3 - 0.2 * 2 * 0.01)


@pytest.mark.parametrize(
    ("is_persistent", "num_workers", "first_batch_s", "is_estimated"),
    [("False", "2", 0.3, True), ("True", "2", 0.3, False), ("False", "0", 0.3, False), ("False", "2", 0.001, False)],
)
def test_a_start_of_new_workers_that_was_too_long_to_look_at_is_estimated(
    is_persistent: str, num_workers: str, first_batch_s: float, is_estimated: bool
) -> None:
    observed = {"num_workers": num_workers, "persistent_workers": is_persistent}
    measured = measurement_of([restarted(epoch_end_s=None, first_batch_s=first_batch_s, observed=observed)])
    assert measured is not None
    assert (measured.restart_s is not None) is is_estimated


def test_the_rank_that_takes_longest_to_start_again_counts() -> None:
    slow = restarted(rank=1, world_size=2, epoch_end_s=0.5)
    measured = measurement_of([restarted(world_size=2), slow])
    assert measured is not None
    assert measured.restart_s == pytest.approx(0.7)


def test_samples_of_skipped_steps_trained_nothing() -> None:
    """One of 120 steps was skipped, and its 64 samples with it."""
    measured = measurement_of([rank(blocks=(*(block(),) * 11, block(num_skipped_steps=1)))])
    assert measured is not None
    assert measured.samples_per_second == pytest.approx(6400 * 119 / 120)


def test_samples_of_skipped_steps_count_where_speed_alone_is_compared() -> None:
    measured = measurement_of([rank(blocks=(block(num_skipped_steps=4),) * 12)], counts_skipped=True)
    assert measured is not None
    assert measured.samples_per_second == pytest.approx(6400)


def test_a_stored_report_gives_its_measurement_again() -> None:
    """All blocks are kept, so that a better rule can be applied to studies of long ago."""
    warm_up = (block(phase=Phase.WARMUP), block(phase=Phase.COMPUTE), block(phase=Phase.RAMP))
    report = restarted(blocks=(*warm_up, *restarted().blocks))
    stored = from_plain(RankResult, json.loads(json.dumps(to_plain(report))))
    assert stored.blocks == report.blocks
    assert measurement_of([stored]) == measurement_of([report])


def test_ranks_validate_on_one_host_and_what_they_take_of_it_adds_up() -> None:
    assert probed_facts([rank()]) is None
    plain = script_facts(world_size=2)
    validating = replace(plain, validation_host_bytes=5 * GIB, validation_host_growth_bytes=3 * GIB)
    first, second = (rank(rank=n, world_size=2, facts=facts) for n, facts in enumerate((plain, validating)))
    assert probed_facts([first]) == plain
    assert probed_facts([first, second]) == validating
    both = probed_facts([second, second])
    assert both is not None
    assert (both.validation_host_bytes, both.validation_host_growth_bytes) == (10 * GIB, 6 * GIB)
