"""What finished searches claim, against the real run: the script alone and `autotune run` in turns, A B A B A B.

The script must accept `--seconds S` and print `samples_per_second=...` at its end, as those in `studies/` do. Each pair
shares its moment of the day, so a drifting machine cancels out.
"""

from __future__ import annotations

import re
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from autotune.emit.tuned_config import read_config
from tests.benchmarks.measure.rows import Row, Rows

RATE = re.compile(r"samples_per_second=([0-9.]+)")
NUM_PAIRS = 3
NUM_CLAIMS = 3
TOLERANCE = 0.05
EXPECTED_S = 150.0
"""Of a pair, as long as none was measured."""
PARTS = ("claims",)


def run(rows: Rows, configs: Sequence[Path], run_s: float) -> bool:
    """Measures the missing pairs of every config; whether all are complete. The config names its script."""
    return all(_run_claim(rows, config.resolve(), run_s) for config in configs)


def _run_claim(rows: Rows, path: Path, run_s: float) -> bool:
    config = read_config(path)
    if config.script is None or config.speedup is None:
        raise SystemExit(f"{path} claims nothing, or of no script")
    script = Path(config.script.path)
    claimed = config.speedup[0]
    name = f"{script.parent.name}/{script.name}"
    arguments = ["--seconds", str(run_s)]
    default = [sys.executable, script.name, *arguments]
    tuned = [sys.executable, "-m", "autotune", "run", script.name, "--config", str(path), "--", *arguments]

    def measure(_: str) -> Row:
        before, after = _measured_rate(default, script.parent), _measured_rate(tuned, script.parent)
        return {
            "script": name,
            "run_s": run_s,
            "claimed": claimed,
            "default": before,
            "tuned": after,
            "ratio": after / before,
        }

    keys = [f"{name} #{number}" for number in range(NUM_PAIRS)]
    return rows.fill("claims", keys, measure, expected_s=EXPECTED_S)


def _measured_rate(command: list[str], cwd: Path) -> float:
    """Samples per second that one run of the script prints about itself."""
    ended = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    found = RATE.findall(ended.stdout)
    if ended.returncode or not found:
        raise SystemExit(f"{' '.join(command)} ended with {ended.returncode}:\n{ended.stdout}\n{ended.stderr}")
    return float(found[-1])


def report(rows: Rows) -> Iterator[str]:
    """Markdown."""
    found = rows.of("claims")
    if not found:
        return
    yield "## Claimed speedups against the real run\n"
    run_s = min(row["run_s"] for row in found)
    yield f"{NUM_PAIRS} pairs of {run_s:.0f} s each, the script alone and `autotune run` in turns.\n"
    yield "| script | claimed | measured, median of the pairs | pairs | claim over measured |"
    yield "|---|---|---|---|---|"
    worst, num_complete = 0.0, 0
    for script in dict.fromkeys(row["script"] for row in found):
        pairs = [row for row in found if row["script"] == script]
        ratio, claimed = statistics.median(row["ratio"] for row in pairs), pairs[0]["claimed"]
        worst = max(worst, abs(claimed / ratio - 1))
        num_complete += len(pairs) >= NUM_PAIRS
        each = ", ".join(f"{row['ratio']:.3f}" for row in pairs)
        yield f"| {script} | {claimed:.3f} | {ratio:.3f} | {each} | {claimed / ratio - 1:+.1%} |"
    is_met = worst <= TOLERANCE and num_complete >= NUM_CLAIMS
    yield f"\nWithin {TOLERANCE:.0%} for {NUM_CLAIMS} searches: **{'met' if is_met else 'not met'}**.\n"
