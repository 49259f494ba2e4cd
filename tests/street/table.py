"""docs/compatibility.md: the results as a table, with summary figures."""

from __future__ import annotations

import re
from collections.abc import Sequence
from statistics import median
from typing import Any

Row = dict[str, Any]
ROUTINE = r"\b(on a CPU|a CPU has|without an accelerator)\b"
"""Reasons of the device alone, left out of the page."""
ASIDE = r"(stored in|probe:|Protection of your files:|Why each trial ended:) "
"""Lines that a search says whatever happens."""
OUTCOMES = ("tuned", "no gain", "too short", "refused", "failed", "hung", "not run")
HEAD = """# Public training scripts

Scripts written elsewhere, unedited, as a user would start them, with made-up data of the real formats. `python -m
tests.street --table FILES` adds results of `python -m tests.street` to the record `tests/street/results.jsonl`, and
writes this page from there; `tests/street/rows` says which repository, commit and arguments each row has.

* **claimed** is the ratio that `autotune search` published, with its interval.
* **real** is `autotune run` over the script itself, in turns, counted from the script's own progress lines.
* **expert** is what somebody who knows would type over what a user types, counted the same way: as many workers as
  cores, the script's own flags for bf16, pinned memory and channels_last.

A row stands until a later run replaces it, so rows come from several versions of autotune. Several rows ran beside each
other on one host, each on processors and a GPU of its own: where autotune kept the script's settings, "real" shows the
noise of such a run. `accelerate_cv` prints at the end of an epoch alone, after an evaluation of a fifth of its images:
its real ratio contains the evaluation, which the claim leaves out. `diffusion_mnist` draws samples for a
minute after each epoch of 5 s, and was not counted by its last real run. `siamese_network` on a GPU had one pair.
"""
COLUMNS = (
    "| script | device | outcome | trials | seconds | claimed [interval] | real | expert "
    "| what changed, what was left out and why |"
)

KEPT = (
    *(
        "script",
        "device",
        "kind",
        "repository",
        "commit",
        "arguments",
        "time",
        "autotune",
        "at",
        "outcome",
        "exit_code",
    ),
    *("trials", "search_s", "claimed", "claimed_low", "claimed_high", "claimed_rates", "real", "expert", "rates"),
    *("exit_code", "settings"),
)
"""What the record of results keeps of a row as it is."""

KERAS_BEGIN, KERAS_END = "<!-- rows of Keras -->", "<!-- /rows of Keras -->"
KERAS_COLUMNS = "| script | outcome | claimed [interval] | real | what changed | other engines, one trial each |"


def written(rows: Sequence[Row]) -> str:
    """The whole page."""
    ordered = sorted(rows, key=lambda row: (row["kind"].lower(), row["script"], row["device"]))
    lines = [HEAD, "", "## Figures", "", *figures(ordered), "", "## Rows", "", COLUMNS, "| " + "--- | " * 9]
    lines += [table_line(row) for row in ordered]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def figures(rows: Sequence[Row]) -> list[str]:
    """Summary figures as a list."""
    count = {name: sum(row["outcome"] == name for row in rows) for name in OUTCOMES}
    scripts = {row["script"] for row in rows}
    lines = [
        f"* {len(rows)} rows of {len(scripts)} scripts: {count['tuned']} tuned, {count['no gain']} told that nothing "
        f"is faster, {count['refused']} refused by name, {count['too short']} without an answer in the time, "
        f"{count['failed'] + count['hung']} failed, {count['not run']} not run.",
        f"* Neither tuned, nor told so rightly, nor refused by name: {_listed(neither(rows))}.",
    ]
    for device, name in (("gpu", "On a GPU"), ("2gpu", "On two GPUs"), ("cpu", "On a CPU")):
        lines += _claims(name, [row for row in rows if row["device"] == device])
    lines += [f"* Slower than the script's own settings in the real run (below 0.98): {_listed(slower(rows))}."]
    return lines


def _claims(name: str, rows: Sequence[Row]) -> list[str]:
    """How the claims of a gain hold on a kind of device; empty without measured claims."""
    both = [row for row in rows if row["outcome"] == "tuned" and row.get("claimed") and row.get("real")]
    if not both:
        return []
    errors = [abs(row["claimed"] / row["real"] - 1) for row in both]
    inside = sum(row["claimed_low"] <= row["real"] <= row["claimed_high"] for row in both)
    return [
        f"* {name}: {len(both)} claims of a gain; median |error| against the real run {median(errors):.1%}, largest "
        f"{max(errors):.1%}; the real ratio lies within the interval in {inside} of {len(both)}."
    ]


def neither(rows: Sequence[Row]) -> list[str]:
    """Rows without a right answer: a failure, a hang, too little time, or `no gain` despite a faster expert's line.

    Faster means 5 % or more.
    """
    wrong = []
    for row in rows:
        missed = row["outcome"] == "no gain" and (row.get("expert") or 1.0) >= 1.05
        if row["outcome"] in ("failed", "hung", "too short") or missed:
            wrong.append(f"{row['script']} ({row['device']})")
    return wrong


