"""Whether advice on stored samples is right: eight sick scripts, the first advice, and the gain of following it.

    python -m tests.benchmarks.storage [SCRIPT ...] [--out PATH]

About 90 s for each script on two quiet cores. `RESULTS.md` beside this file has the table; a run of some scripts keeps
all other rows.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from autotune.model.diagnosis import Sickness
from tests.benchmarks.diagnose import table
from tests.benchmarks.diagnose.sick import Outcome, diagnose

RESULTS = Path(__file__).with_name("RESULTS.md")
SCRIPTS = Path(__file__).parent / "scripts"
SICK = {
    "small_files": Sickness.SMALL_FILES,
    "slow_decoder": Sickness.DECODING,
    "prefix": Sickness.REPEATED_WORK,
    "hdf5_chunks": Sickness.CHUNKS,
    "few_shards": Sickness.IDLE_WORKERS,
    "in_memory": Sickness.SINGLE_SAMPLES,
    "slow_samples": Sickness.SLOW_SAMPLES,
    "network": Sickness.LOADER,
}
"""The known sickness of each script."""
PACKED = ("small_files", "prefix", "hdf5_chunks")
"""Scripts with a function `make` for `autotune pack`; the cure reads the folder `packed`."""
FACTOR = 1.25
"""Largest ratio between promise and gain."""
PROMISES_KEPT = 7
TITLE = "# Advice on stored samples, on scripts of known sickness"
EXPLANATION = (
    "Each of `scripts/*.py` has one fault, and the cure behind `--cured`. The script is diagnosed, cured by the first "
    "advice (packed by the advised command, or started with the advised argument), and measured again in the same way; "
    "on two cores, on a CPU, at real-time priority (`chrt -r 1`) beside other programs."
)


def main() -> int:
    """Prints and writes the table; 1 where a first advice is wrong, or fewer than 7 promises are kept."""
    options = table.arguments("python -m tests.benchmarks.storage", __doc__, SICK, RESULTS)
    outcomes = []
    for name in options.scripts:
        with tempfile.TemporaryDirectory() as folder:
            outcome = follow(name, Path(folder))
        outcomes.append(outcome)
        lines = table.known_lines(options.out, SICK)
        lines[name] = (row(outcome), table.origin(f"python -m tests.benchmarks.storage {name}", name))
        options.out.write_text(page(lines))
        print(row(outcome), flush=True)
    num_kept = sum(map(is_kept, outcomes))
    is_enough = num_kept >= min(PROMISES_KEPT, len(outcomes))
    return 0 if is_enough and all(map(is_right, outcomes)) else 1


def follow(name: str, folder: Path) -> Outcome:
    """Diagnoses a sick script, then measures the script's cured form as the first advice says."""
    sick = diagnose(name, folder, scripts=SCRIPTS)
    first = sick["advice"][0] if sick["advice"] else None
    words = cure(name, first, folder) if first is not None and first["sickness"] == SICK[name] else []
    cured = diagnose(name, folder, "--cured", *words, scripts=SCRIPTS)
    return Outcome(
        name=name,
        sickness=first["sickness"] if first is not None else "",
        action=first["action"] if first is not None else "",
        where=first["where"] if first is not None else "",
        promised=first["gain"] if first is not None else None,
        rate=sick["samples_per_second"],
        cured_rate=cured["samples_per_second"],
    )


def cure(name: str, advice: dict[str, Any], folder: Path) -> list[str]:
    """Packs as advised where the cure reads packed samples; gives the arguments of the cured script."""
    if name in PACKED:
        # The script has made its files in a trial, whose writes vanish: they are made again here.
        script = SCRIPTS / f"{name}.py"
        make_files = f"import sys; sys.path.insert(0, {str(SCRIPTS)!r}); import {name}; {name}.write()"
        subprocess.run([sys.executable, "-c", make_files], cwd=folder, check=True)
        named = re.search(r"--to (\w+)", advice["action"])
        assert named is not None, advice["action"]
        words = ["pack", f"{script}:make", "--to", named[1], "--out", "packed", "--quiet"]
        subprocess.run([sys.executable, "-m", "autotune", *words], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    if name == "network":
        return ["--workers", str(advice["settings"]["num_workers"])]
    longer = re.search(r"prefetch_factor=(\d+)", advice["where"])
    return ["--prefetch", longer[1]] if longer is not None else []


def is_right(outcome: Outcome) -> bool:
    """Whether the first advice names the sickness."""
    return outcome.sickness == SICK[outcome.name]


def is_kept(outcome: Outcome) -> bool:
    """Whether the gain is the promised gain within the factor."""
    return outcome.promised is not None and 1 / FACTOR <= outcome.gain / outcome.promised <= FACTOR


def row(outcome: Outcome) -> str:
    """One line of the table."""
    promised = f"{outcome.promised:.2f}x" if outcome.promised is not None else "-"
    cells = (
        f"`{outcome.name}.py`",
        f"{outcome.rate:,.0f}",
        f"{outcome.sickness}{'' if is_right(outcome) else ' (wrong)'}",
        outcome.action.replace("|", "/"),
        promised,
        f"{outcome.gain:.2f}x",
        "yes" if is_kept(outcome) else "no",
    )
    return f"| {' | '.join(cells)} |"


def page(lines: dict[str, tuple[str, str]]) -> str:
    """The report, from the row and the origin of each script."""
    head = f"| script | samples/s | first advice against | the advice | promised | got | within {FACTOR} |"
    known = [lines[name] for name in SICK if name in lines]
    text = [TITLE, "", EXPLANATION, "", head, f"|{' --- |' * 7}", *(row for row, _ in known), ""]
    return "\n".join([*text, *(origin for _, origin in known)]) + "\n"


if __name__ == "__main__":
    raise SystemExit(main())
