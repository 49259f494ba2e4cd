"""The gate and an epoch's start on a CUDA device, where a thread of the loader page-locks its batches."""

from __future__ import annotations

import pytest

from autotune.measure.block import Phase
from autotune.model.outcome import Outcome
from autotune.model.result import TrialResult
from tests.gpu.bench import QUICK, Bench, note, rank_of

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("is_persistent", [False, True])
def test_a_loader_that_page_locks_is_held_back_and_begun_anew(bench: Bench, is_persistent: bool) -> None:
    result = bench.train(pin_memory=True, num_workers=4, persistent_workers=is_persistent)
    assert result.outcome is Outcome.OK, result.reason + result.log_tail
    rank = rank_of(result)
    assert not rank.is_primed
    ramp = [block for block in rank.blocks if block.phase is Phase.RAMP]
    # One batch of each worker, or as many as last as long as a block; and those whose steps the device has not ended
    # when the last of these is asked for.
    num_micro_batches = sum(block.num_micro_batches for block in ramp)
    assert num_micro_batches >= 4
    assert num_micro_batches <= 8 or sum(block.duration_s for block in ramp[:-5]) < QUICK.min_block_s
    assert result.measurement is not None and result.measurement.restart_s is not None
    note(f"start of an epoch, 4 workers, persistent {is_persistent}", f"{result.measurement.restart_s:.3f} s")


def test_two_number_formats_begin_with_the_same_weights_and_batch(bench: Bench, plain: TrialResult) -> None:
    low = bench.train(precision="bf16")
    assert low.outcome is Outcome.OK, low.reason + low.log_tail
    assert rank_of(plain).start_digest is not None
    assert rank_of(low).start_digest == rank_of(plain).start_digest
    assert rank_of(low).first_losses == pytest.approx(rank_of(plain).first_losses, rel=0.02)
