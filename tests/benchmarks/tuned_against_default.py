"""The tuned config against the script's own defaults, outside the tuner: A B A B A B, median of the paired ratios.

    python tests/benchmarks/tuned_against_default.py studies/jpeg_cnn/train.py --config studies/jpeg_cnn/autotune.yaml

The script must accept `--seconds S` and print `samples_per_second=...` at its end, as those in `studies/` do. A is the
script alone, B is `autotune run`; each pair shares its moment of the day, so a drifting machine cancels out.
"""

from __future__ import annotations

import argparse
import math
import re
import statistics
import subprocess
import sys
from pathlib import Path

RATE = re.compile(r"samples_per_second=([0-9.]+)")


def measured_rate(command: list[str], cwd: Path) -> float:
    """Samples per second that one run of the script prints about itself."""
    ended = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    found = RATE.findall(ended.stdout)
    if ended.returncode or not found:
        raise SystemExit(f"{' '.join(command)} ended with {ended.returncode}:\n{ended.stdout}\n{ended.stderr}")
    return float(found[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("script", type=Path)
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--pairs", type=int, default=3)
    options = parser.parse_args()
    script, config = options.script.resolve(), options.config.resolve()
    arguments = [script.name, "--seconds", str(options.seconds)]
    default = [sys.executable, *arguments]
    run = [sys.executable, "-m", "autotune", "run", script.name, "--config", str(config)]
    tuned = [*run, "--", *arguments[1:]]
    ratios = []
    for number in range(options.pairs):
        before, after = measured_rate(default, script.parent), measured_rate(tuned, script.parent)
        ratios.append(after / before)
        print(
            f"pair {number + 1}: default {before:.1f}, tuned {after:.1f} samples/s, ratio {ratios[-1]:.3f}", flush=True
        )
    spread = math.exp(statistics.stdev(map(math.log, ratios))) - 1 if len(ratios) > 1 else 0.0
    print(f"median ratio {statistics.median(ratios):.3f} (spread of the pairs {spread:.1%})")


if __name__ == "__main__":
    main()
