"""Whether a diagnosis is right: five scripts of known sickness, what is advised first, and what following it gives.

    python -m tests.benchmarks.diagnose [SCRIPT ...] [--out PATH]

Some 40 s for each script; without any, all of them. `RESULTS.md` beside this file has the table; the rows of scripts
that were not asked for stay.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

from tests.benchmarks.diagnose import table
from tests.benchmarks.diagnose.sick import SICK, Outcome, follow

RESULTS = Path(__file__).with_name("RESULTS.md")
TITLE = "# Diagnoses of scripts of known sickness"
EXPLANATION = (
    "Each of `scripts/*.py` is sick of one thing and has its cure in it, behind `--cured`. It is diagnosed, then cured "
    "as the first advice says, and measured again in the same way; on two cores, on a CPU."
)


def main() -> int:
    """Prints and writes the table; 1 where a first advice is wrong or its promise is not kept."""
    options = table.arguments("python -m tests.benchmarks.diagnose", __doc__, SICK, RESULTS)
    is_right = True
    with tempfile.TemporaryDirectory() as folder:
        for name in options.scripts:
            outcome = follow(name, Path(folder))
            is_right = is_right and outcome.is_right and outcome.is_kept
            lines = table.known_lines(options.out, SICK)
            lines[name] = (row(outcome), table.origin(f"python -m tests.benchmarks.diagnose {name}", name))
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


if __name__ == "__main__":
    raise SystemExit(main())
