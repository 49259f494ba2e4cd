"""All situations under all modes of protection, as root and as an ordinary user: `python -m tests.sandbox`.

Prints a line for each run, and writes docs/sandbox.md. Each mode and user has namespaces of its own; `--at-once` of
them run at the same time. With `--keep FILE` a command that was cut off goes on where it ended. The exit code is 1 if a
file outside was changed without a word, or a process was left.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

from autotune.protocol.protection import Protection
from tests.sandbox.playground import Found
from tests.sandbox.playing import REPOSITORY, USER, found_of, play, users
from tests.sandbox.situations import KINDS, SITUATIONS, Situation
from tests.sandbox.situations.elsewhere import ELSEWHERE

PAGE = REPOSITORY / "docs" / "sandbox.md"
MODES = tuple(mode.value for mode in Protection)
MAX_SAID = 160

Table = dict[tuple[str, str], dict[str, Found]]
"""Results by name, for each pair of a mode and a user."""


def run(modes: list[str], names: list[str], *, at_once: int, keep: Path | None) -> Table:
    """Runs everything that is not kept yet, and prints a line for each run.

    Args:
        modes: Values of `Protection`.
        names: Names of situations.
        at_once: Most pairs of a mode and a user at the same time.
        keep: File for results, which are read first; None keeps nothing.
    """
    table = kept(keep, names)

    def column(mode: str, who: str) -> None:
        found = table.setdefault((mode, who), {})

        def tell(one: Found) -> None:
            found[one.name] = one
            word = "" if is_held(one, mode) else "  <- NOT HELD"
            sys.stdout.write(f"{mode:8} {who:16} {cell(one):24} {one.wall_s:5.1f} s  {one.name}{word}\n")
            sys.stdout.flush()
            if keep is not None:
                with keep.open("a") as file:
                    file.write(json.dumps({"mode": mode, "who": who, **asdict(one)}) + "\n")

        remaining = [name for name in names if name not in found]
        if remaining:
            play(mode, who, remaining, tell)

    with ThreadPoolExecutor(at_once) as pool:
        for ended in [pool.submit(column, mode, who) for mode in modes for who in users()]:
            ended.result()
    return {key: found for key, found in table.items() if key[0] in modes}


def kept(keep: Path | None, names: list[str]) -> Table:
    """Results of an earlier command for the named situations; empty without a file."""
    table: Table = {}
    lines = keep.read_text().splitlines() if keep is not None and keep.exists() else []
    for values in map(json.loads, lines):
        key = values.pop("mode"), values.pop("who")
        one = found_of(values)
        if one.name in names:
            table.setdefault(key, {})[one.name] = one
    return table


def is_held(one: Found, mode: str) -> bool:
    """Whether nothing is left, and nothing was changed; without layers every change must have been named."""
    return not one.unnamed and one.num_left == 0 and (mode != Protection.LAYERS or is_as_expected(one))


def is_as_expected(one: Found) -> bool:
    """Whether the script ended as expected under layers."""
    return one.outcome == next(situation.outcome for situation in SITUATIONS if situation.name == one.name)


def cell(one: Found | None) -> str:
    """Files changed, processes left and the outcome; a dash without a promise."""
    if one is None:
        return "-"
    named = " named" if one.changed and not one.unnamed else ""
    return f"{len(one.changed)}{named}, {one.num_left}, {one.outcome}"


def page(table: Table, wall_s: float) -> str:
    """The table as Markdown."""
    columns = [(mode, who) for mode in MODES for who in (*users(),) if (mode, who) in table]
    head = " | ".join(f"{mode}, {'user' if who == USER else who}" for mode, who in columns)
    rule = " | ".join("---" for _ in range(len(columns) + 1))
    lines = [
        "# Hostile scripts",
        "",
        "Scripts that try to get past the protection of your files, each under every mode, as root and as an ordinary "
        "user. `python -m tests.sandbox` runs all scripts and writes this page: "
        f"{time.strftime('%Y-%m-%d')}, Linux {platform.release()}, {os.cpu_count()} cores, {wall_s / 60:.0f} minutes.",
        "",
        "A cell has the number of paths changed outside of the layers (*named*: the result names every change), the "
        "number of processes left, and the outcome of the trial. A dash: the mode promises nothing there, or the user "
        "lacks the right to try. A trial that crashed under Landlock or without protection did not expect the refusal.",
        "",
        f"| sum | {head} |",
        f"| {rule} |",
        _sums("scripts", table, columns, lambda found, mode: len(found)),
        _sums("paths changed", table, columns, lambda found, mode: sum(len(one.changed) for one in found)),
        _sums("changes without a name", table, columns, lambda found, mode: sum(len(one.unnamed) for one in found)),
        _sums("processes left", table, columns, lambda found, mode: sum(one.num_left for one in found)),
        _sums("not held", table, columns, lambda found, mode: sum(not is_held(one, mode) for one in found)),
        "",
    ]
    for kind, situations in KINDS.items():
        lines += [f"## {kind}", "", f"| a script that | {head} |", f"| {rule} |"]
        lines += [_row(situation, table, columns) for situation in situations] + [""]
    lines += ["## What was said", "", "Sentences of trials that did not end well, by mode.", ""]
    lines += _said(table, columns)
    lines += ["", "## Situations beyond one script", "", "| situation | held by |", "| --- | --- |"]
    lines += [f"| {what} | `{test}` |" for what, test in ELSEWHERE]
    return "\n".join(lines) + "\n"


def _sums(name: str, table: Table, columns: list[tuple[str, str]], count: object) -> str:
    assert callable(count)
    sums = [str(count(list(table[mode, who].values()), mode)) for mode, who in columns]
    return f"| {name} | {' | '.join(sums)} |"


def _row(situation: Situation, table: Table, columns: list[tuple[str, str]]) -> str:
    cells = [cell(table[column].get(situation.name)) for column in columns]
    return f"| {situation.name} | {' | '.join(cells)} |"


def _said(table: Table, columns: list[tuple[str, str]]) -> list[str]:
    """One line for each sentence, with the scripts and modes that brought it."""
    lines = []
    for situation in SITUATIONS:
        by_text: dict[str, list[str]] = {}
        for mode, who in columns:
            one = table[mode, who].get(situation.name)
            if one is not None and one.outcome != "ok":
                text = " ".join(one.said.split())
                text = text.replace(str(Path.home()), "~").replace("|", "\\|")[:MAX_SAID]
                by_text.setdefault(text, []).append(f"{mode}, {'user' if who == USER else who}")
        for text, where in by_text.items():
            lines.append(f"* {situation.name} ({'; '.join(where)}): {text}")
    return lines


def main() -> None:
    """Runs, prints and writes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--modes", nargs="*", default=list(MODES), choices=MODES)
    parser.add_argument("--only", nargs="*", default=[], help="names of situations, or parts of names")
    parser.add_argument("--quick", action="store_true", help="the quick tier alone")
    parser.add_argument("--many", default="5000", help="files of the script that makes very many")
    parser.add_argument("--page", type=Path, default=None, help=f"where the table goes; all modes: {PAGE}")
    parser.add_argument("--at-once", type=int, default=2, help="pairs of a mode and a user at the same time")
    parser.add_argument("--keep", type=Path, default=None, help="results as lines of JSON, read first")
    asked = parser.parse_args()
    os.environ["MANY_FILES"] = asked.many
    chosen = [each for each in SITUATIONS if not asked.quick or each.is_quick]
    names = [each.name for each in chosen if not asked.only or any(part in each.name for part in asked.only)]
    began = time.monotonic()
    table = run(asked.modes, names, at_once=asked.at_once, keep=asked.keep)
    is_whole = len(names) == len(SITUATIONS) and len(asked.modes) == len(MODES)
    target = asked.page or (PAGE if is_whole else None)
    if target is not None:
        target.write_text(page(table, time.monotonic() - began))
    num_bad = sum(not is_held(one, mode) for (mode, _), found in table.items() for one in found.values())
    num = sum(map(len, table.values()))
    sys.stdout.write(f"{num - num_bad} of {num} held, {time.monotonic() - began:.0f} s\n")
    sys.exit(1 if num_bad else 0)


if __name__ == "__main__":
    main()
