"""A recorded grid: what is true of its cells, which are feasible, and what it refuses to say."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotune.errors import NoFeasibleSettingsError, SearchSpaceError
from autotune.lab.grid import Grid, summarize_blocks
from autotune.measure.block import Block, Phase
from autotune.model.outcome import Outcome
from autotune.model.result import TrialResult
from autotune.settings import Settings
from autotune.units import MIB
from tests.unit.grids import CAP_BYTES, grid, header, ok, over_cap, record, true_rate


def block(rate, *, phase=Phase.WINDOW, duration_s=0.1):
    return Block(
        phase=phase,
        num_steps=1,
        num_micro_batches=1,
        num_samples=rate * duration_s,
        duration_s=duration_s,
        data_wait_s=0.0,
    )


def two_cells(*results_of_the_second, repeats=2):
    """Cell 0 is measured at 100, cell 1 with these results."""
    made = header(repeats=repeats)
    made = replace(made, cells=made.cells[:2])
    records = [record(0, ok(rate), round=n) for n, rate in enumerate((100.0, 101.0))]
    return Grid(made, records + [record(1, result, round=n) for n, result in enumerate(results_of_the_second)])


def test_truth_is_near_what_was_measured_and_within_its_noise():
    found = grid()
    for cell in found.feasible:
        truth = found.truth(cell)
        assert truth.samples_per_second == pytest.approx(true_rate(cell), rel=4 * truth.noise_ratio + 0.005)
        assert 0 < truth.noise_ratio < 0.03


def test_the_best_is_the_truly_fastest_and_has_no_regret():
    found = grid()
    assert (found.best.num_workers, found.best.precision) == (2, "fp32")
    assert found.regret(found.best) == 0.0
    slow = replace(found.best, precision="bf16")
    assert found.regret(slow) == pytest.approx(0.4, abs=0.03)
    assert found.is_within(found.best) and not found.is_within(slow)


def test_cells_over_the_cap_are_infeasible_and_have_all_the_regret():
    found = grid()
    over = replace(found.best, num_workers=4)
    assert not found.is_feasible(over) and found.truth(over) is None
    assert found.regret(over) == 1.0 and not found.is_within(over)
    assert found.feasible_share == 0.75


def test_within_means_two_percent_or_the_cells_own_noise():
    near, far = two_cells(ok(99.5), ok(98.5)), two_cells(ok(97.0), ok(96.0))
    assert near.is_within(near.cells[1])
    assert not far.is_within(far.cells[1])
    noisy = two_cells(ok(85.0), ok(110.0))
    assert noisy.regret(noisy.cells[1]) > 0.02 and noisy.is_within(noisy.cells[1])


def test_a_cell_is_feasible_when_more_than_half_of_its_measurements_are():
    assert not two_cells(ok(100.0), over_cap()).is_feasible(two_cells().cells[1])
    mostly = two_cells(ok(100.0), over_cap(), ok(101.0))
    assert mostly.is_feasible(mostly.cells[1])
    assert len(mostly.log_rates(mostly.cells[1])) == 2


def test_a_cell_that_the_recording_lacks_raises_and_names_what_differs():
    with pytest.raises(SearchSpaceError, match="num_workers=3"):
        grid().truth(replace(grid().cells[0], num_workers=3))


def test_settings_that_mean_the_same_find_their_cell():
    found = grid()
    inert = replace(found.cells[0], prefetch_factor=8, persistent_workers=True, pin_memory=True)
    assert found.results(inert) == found.results(found.cells[0])


def test_a_grid_without_a_feasible_cell_says_so():
    found = Grid(header(), [record(n, over_cap()) for n in range(8)])
    assert found.feasible == () and found.feasible_share == 0.0
    with pytest.raises(NoFeasibleSettingsError):
        _ = found.best


def test_missing_are_cells_with_too_few_turns_of_their_own():
    complete = grid()
    assert complete.missing == ()
    without = [r for r in complete.records if (r.cell, r.round) != (3, 1)]
    assert Grid(complete.header, without).missing == (complete.cells[3],)
    anchored = [*without, replace(complete.records[3], anchor=0, round=1)]
    assert Grid(complete.header, anchored).missing == (complete.cells[3],)


def test_under_a_smaller_cap_more_cells_are_over_it():
    found = grid()
    under = found.under(250 * MIB)
    assert under.header.memory_cap_bytes == 250 * MIB
    assert {cell.num_workers for cell in under.feasible} == {0}
    result = under.results(found.best)[0]
    assert (result.outcome, result.measurement) == (Outcome.OVER_CAP, None)
    assert result.peak_memory_bytes == found.results(found.best)[0].peak_memory_bytes
    assert found.under(CAP_BYTES).feasible_share == found.feasible_share


def test_a_larger_cap_than_the_recordings_is_refused():
    with pytest.raises(ValueError, match="recorded under"):
        grid().under(CAP_BYTES + 1)


def test_drift_is_the_spread_of_one_anchor_over_the_recording():
    assert grid().drift_ratio is None
    rates = {0: (100.0, 90.0, 95.0), 1: (10.0, 10.1)}
    anchors = [record(cell, ok(r), anchor=n) for cell, found in rates.items() for n, r in enumerate(found)]
    assert Grid(header(), [*anchors, record(0, ok(1.0)), record(2, over_cap(), anchor=0)]).drift_ratio == pytest.approx(
        1 / 9
    )
    assert Grid(header(), anchors[:1]).drift_ratio is None


def test_residuals_have_the_size_of_the_noise():
    residuals = grid(repeats=6, deviation=0.03).residuals
    assert len(residuals) == 36
    assert (sum(r * r for r in residuals) / 36) ** 0.5 == pytest.approx(0.03, rel=0.3)


def test_a_failed_measurement_counts_against_a_cell_as_one_over_the_cap_does():
    crashed = TrialResult(outcome=Outcome.CRASHED, reason="It raised.")
    assert not two_cells(ok(100.0), crashed).is_feasible(two_cells().cells[1])


@pytest.mark.parametrize(
    "changes",
    [{"schema": 2}, {"repeats": 0}, {"memory_cap_bytes": 0}, {"cells": ()}, {"cells": ({}, {})}],
)
def test_headers_of_no_recording_are_refused(changes):
    with pytest.raises(ValueError):
        header(**changes)


def test_a_header_gives_back_the_settings_that_it_was_made_of():
    settings = header().settings
    assert settings[0] == Settings.from_dict(header().natural.to_dict()).canonical(device_is_cpu=True)
    assert {(s.num_workers, s.precision.value) for s in settings} == {
        (w, p) for w in (0, 1, 2, 4) for p in ("fp32", "bf16")
    }


def test_blocks_are_summed_up_by_their_spread_and_halves():
    blocks = [block(50.0, phase=Phase.RAMP), *(block(rate) for rate in (90.0, 110.0, 100.0, 120.0))]
    summary = summarize_blocks(blocks)
    assert summary.num_blocks == 4
    assert (summary.first_half_samples_per_second, summary.second_half_samples_per_second) == pytest.approx((100, 110))
    assert summary.rate_deviation_ratio == pytest.approx(0.123, abs=0.001)
    assert summarize_blocks(blocks[:2]) is None
