"""Whether a diagnosis is right: five scripts of known sickness, what is advised first, and what following it gives.

    python -m tests.benchmarks.diagnose [SCRIPT ...] [--out PATH]

Some 40 s for each script; without any, all of them. `RESULTS.md` beside this file has the table; the rows of scripts
that were not asked for stay.
"""

from __future__ import annotations

import argparse
import os
import platform
import tempfile
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from tests.benchmarks.diagnose.sick import SICK, Outcome, follow

RESULTS = Path(__file__).with_name("RESULTS.md")
TITLE = "# Diagnoses of scripts of known sickness"
EXPLANATION = (
    "Each of `scripts/*.py` is sick of one thing and has its cure in it, behind `--cured`. It is diagnosed, then cured "
    "as the first advice says, and measured again in the same way; on two cores, on a CPU."
)


def main() -> int:
    """Prints and writes the table; 1 where a first advice is wrong or its promise is not kept."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.diagnose",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("scripts", nargs="*", metavar="SCRIPT", help=", ".join(SICK))
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    unknown = set(options.scripts) - set(SICK)
    if unknown:
        parser.error(f"no such script: {', '.join(sorted(unknown))}")
    is_right = True
    with tempfile.TemporaryDirectory() as folder:
        for name in options.scripts or SICK:
            outcome = follow(name, Path(folder))
            is_right = is_right and outcome.is_right and outcome.is_kept
            lines = known_lines(options.out.read_text() if options.out.exists() else "")
            lines[name] = (row(outcome), origin(f"python -m tests.benchmarks.diagnose {name}", name))
            options.out.write_text(page(lines))
            print(row(outcome), flush=True)
    return 0 if is_right else 1


def row(outcome: Outcome) -> str:
    """One line of the table."""
    promised = f"{outcome.promised:.2f}x" if outcome.promised is not None else "-"
    cells = (
        f"`{outcome.name}.py`",
        f"{outcome.rate:,.0f}",
        f"{outcome.sickness}{'' if outcome.is_right else ' (wrong)'}",
        f"{outcome.action} `{outcome.where}`",
        promised,
        f"{outcome.gain:.2f}x",
        "yes" if outcome.is_kept else "no",
    )
    return f"| {' | '.join(cells)} |"


def page(lines: Mapping[str, tuple[str, str]]) -> str:
    """The report, from the row and the origin of each script."""
    head = "| script | samples/s | first advice against | what it says | promised | following it gave | within 1.5 |"
    known = [lines[name] for name in SICK if name in lines]
    rows, origins = [row for row, _ in known], [origin for _, origin in known]
    text = [TITLE, "", EXPLANATION, "", head, f"|{' --- |' * 7}", *rows, "", *origins]
    return "\n".join(text) + "\n"


def known_lines(text: str, names: Iterable[str] = SICK) -> dict[str, tuple[str, str]]:
    """Row and origin of each script in an earlier report: what is not asked for stays."""
    found = {}
    for name in names:
        rows = [line for line in text.splitlines() if line.startswith(f"| `{name}.py` ")]
        origins = [line for line in text.splitlines() if line.startswith(f"* `{name}.py`: ")]
        if rows and origins:
            found[name] = rows[0], origins[0]
    return found


def origin(command: str, name: str) -> str:
    """By which command, where and when a script was diagnosed."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    machine = f"{names[0] if names else platform.machine()}, {len(os.sched_getaffinity(0))} usable cores"
    load = f"load {os.getloadavg()[0]:.1f} at the end"
    return f"* `{name}.py`: `{command}`, {datetime.now(UTC):%Y-%m-%d}: {machine}, {load}, torch {version('torch')}."


if __name__ == "__main__":
    raise SystemExit(main())
