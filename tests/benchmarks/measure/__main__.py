"""Whether the measurement can be trusted: its figures against the truth, its comparisons, its cost, its claims.

    python -m tests.benchmarks.measure [PART ...] [--limit-s 520] [--at-once N] [--config autotune.yaml ...]

Parts, with the time that each takes on a quiet machine of 16 cores; all but `claims` without any:

    2x2 4x2 8x2 8x4     loader-bound cells of so many workers and that prefetch factor, 7 minutes each
    compute             a compute-bound cell, 2 minutes
    epochs              rates over whole epochs, 5 minutes
    itself              40 finals of three finalists with the script's own settings, 30 minutes at 4 at once
    faster              20 of three finalists, one of them 10 % faster, 15 minutes at 4 at once
    metering seams      what the meter costs a step, and the autocast region and accumulation, 6 minutes each
    metering-cuda seams-cuda
                        the same with the model on a GPU; only by name
    step-0.5ms step-1.4ms step-10ms
                        forked trials against the script alone, on the GPU where there is one, 2 minutes each
    claims              speedups that finished searches claim against the real run, 7 minutes each config, given as
                        --config studies/jpeg_cnn/autotune.yaml --config studies/char_gpt/autotune.yaml ...
    report              only writes the report

Every finished run is a row in `results.jsonl`, and is not measured again: with `--limit-s` a call begins nothing that
it could not end in time, and the same command goes on where it stopped; exit code 0 says that all is there, 3 that
something is missing. `RESULTS.md` beside it is written at the end of each call. `--out FOLDER` puts both elsewhere.

How often intervals hold on a simulated loader says `python -m tests.benchmarks.measure.coverage`, apart.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import shlex
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from tests.benchmarks.measure import cells, claims, comparisons, epochs, metering, steps
from tests.benchmarks.measure.rows import Rows

HERE = Path(__file__).resolve().parent
PARTS = (*cells.PARTS, *epochs.PARTS, *comparisons.PARTS, *metering.PARTS, *steps.PARTS)
INCOMPLETE = 3


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.measure",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("parts", nargs="*", metavar="PART")
    parser.add_argument("--limit-s", type=float, default=math.inf)
    parser.add_argument("--at-once", type=int, default=max(1, (os.cpu_count() or 1) // 4), help="comparisons")
    parser.add_argument("--config", type=Path, action="append", default=[], help="tuned config, for claims")
    parser.add_argument("--run-s", type=float, default=60.0, help="of each run of a claim")
    parser.add_argument("--out", type=Path, default=HERE)
    parser.add_argument("--one", choices=comparisons.PARTS, help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    unknown = set(options.parts) - {*PARTS, *metering.PARTS_OF_CUDA, *claims.PARTS, "report"}
    if unknown:
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    if options.one:
        print(json.dumps(comparisons.compare_once(options.one, options.seed)))
        return 0
    rows = Rows(options.out / "results.jsonl", options.limit_s)
    note_machine(rows)
    is_complete = all(run(part, rows, options) for part in options.parts or PARTS)
    text = "\n".join(report(rows)) + "\n"
    (options.out / "RESULTS.md").write_text(text)
    print(text)
    return 0 if is_complete else INCOMPLETE


def run(part: str, rows: Rows, options: argparse.Namespace) -> bool:
    """Measures what is missing of a part; whether it is complete."""
    if part in cells.PARTS:
        return cells.run(part, rows)
    if part in comparisons.PARTS:
        return comparisons.run(part, rows, options.at_once)
    if part in epochs.PARTS:
        return epochs.run(rows)
    if part in steps.PARTS:
        return steps.run(part, rows)
    if part in (*metering.PARTS, *metering.PARTS_OF_CUDA):
        return metering.run(part, rows)
    return claims.run(rows, options.config, options.run_s) if part in claims.PARTS else True


def report(rows: Rows) -> Iterator[str]:
    """The report in Markdown."""
    yield "# A measurement that can be trusted\n"
    yield "Written by `make bench-measure`; every run is a row of `results.jsonl`.\n"
    for row in rows.of("machine"):
        yield f"* {row['key']}: {row['machine']}, by `{row['command']}`"
    yield ""
    for part in (cells, epochs, comparisons, metering, steps, claims):
        yield from part.report(rows)


def note_machine(rows: Rows) -> None:
    """Writes down where, when and by which command the rows that follow were measured."""
    versions = f"Python {platform.python_version()}, torch {version('torch')}, Linux {platform.release()}"
    machine = f"{_cpu_name()}, {len(os.sched_getaffinity(0))} usable cores, load {os.getloadavg()[0]:.1f}, {versions}"
    arguments = shlex.join(argument for argument in sys.argv[1:])
    command = f"python -m tests.benchmarks.measure {arguments}".strip()
    rows.add("machine", datetime.now(UTC).isoformat(timespec="seconds"), 0.0, {"machine": machine, "command": command})


def _cpu_name() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


if __name__ == "__main__":
    sys.exit(main())
