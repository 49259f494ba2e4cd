"""What the optimizer sees under accumulation is what it sees of the whole batch: in real training, script unedited."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from autotune.model.facts import LossReduction, ScriptFacts
from autotune.study.probing import classify_reduction
from tests.integration.trial.ground import SCRIPTS, Ground

SCRIPT = SCRIPTS / "regression.py"


@pytest.fixture(scope="module")
def facts(ground: Ground) -> ScriptFacts:
    return ground.probe(SCRIPT)


def closely(values: object) -> object:
    return pytest.approx(values, rel=2e-5, abs=1e-7)


def difference(values: list[float], others: list[float]) -> float:
    """Norm of the difference, relative to the norm."""
    return math.dist(values, others) / math.hypot(*others)


def flat(rows: list[list[float]]) -> list[float]:
    return [value for row in rows for value in row]


@pytest.mark.parametrize("num_parts", [2, 4])
@pytest.mark.parametrize("reduction", [LossReduction.MEAN, LossReduction.SUM])
def test_gradients_and_three_updates_are_those_of_the_full_batch(
    ground: Ground, facts: ScriptFacts, num_parts: int, reduction: LossReduction
) -> None:
    arguments = ("--loss", reduction.value)
    whole = ground.train(SCRIPT, facts, *arguments).said
    facts = replace(facts, loss_reduction=reduction)
    split = ground.train(SCRIPT, facts, *arguments, batch_size=64 // num_parts, grad_accum_steps=num_parts).said
    assert whole["num_updates"] == split["num_updates"] == 3
    assert len(split["losses"]) == 3 * num_parts
    assert difference(flat(split["grads"]), flat(whole["grads"])) < 2e-6
    assert difference(split["weights"], whole["weights"]) < 2e-6


@pytest.mark.parametrize("clear", ["before", "after", "model"])
@pytest.mark.parametrize("optimizer", ["SGD", "AdamW"])
def test_it_does_not_matter_where_the_script_clears_its_gradients(
    ground: Ground, facts: ScriptFacts, clear: str, optimizer: str
) -> None:
    arguments = ("--clear", clear, "--optimizer", optimizer)
    whole = ground.train(SCRIPT, facts, *arguments).said
    split = ground.train(SCRIPT, facts, *arguments, batch_size=16, grad_accum_steps=4).said
    assert split["weights"] == closely(whole["weights"])


def test_gradients_that_the_script_clears_by_hand_are_noticed(ground: Ground, facts: ScriptFacts) -> None:
    run = ground.trial(SCRIPT, facts, "--clear", "by-hand", "--epochs", "99", batch_size=16, grad_accum_steps=4)
    assert run.outcome == "invalid"
    assert run.verdict is not None
    assert "in force was 1, since the script clears or changes its gradients by hand" in run.verdict.reason


def test_real_training_ends_when_gradients_are_cleared_by_hand_and_says_what_to_write(
    ground: Ground, facts: ScriptFacts
) -> None:
    run = ground.train(SCRIPT, facts, "--clear", "by-hand", batch_size=16, grad_accum_steps=4)
    assert run.code == 2
    assert "NOT in force: grad_accum_steps 1, since the script clears" in run.output
    assert "for x, y in autotune.micro_batches(loader):" in run.output
    assert "in force: batch_size" not in run.output and '"num_updates"' not in run.output


@pytest.mark.parametrize(
    ("arguments", "reduction"),
    [
        (("--loss", "mean"), LossReduction.MEAN),
        (("--loss", "sum"), LossReduction.SUM),
        (("--loss", "mean", "--clear", "by-hand"), LossReduction.UNKNOWN),
    ],
)
def test_one_step_in_parts_tells_how_the_loss_is_reduced(
    ground: Ground, arguments: tuple[str, ...], reduction: LossReduction
) -> None:
    facts = ground.probe(SCRIPT, *arguments)
    split = ground.split_probe(SCRIPT, facts, *arguments, num_parts=2)
    assert facts.first_loss is not None and split.facts is not None
    found = classify_reduction(
        whole_loss=facts.first_loss,
        part_losses=split.first_losses[:2],
        whole_norm=facts.first_grad_norm,
        mean_scaled_norm=split.facts.first_grad_norm,
    )
    assert found is reduction


@pytest.mark.parametrize(("clip", "is_met"), [("0.05", True), ("1e9", False)])
def test_clipping_sees_the_norm_of_the_whole_step_and_clips_once(
    ground: Ground, facts: ScriptFacts, clip: str, is_met: bool
) -> None:
    whole = ground.train(SCRIPT, facts, "--clip", clip).said
    split = ground.train(SCRIPT, facts, "--clip", clip, batch_size=16, grad_accum_steps=4).said
    assert (max(whole["norms"]) > float(clip)) is is_met
    assert split["norms"][3::4] == closely(whole["norms"])
    assert split["weights"] == closely(whole["weights"])


def test_clipping_by_value_is_done_once(ground: Ground, facts: ScriptFacts) -> None:
    whole = ground.train(SCRIPT, facts, "--clip-value", "0.01").said
    split = ground.train(SCRIPT, facts, "--clip-value", "0.01", batch_size=16, grad_accum_steps=4).said
    assert max(flat(whole["grads"])) == pytest.approx(0.01)
    assert split["weights"] == closely(whole["weights"])


def test_a_scheduler_stepped_per_batch_moves_with_the_optimizer(ground: Ground, facts: ScriptFacts) -> None:
    whole = ground.train(SCRIPT, facts, "--schedule", "batch").said
    split = ground.train(SCRIPT, facts, "--schedule", "batch", batch_size=16, grad_accum_steps=4).said
    assert split["rates"] == whole["rates"] == [0.01, 0.005, 0.0025]


@pytest.mark.parametrize("schedule", ["epoch", "plateau"])
@pytest.mark.parametrize("leaving", [(), ("--leave-after", "5")])
def test_a_scheduler_stepped_per_epoch_is_left_alone(
    ground: Ground, facts: ScriptFacts, schedule: str, leaving: tuple[str, ...]
) -> None:
    """Also when the script leaves its loop in the middle of a step."""
    arguments = ("--schedule", schedule, "--epochs", "4", *leaving)
    split = ground.train(SCRIPT, facts, *arguments, batch_size=16, grad_accum_steps=4).said
    if leaving:
        assert split["num_updates"] == 5
        assert split["rates"] == pytest.approx([1e-2, 1e-2, 1e-3, 1e-4, 1e-5])
    else:
        assert split["epoch_rates"] == pytest.approx([1e-3, 1e-4, 1e-5, 1e-6])
        assert split["rates"] == pytest.approx([1e-2] * 3 + [1e-3] * 3 + [1e-4] * 3 + [1e-5] * 3)


@pytest.mark.parametrize("clip", ["0.0", "0.05"])
def test_micro_batches_that_do_not_fill_a_step_are_stepped_with_their_true_count(
    ground: Ground, facts: ScriptFacts, clip: str
) -> None:
    """96 samples are one whole step, and half of one: the mean over two micro-batches of 16, not over four."""
    arguments = ("--samples", "96", "--epochs", "2", "--clip", clip, "--schedule", "batch")
    whole = ground.train(SCRIPT, facts, *arguments).said
    split = ground.train(SCRIPT, facts, *arguments, batch_size=16, grad_accum_steps=4).said
    assert whole["num_updates"] == split["num_updates"] == 4
    assert split["rates"] == whole["rates"]
    assert flat(split["grads"]) == closely(flat(whole["grads"]))
    assert split["weights"] == closely(whole["weights"])


@pytest.mark.parametrize("unscale", [(), ("--unscale", "--clip", "0.05")])
def test_the_scripts_own_scaler_steps_once_per_optimizer_step(
    ground: Ground, facts: ScriptFacts, unscale: tuple[str, ...]
) -> None:
    arguments = ("--scaler", "--samples", "224", *unscale)
    whole = ground.train(SCRIPT, facts, *arguments).said
    split = ground.train(SCRIPT, facts, *arguments, batch_size=16, grad_accum_steps=4).said
    assert whole["num_updates"] == split["num_updates"] == 4
    assert split["weights"] == closely(whole["weights"])


def test_an_overflow_in_one_micro_batch_skips_the_whole_step(ground: Ground, facts: ScriptFacts) -> None:
    whole = ground.train(SCRIPT, facts, "--scaler", "--overflow-at", "1").said
    split = ground.train(SCRIPT, facts, "--scaler", "--overflow-at", "5", batch_size=16, grad_accum_steps=4).said
    assert whole["num_updates"] == split["num_updates"] == 2
    assert whole["scale"] == split["scale"] == 512.0
    assert split["weights"] == closely(whole["weights"])


def test_a_spare_optimizer_over_the_same_parameters_changes_nothing(ground: Ground) -> None:
    facts = ground.probe(SCRIPT, "--second-optimizer")
    assert facts.num_optimizers == 1
    whole = ground.train(SCRIPT, facts, "--clip", "0.05").said
    split = ground.train(SCRIPT, facts, "--clip", "0.05", batch_size=16, grad_accum_steps=4).said
    assert split["weights"] == closely(whole["weights"])
