"""What the losses of a trial tell: whether it began as another did, and whether one of them was not finite."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.measure.loss_parity import LossReference
from autotune.measure.window_stopping import WindowRule
from autotune.model.result import ParityGap, TrialResult
from autotune.settings import Precision
from autotune.verdict.format_parity import NOT_CLAIMED, references_of
from tests.integration.trial import loops
from tests.integration.trial.ground import Ground, Run

DROPOUT = loops.PLAIN.replace("loader =", "model.insert(1, torch.nn.Dropout(0.5))\nloader =")
UNSEEDED = "torch.manual_seed(torch.seed())\nmodel[0].reset_parameters()\n" + loops.PLAIN
BREAKS_IN_LOW_PRECISION = (
    """
def coarse(module, args, output):
    return output if output.dtype is torch.float32 else 1.5 * output

model.register_forward_hook(coarse)
"""
    + loops.PLAIN
)
HARD_BATCHES = """
class Hard(Data):
    def __getitem__(self, index):
        return torch.full((4,), 1.0 if index < 8 else float(index)), index % 3

for epoch in range(1000):
    for x, y in DataLoader(Hard(8000), batch_size=8):
        train_on(x, y)
        time.sleep(0.15)
"""
ONE_LOSS_IS_NOT_FINITE = """
import time
began, has_failed = time.monotonic(), False
for x, y in DataLoader(Data(800), batch_size=8):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(x), y)
    if not has_failed and time.monotonic() - began > AFTER_S:
        has_failed = True
        (loss * float("inf")).backward()
        optimizer.zero_grad()
    else:
        loss.backward()
    optimizer.step()
"""


def script(ground: Ground, loop: str) -> Path:
    return ground.script(loops.PRELUDE + loop)


def trials(ground: Ground, loop: str, precision: Precision) -> tuple[Run, Run]:
    """One in fp32, and one in another format that is compared with it."""
    path = script(ground, loop)
    facts = ground.probe(path)
    plain = ground.trial(path, facts)
    return plain, ground.trial(path, facts, precision=precision, job={"references": references_from(plain)})


def references_from(run: Run) -> tuple[LossReference, ...]:
    assert run.verdict is not None, run.output
    return references_of(TrialResult(outcome=run.outcome, measurement=run.verdict.measurement, ranks=run.ranks))


@pytest.mark.parametrize("precision", [Precision.BF16, Precision.FP16])
def test_two_trials_begin_with_the_same_weights_and_batch_and_agree_in_their_losses(
    ground: Ground, precision: Precision
) -> None:
    """Also where the first steps go into finding fp16's scale."""
    plain, low = trials(ground, loops.PLAIN, precision)
    assert plain.rank.start_digest is not None
    assert low.rank.start_digest == plain.rank.start_digest
    assert low.outcome == "ok", low.verdict
    assert low.rank.first_losses != plain.rank.first_losses
    assert low.rank.first_losses == pytest.approx(plain.rank.first_losses, rel=0.01)
    assert low.verdict is not None and low.verdict.notes == ()


def test_a_model_that_breaks_in_low_precision_is_invalid_with_the_numbers(ground: Ground) -> None:
    _, low = trials(ground, BREAKS_IN_LOW_PRECISION, Precision.BF16)
    assert low.outcome == "invalid"
    assert low.verdict is not None and "where fp32 has" in low.verdict.reason


def test_losses_are_compared_while_both_trials_train_on_the_first_batch(ground: Ground) -> None:
    """With long steps the next batches come within the first losses, here after fewer passes of the first trial."""
    path = script(ground, HARD_BATCHES)
    facts = ground.probe(path)
    plain = ground.trial(path, facts, job={"script_steps": 12})
    references = references_from(plain)
    low = ground.trial(path, facts, precision=Precision.BF16, job={"script_steps": 60, "references": references})
    assert max(plain.rank.first_losses) > 1.2 * max(low.rank.first_losses[:5])
    assert len(plain.rank.first_batches) < len(low.rank.first_batches)
    assert low.outcome == "ok", low.verdict


@pytest.mark.parametrize(("loop", "gap"), [(DROPOUT, ParityGap.UNKNOWN_START), (UNSEEDED, ParityGap.NO_REFERENCE)])
def test_parity_is_not_claimed_where_losses_differ_by_chance(ground: Ground, loop: str, gap: ParityGap) -> None:
    _, low = trials(ground, loop, Precision.BF16)
    assert low.outcome == "ok", low.verdict
    assert low.verdict is not None
    assert low.verdict.parity_gap is gap and low.verdict.notes == (NOT_CLAIMED[gap],)


@pytest.mark.parametrize(("after_s", "outcome"), [(0.0, "ok"), (1.2, "invalid")])
def test_one_loss_that_is_not_finite_makes_the_window_invalid_and_the_warm_up_not(
    ground: Ground, after_s: float, outcome: str
) -> None:
    path = script(ground, ONE_LOSS_IS_NOT_FINITE.replace("AFTER_S", str(after_s)))
    window = WindowRule(half_width_ratio=1e-6, min_window_s=2.0, max_window_s=2.0)
    run = ground.trial(path, ground.probe(path), job={"window": window})
    assert run.outcome == outcome, f"{run.verdict} {run.output}"
