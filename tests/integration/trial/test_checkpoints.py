"""A script that writes checkpoints while it is measured."""

from __future__ import annotations

from autotune.measure.block import Phase
from autotune.measure.window_stopping import WindowRule
from autotune.model.outcome import Outcome
from tests.integration.trial import loops
from tests.integration.trial.ground import Ground

LONG = WindowRule(half_width_ratio=0.001, min_window_s=2.5, max_window_s=3.0, min_block_s=0.02)
"""A window with two checkpoints or three, of at most a tenth of the blocks on a machine five times slower, too."""
SAVES = """
import io
loader, saved_at = DataLoader(Data(800), batch_size=8), time.monotonic()
while True:
    for x, y in loader:
        train_on(x, y)
        time.sleep(0.002)
        if time.monotonic() - saved_at > 1.2:
            torch.save(model.state_dict(), io.BytesIO())
            time.sleep(0.2)
            saved_at = time.monotonic()
"""


def test_blocks_with_a_checkpoint_are_recorded_and_count_in_no_rate(ground: Ground) -> None:
    path = ground.script(loops.PRELUDE + SAVES)
    run = ground.trial(path, ground.probe(path), job={"window": LONG})
    assert run.outcome is Outcome.OK, run.verdict
    assert run.verdict is not None and run.verdict.measurement is not None
    window = [block for block in run.rank.blocks if block.phase is Phase.WINDOW]
    num_saving = sum(block.num_saves > 0 for block in window)
    assert num_saving
    assert run.verdict.measurement.num_blocks == len(window) - num_saving
