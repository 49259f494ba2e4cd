"""The number format is really in force inside the model and at the loss, and nowhere else; training still learns."""

from __future__ import annotations

import math

import pytest

from autotune.model.facts import ScriptFacts
from autotune.settings import Precision
from tests.integration.trial.ground import SCRIPTS, Ground

FORMATS, REGRESSION = SCRIPTS / "formats.py", SCRIPTS / "regression.py"
LOW = {Precision.BF16: "torch.bfloat16", Precision.FP16: "torch.float16"}


@pytest.fixture(scope="module")
def facts(ground: Ground) -> ScriptFacts:
    return ground.probe(REGRESSION)


@pytest.mark.parametrize("precision", list(LOW))
def test_operands_are_low_inside_the_region_and_the_region_ends_at_backward(
    ground: Ground, precision: Precision
) -> None:
    facts = ground.probe(FORMATS)
    said = ground.train(FORMATS, facts, precision=precision).said
    formats, low = said["formats"], [LOW[precision]]
    for operation in ("convolution", "addmm", "scaled_dot_product"):
        assert formats[f"forward {operation}"] == low
    assert formats["loss mse_loss"] == ["torch.float32"]
    assert said["loss_format"] == "torch.float32"
    assert set(said["at_loss"]) == {True}
    assert set(said["in_backward"]) == {False}
    assert set(said["after_step"]) == {False}
    assert said["weight_format"] == said["grad_format"] == "torch.float32"
    assert set(said["evaluation"]) == {"torch.float32"}
    assert formats["evaluation addmm"] == ["torch.float32"]


def test_without_a_setting_nothing_is_changed(ground: Ground) -> None:
    said = ground.train(FORMATS, ground.probe(FORMATS)).said
    assert set(said["at_loss"]) == {False}
    assert {name: formats for name, formats in said["formats"].items() if formats != ["torch.float32"]} == {}


@pytest.mark.parametrize("precision", [Precision.FP32, *LOW])
@pytest.mark.parametrize("conv", [(), ("--conv",)])
def test_the_loss_falls_over_thirty_steps(
    ground: Ground, facts: ScriptFacts, precision: Precision, conv: tuple[str, ...]
) -> None:
    """A region that is never left keeps its casts of the weights, and the loss stays where it was."""
    losses = ground.train(REGRESSION, facts, *conv, "--epochs", "10", precision=precision).said["losses"]
    plain = ground.train(REGRESSION, facts, *conv, "--epochs", "10").said["losses"]
    assert len(losses) == 30
    assert plain[-1] < 0.5 * plain[0]
    # Under fp16 the first steps are spent on finding the scale.
    assert losses[-1] == pytest.approx(plain[-1], rel=0.3 if precision is Precision.FP16 else 0.05)


@pytest.mark.parametrize("num_parts", [1, 4])
def test_under_fp16_clipping_sees_true_norms_from_the_first_step_on(
    ground: Ground, facts: ScriptFacts, num_parts: int
) -> None:
    arguments = ("--weight", "0.001", "--clip", "0.0001")
    whole = ground.train(REGRESSION, facts, *arguments).said
    scaled = ground.train(
        REGRESSION,
        facts,
        *arguments,
        precision=Precision.FP16,
        batch_size=64 // num_parts,
        grad_accum_steps=num_parts,
    ).said
    assert scaled["num_updates"] == 3
    assert scaled["norms"][num_parts - 1 :: num_parts] == pytest.approx(whole["norms"], rel=0.02)
    norms = [math.hypot(*grads) for grads in scaled["grads"]]
    assert norms == pytest.approx([math.hypot(*grads) for grads in whole["grads"]], rel=0.05)


def test_under_fp16_an_overflow_skips_one_step_and_training_goes_on(ground: Ground, facts: ScriptFacts) -> None:
    arguments = ("--weight", "0.001", "--epochs", "3")
    whole = ground.train(REGRESSION, facts, *arguments, precision=Precision.FP16).said
    broken = ground.train(REGRESSION, facts, *arguments, "--overflow-at", "4", precision=Precision.FP16).said
    assert (whole["num_updates"], broken["num_updates"]) == (9, 8)
    assert all(map(math.isfinite, broken["weights"]))


def test_under_fp16_a_spare_optimizer_does_not_hide_the_scaled_gradients(ground: Ground) -> None:
    arguments = ("--weight", "0.001", "--clip", "0.0001", "--second-optimizer")
    facts = ground.probe(REGRESSION, *arguments)
    whole = ground.train(REGRESSION, facts, *arguments).said
    scaled = ground.train(REGRESSION, facts, *arguments, precision=Precision.FP16).said
    assert scaled["norms"] == pytest.approx(whole["norms"], rel=0.02)


@pytest.mark.parametrize("scaling", ["ours", "the script's"])
def test_a_trial_counts_steps_whose_gradients_were_not_finite(ground: Ground, scaling: str) -> None:
    """One step in three is skipped: such a trial is fast because it does not train."""
    # Slow steps, or the scale is halved until it is 0.
    arguments = (
        "--epochs",
        "999",
        "--poison-every",
        "3",
        "--sleep",
        "0.004",
        *(("--scaler",) if scaling != "ours" else ()),
    )
    facts = ground.probe(REGRESSION, *arguments)
    assert facts.own_grad_scaler is (scaling != "ours")
    changes = {"precision": "fp16"} if scaling == "ours" else {}
    run = ground.trial(REGRESSION, facts, *arguments, job={"own_skipped_share": 0.0}, **changes)
    assert run.outcome == "invalid"
    assert run.verdict is not None and "were skipped because gradients overflowed" in run.verdict.reason
    window = [block for block in run.rank.blocks if block.phase == "window"]
    num_steps, num_skipped = (sum(getattr(b, name) for b in window) for name in ("num_steps", "num_skipped_steps"))
    # A short window may begin and end anywhere in the cycle of three.
    assert abs(num_skipped - num_steps / 3) <= 1


def test_a_script_whose_own_scaler_skips_many_steps_is_measured(ground: Ground) -> None:
    arguments = ("--epochs", "999", "--poison-every", "3", "--sleep", "0.004", "--scaler")
    facts = ground.probe(REGRESSION, *arguments)
    own = ground.trial(REGRESSION, facts, *arguments)
    assert own.outcome == "ok", own.verdict
    other = ground.trial(REGRESSION, facts, *arguments, job={"own_skipped_share": 0.33}, num_workers=1)
    assert other.outcome == "ok", other.verdict


def test_a_healthy_script_with_its_own_scaler_is_measured(ground: Ground) -> None:
    facts = ground.probe(REGRESSION, "--scaler", "--epochs", "999")
    assert ground.trial(REGRESSION, facts, "--scaler", "--epochs", "999", num_workers=2).outcome == "ok"
