"""Real training counted for a verification: what the script does, without a cached batch, a gate or a longer epoch."""

from __future__ import annotations

import pytest

from autotune.measure.block import Phase
from autotune.model.outcome import Outcome
from autotune.model.result import RankStatus
from tests.integration.trial import loops
from tests.integration.trial.ground import Ground, Run

TELLS = """
loader = DataLoader(Data(), batch_size=8, shuffle=True)
num_samples, trained_s = 0, 0.0
for epoch in range(1000):
    began = time.monotonic()
    for number, (x, y) in enumerate(loader):
        train_on(x, y)
        time.sleep(0.01)
        num_samples += len(x)
        if number == LEAVES_AT:
            break
    trained_s += time.monotonic() - began
    print("rate", num_samples / trained_s, flush=True)
    time.sleep(0.6)
"""
"""A script that knows its own rate, with a long pause between two epochs."""
SHORT = """
loader = DataLoader(Data(), batch_size=8)
for epoch in range(EPOCHS):
    for x, y in loader:
        train_on(x, y)
        time.sleep(0.005)
"""
FAILS = """
loader = DataLoader(Data(), batch_size=8)
for step, (x, y) in enumerate(loader):
    train_on(x, y)
    if step == 5:
        raise RuntimeError("no luck")
"""


def rate_of(run: Run) -> float:
    assert run.outcome is Outcome.OK, f"{run.verdict} {run.output}"
    assert run.verdict is not None and run.verdict.measurement is not None
    return run.verdict.measurement.samples_per_second


@pytest.mark.parametrize("leaves_at", [-1, 7])
def test_the_pause_between_epochs_belongs_to_no_rate(ground: Ground, leaves_at: int) -> None:
    script = ground.script(loops.PRELUDE + TELLS.replace("LEAVES_AT", str(leaves_at)))
    run = ground.counted(script, ground.probe(script), window_s=2.0)
    said = [float(line.split()[1]) for line in run.output.splitlines() if line.startswith("rate ")]
    assert said, run.output
    # An epoch takes about a fifth of the pause: with the pauses, the rate would be a quarter.
    assert 0.6 < rate_of(run) / said[-1] < 1.6


def test_settings_are_in_force_and_every_block_is_of_real_batches(ground: Ground) -> None:
    script = ground.script(loops.PRELUDE + loops.PLAIN)
    run = ground.counted(script, ground.probe(script), window_s=1.0, num_workers=2, batch_size=4, grad_accum_steps=2)
    assert run.outcome is Outcome.OK, f"{run.verdict} {run.output}"
    blocks = run.rank.blocks
    assert {block.phase for block in blocks} == {Phase.WINDOW}
    assert all(block.num_samples == 8 * block.num_steps for block in blocks)
    assert run.rank.observed["num_workers"] == 2
    assert "in force: num_workers 2" in run.output


def test_the_script_alone_runs_with_nothing_applied(ground: Ground) -> None:
    script = ground.script(loops.PRELUDE + loops.PLAIN)
    run = ground.counted(script, ground.probe(script), window_s=1.0)
    assert rate_of(run) > 0
    assert "in force: the settings of the script itself" in run.output


def test_what_has_no_effect_on_the_device_is_no_change(ground: Ground) -> None:
    """A config for a CPU has pin_memory false, and the run told `pin_memory True` of the script as in force."""
    script = ground.script(loops.PRELUDE + loops.PLAIN.replace("shuffle=True", "shuffle=True, pin_memory=True"))
    run = ground.counted(script, ground.probe(script), window_s=1.0, pin_memory=False)
    assert rate_of(run) > 0
    assert "in force: the settings of the script itself" in run.output


def test_a_loop_without_a_loader_is_counted_in_steps(ground: Ground) -> None:
    script = ground.script(loops.PRELUDE + loops.KEEPS_ONE_BATCH)
    facts = ground.probe(script)
    assert facts.loader is None
    run = ground.counted(script, facts, window_s=1.0)
    assert rate_of(run) > 0
    assert all(block.num_samples == block.num_steps for block in run.rank.blocks)


def test_a_script_that_ends_within_the_window_is_measured_by_what_it_trained(ground: Ground) -> None:
    script = ground.script(loops.PRELUDE + SHORT.replace("EPOCHS", "60"))
    facts = ground.probe(script)
    run = ground.counted(script, facts, window_s=4.0)
    assert run.code == 0
    assert rate_of(run) > 0


def test_a_script_that_ends_at_once_is_not_measured(ground: Ground) -> None:
    script = ground.script(loops.PRELUDE + SHORT.replace("EPOCHS", "3"))
    run = ground.counted(script, ground.probe(script), window_s=60.0)
    assert run.rank.status is RankStatus.ENDED
    assert run.outcome is Outcome.INVALID


def test_an_error_of_the_script_is_reported(ground: Ground) -> None:
    script = ground.script(loops.PRELUDE + FAILS)
    run = ground.counted(script, ground.probe(script), window_s=60.0)
    assert run.outcome is Outcome.CRASHED
    assert run.verdict is not None and "no luck" in run.verdict.reason
