"""Reports with one row per script; a run of some scripts keeps the rows of all others."""

from __future__ import annotations

import argparse
import os
import platform
from collections.abc import Collection, Iterable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path


def arguments(program: str, description: str | None, names: Collection[str], report: Path) -> argparse.Namespace:
    """The command line of a benchmark: `scripts`, all of them by default, and `out`, the report."""
    parser = argparse.ArgumentParser(
        prog=program, description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("scripts", nargs="*", metavar="SCRIPT", help=", ".join(names))
    parser.add_argument("--out", type=Path, default=report)
    options = parser.parse_args()
    unknown = set(options.scripts) - set(names)
    if unknown:
        parser.error(f"no such script: {', '.join(sorted(unknown))}")
    options.scripts = options.scripts or list(names)
    return options


def known_lines(report: Path, names: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Row and origin of each script in an earlier report; empty without a report."""
    text = report.read_text() if report.exists() else ""
    found = {}
    for name in names:
        rows = [line for line in text.splitlines() if line.startswith(f"| `{name}.py` ")]
        origins = [line for line in text.splitlines() if line.startswith(f"* `{name}.py`: ")]
        if rows and origins:
            found[name] = rows[0], origins[0]
    return found


def origin(command: str, name: str) -> str:
    """The command, machine and day of a script's row."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    machine = f"{names[0] if names else platform.machine()}, {len(os.sched_getaffinity(0))} usable cores"
    load = f"load {os.getloadavg()[0]:.1f} at the end"
    return f"* `{name}.py`: `{command}`, {datetime.now(UTC):%Y-%m-%d}: {machine}, {load}, torch {version('torch')}."
