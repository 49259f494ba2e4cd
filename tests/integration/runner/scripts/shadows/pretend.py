"""What the trial's own code would leave, without torch: steps done, and a report."""

import json
import os
import struct
from pathlib import Path

FOLDER = Path(os.environ["AUTOTUNE_TRIAL"])
BLOCK = {
    "phase": "window",
    "num_steps": 10,
    "num_micro_batches": 10,
    "num_samples": 640.0,
    "duration_s": 0.1,
    "data_wait_s": 0.01,
}
GOOD = {"rank": 0, "world_size": 1, "status": "measured", "blocks": [BLOCK] * 10, "num_steps": 100}


def stepped(num_steps=1):
    """Tells the tuner that optimizer steps were done."""
    (FOLDER / "progress.bin").write_bytes(struct.pack("<5q", num_steps, 0, 0, 0, 0))


def report(**changes):
    """Writes a report that can be read, changed as asked."""
    stepped(100)
    write(json.dumps({**GOOD, **changes}))


def write(text, name="rank-0.json"):
    """Writes a report as the trial does: aside, then renamed."""
    target = FOLDER / "results" / name
    target.parent.mkdir(exist_ok=True)
    aside = target.with_suffix(".part")
    aside.write_text(text)
    aside.replace(target)