def slower(rows: Sequence[Row]) -> list[str]:
    """Rows with a config more than 2 % slower than the script itself in the real run."""
    return [f"{row['script']} ({row['device']})" for row in rows if (row.get("real") or 1.0) < 0.98]


def _listed(names: Sequence[str]) -> str:
    """The names and their count; `0` for an empty list."""
    return f"{len(names)}: {', '.join(names)}" if names else "0"


def with_keras_rows(page: str, rows: Sequence[Row]) -> str:
    """The page about Keras, with the rows in the place of the rows there.

    Raises:
        ValueError: The page has no place for rows.
    """
    before, begin, rest = page.partition(KERAS_BEGIN)
    _, end, after = rest.partition(KERAS_END)
    if not begin or not end:
        raise ValueError(f"the page has no {KERAS_BEGIN} and {KERAS_END}")
    lines = [KERAS_COLUMNS, "| " + "--- | " * 6, *map(keras_line, sorted(rows, key=lambda row: row["script"]))]
    return f"{before}{begin}\n" + "\n".join(line.rstrip() for line in lines) + f"\n{end}{after}"


def keras_line(row: Row) -> str:
    """A Keras script: the answer, and the rates of the engines in their first trials over the script's own."""
    cells = [
        f"`{row['script']}`", outcome_words(row), claimed_words(row), ratio(row.get("real")),
        ", ".join(f"{key}={value}" for key, value in (row.get("settings") or {}).items()), engine_words(row),
    ]  # fmt: skip
    return "| " + " | ".join(cells) + " |"


def engine_words(row: Row) -> str:
    """The ratio of every engine's first trial to the first trial of all, with the outcome of unfinished trials."""
    trials = row.get("trial_outcomes") or []
    own = trials[0].get("samples_per_second") if trials else None
    words: dict[str, str] = {}
    for trial in trials[1:]:
        engine, rate = trial["settings"].get("keras_backend"), trial.get("samples_per_second")
        if own and engine != trials[0]["settings"].get("keras_backend"):
            words.setdefault(engine, f"{engine} {rate / own:.2f}x" if rate else f"{engine} {trial['outcome']}")
    return ", ".join(words.values())


def table_line(row: Row) -> str:
    """One row of the table."""
    cells = [
        f"{row['repository']} `{row['script']}`", row["device"], outcome_words(row), str(row.get("trials") or ""),
        f"{row['search_s']:.0f}" if row.get("search_s") else "", claimed_words(row), ratio(row.get("real")),
        ratio(row.get("expert")), why_words(row),
    ]  # fmt: skip
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def outcome_words(row: Row) -> str:
    """The outcome, with the exit code of a failure."""
    return f"failed, exit {row.get('exit_code')}" if row["outcome"] == "failed" else row["outcome"]


def claimed_words(row: Row) -> str:
    """The published ratio and interval."""
    if row.get("claimed") is None:
        return ""
    return f"{row['claimed']:.2f}x [{row['claimed_low']:.2f}, {row['claimed_high']:.2f}]"


def ratio(value: float | None) -> str:
    """A ratio for people."""
    return "" if value is None else f"{value:.2f}x"


def why_words(row: Row, limit: int = 600) -> str:
    """Changed settings, settings left out with reasons, or the last words of a failure."""
    changed = ", ".join(f"{key}={value}" for key, value in (row.get("settings") or {}).items())
    text = "; ".join(part for part in (changed, *_reasons(row)) if part)
    return text if len(text) <= limit else text[: limit - 1].rsplit(" ", 1)[0] + " …"


def _reasons(row: Row) -> list[str]:
    parts = []
    if row["outcome"] in ("failed", "hung", "refused"):
        lines = [line.strip() for line in row.get("stderr_tail", [])[-4:]]
        parts.append(" ".join(line for line in lines if not re.match(ASIDE, line)))
    parts += [row["why"]] if row.get("why") else []
    parts += [reason for reason in row.get("left_out", []) if not re.search(ROUTINE, reason)]
    return [part for part in parts if part]


def shortened(row: Row) -> Row:
    """What the record keeps of a row: all that the pages show, without what a script printed."""
    short = {key: row[key] for key in KEPT if row.get(key) is not None}
    if _reasons(row):
        short["why"] = "; ".join(_reasons(row))
    engines = [
        {
            "settings": {"keras_backend": trial["settings"]["keras_backend"]},
            "outcome": trial["outcome"],
            "samples_per_second": trial.get("samples_per_second"),
        }
        for trial in row.get("trial_outcomes") or []
        if "keras_backend" in (trial.get("settings") or {})
    ]
    return {**short, "trial_outcomes": engines} if engines else short
