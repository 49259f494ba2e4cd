"""A training script without torch: it reports at once what a trial would, so that a whole search takes seconds.

Its facts lie beside it; every run is noted in the file that PRETEND_LOG names, and so is its end.
"""

import json
import os
import struct
import sys
import time
from pathlib import Path

folder = Path(os.environ["AUTOTUNE_TRIAL"])
job = json.loads((folder / "job.json").read_text())
facts = json.loads(Path(__file__).with_name("facts.json").read_text())


def note(what):
    line = (
        json.dumps(
            [what, job["mode"], job["request"]["settings"], job["request"]["window"]["half_width_ratio"], os.getpid()]
        )
        + "\n"
    )
    descriptor = os.open(os.environ["PRETEND_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, line.encode())
    os.close(descriptor)


def report(**values):
    (folder / "progress.bin").write_bytes(struct.pack("<5q", 100, 0, 0, 0, 0))
    target = folder / "results" / "rank-0.json"
    target.parent.mkdir(exist_ok=True)
    aside = target.with_suffix(".part")
    aside.write_text(json.dumps({"rank": 0, "world_size": 1, "num_steps": 100, **values}))
    aside.replace(target)


def main():
    note("begins")
    Path("checkpoint.pt").write_text("a checkpoint")
    Path("notes.txt").write_text("overwritten")
    print("trained", flush=True)
    if job["mode"] == "probe":
        report(status="probed", facts=facts)
    else:
        time.sleep(float(os.environ.get("PRETEND_S", "0.1")))
        block = {
            "phase": "window",
            "num_steps": 10,
            "num_micro_batches": 10,
            "num_samples": 640.0 * (1 + min(job["request"]["settings"]["num_workers"], 2)),
            "duration_s": 0.1,
            "data_wait_s": 0.01,
        }
        report(status="measured", blocks=[block] * 10, is_converged=True)
    note("ends")
    sys.stdout.flush()


main()
