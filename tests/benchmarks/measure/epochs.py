"""The rate over whole epochs: what a trial makes of an epoch's start, against epochs trained from end to end."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from tests.benchmarks.measure.rows import Row, Rows
from tests.benchmarks.measure.trials import said_by_job, trials_of

NUM_BATCHES = 50
NUM_EPOCHS = 12
NUM_REPEATS = 3
PERIOD_S = 0.01
MAX_ERROR = 0.05
EXPECTED_S = 40.0
PARTS = ("epochs",)
JOBS = {
    "2 workers": ("--workers=2", f"--batch-s={2 * PERIOD_S}", "--compute-s=0.002"),
    "2 persistent workers": ("--workers=2", f"--batch-s={2 * PERIOD_S}", "--compute-s=0.002", "--persistent"),
    "8 workers": ("--workers=8", f"--batch-s={8 * PERIOD_S}", "--compute-s=0.002"),
    "8 persistent workers": ("--workers=8", f"--batch-s={8 * PERIOD_S}", "--compute-s=0.002", "--persistent"),
    "4 workers, bound by compute": ("--workers=4", f"--batch-s={2 * PERIOD_S}", f"--compute-s={1.5 * PERIOD_S}"),
}


def run(rows: Rows) -> bool:
    """Measures what is missing; whether it is complete."""
    return all(_run_job(name, rows) for name in JOBS)


def _run_job(name: str, rows: Rows) -> bool:
    keys = [f"{name} #{repeat}" for repeat in range(NUM_REPEATS)]
    if not rows.missing("epochs", keys) or not rows.has_time("epochs", EXPECTED_S):
        return not rows.missing("epochs", keys)
    arguments = (*JOBS[name], "--prefetch=2", f"--batches={NUM_BATCHES}")
    with trials_of(*arguments) as trials:

        def measure(key: str) -> Row:
            said = said_by_job(*arguments, f"--epochs={NUM_EPOCHS}")
            measured = trials.run(seed=int(key.partition("#")[2])).measurement
            assert measured is not None
            return {
                "rate": measured.samples_per_second,
                "steady": measured.steady_samples_per_second,
                "restart_s": measured.restart_s,
                **said,
            }

        return rows.fill("epochs", keys, measure, expected_s=EXPECTED_S)


def report(rows: Rows) -> Iterator[str]:
    """Markdown."""
    if not rows.of("epochs"):
        return
    yield "## Rates over whole epochs\n"
    yield (
        f"Epochs of {NUM_BATCHES} batches, {1000 * PERIOD_S:.0f} ms each where the loader is what binds; the truth is "
        f"{NUM_EPOCHS} whole epochs of the script alone. Medians of {NUM_REPEATS} runs. Of a screening trial, whose "
        "interval is 5 % wide.\n"
    )
    yield "| loader | over epochs | steady | restart |"
    yield "|---|---|---|---|"
    errors = []
    for name in JOBS:
        found = [row for row in rows.of("epochs") if row["key"].startswith(f"{name} #")]
        if len(found) < NUM_REPEATS:
            continue
        truth = statistics.harmonic_mean([row["truth"] for row in found])
        errors.append(statistics.median(row["rate"] / truth - 1 for row in found))
        steady = statistics.median(row["steady"] / truth - 1 for row in found)
        restart_ms = 1000 * statistics.median(row["restart_s"] or 0.0 for row in found)
        yield f"| {name} | {errors[-1]:+.1%} | {steady:+.1%} | {restart_ms:.0f} ms |"
    if len(errors) == len(JOBS):
        worst = max(map(abs, errors))
        yield f"\nWorst {worst:.1%} (at most {MAX_ERROR:.0%}): **{'met' if worst <= MAX_ERROR else 'not met'}**.\n"
