"""`python -m tests.street`: runs the corpus over a folder of checkouts, or writes the table of the results."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from pathlib import Path
from typing import Any

from tests.street.claims import document, page, read_claims
from tests.street.rows import SCRIPTS, keras
from tests.street.runner import Place, Plan, make_data, run_row
from tests.street.script import DEVICES, Device, Script
from tests.street.table import shortened, with_keras_rows, written
from tests.street.watch import Limits

DOCUMENT = Path(__file__).parents[2] / "docs" / "compatibility.md"
RESULTS, CLAIMS_RECORD = Path(__file__).with_name("results.jsonl"), Path(__file__).with_name("claims.jsonl")
"""The record: what stood in the pages stays there until a later run replaces it."""
CLAIMS, KERAS = DOCUMENT.with_name("claims.md"), DOCUMENT.with_name("keras.md")


def main(words: list[str] | None = None) -> int:
    """Carries out the command line; gives the exit code."""
    asked = _parser().parse_args(words)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # an exit ends what was started; the signal alone does not
    if asked.list:
        for script in SCRIPTS:
            print(f"{script.name}  {','.join(script.devices)}  {script.kind}  {script.source.repository}")
        return 0
    if asked.claims is not None:
        return write_claims(asked.claims)
    if asked.table is not None:
        return write_tables(asked.table)
    if asked.checkouts is None or asked.out is None:
        print("Give --checkouts and --out, or --table, or --claims, or --list.", file=sys.stderr)
        return 2
    return run(asked)


def write_claims(paths: list[Path]) -> int:
    """Adds the claims of the files to the record, and writes the page of all claims."""
    claims = read_claims([CLAIMS_RECORD, *paths])
    write_lines(CLAIMS_RECORD, [document(claim) for claim in claims])
    CLAIMS.write_text(page(claims))
    print(f"{CLAIMS}: {len(claims)} claims")
    return 0


def write_tables(paths: list[Path]) -> int:
    """Adds the rows of the files to the record, and writes the pages of all rows."""
    rows = [shortened(row) for row in read_results([RESULTS, *paths])]
    write_lines(RESULTS, rows)
    of_keras = [row for row in rows if row["kind"] == keras.KIND]
    others = [row for row in rows if row["kind"] != keras.KIND]
    KERAS.write_text(with_keras_rows(KERAS.read_text(), of_keras))
    DOCUMENT.write_text(written(others))
    print(f"{DOCUMENT}: {len(others)} rows; {KERAS}: {len(of_keras)} rows")
    return 0


def write_lines(path: Path, lines: list[dict[str, Any]]) -> None:
    """Writes a file of JSON lines."""
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def run(asked: argparse.Namespace) -> int:
    """Runs the rows without a line in the results."""
    known = {(row["script"], row["device"]) for row in read_results(asked.out) if not row.get("is_partial")}
    chosen = [(s, d) for s, d in choice(asked.only, asked.device) if (s.name, d) not in known]
    plan = Plan(
        checkouts=asked.checkouts.resolve(), work=asked.work.resolve(), time=asked.time, rounds=asked.rounds,
        limits=Limits(settle_s=asked.settle, window_s=asked.window, start_s=asked.start), gpus=asked.gpus,
        options=tuple(asked.option), is_bare=asked.bare,
    )  # fmt: skip
    if asked.data_only:
        for script, device in chosen:
            place = Place(script, device, plan)
            make_data(place.made, place.data)
        return 0
    for script, device in chosen:
        print(f"{time.strftime('%H:%M:%S')} {script.name} on {device}", flush=True)
        run_row(script, device, plan, lambda line: kept(line, asked.out[0]))
    return 0


def kept(line: dict[str, Any], path: Path) -> None:
    """Adds the line to the results, and prints a summary."""
    with path.open("a") as out:
        out.write(json.dumps(line) + "\n")
    print(f"{time.strftime('%H:%M:%S')} {summary(line)}", flush=True)


def choice(only: list[str], devices: list[Device]) -> list[tuple[Script, Device]]:
    """Rows by name, or `name:device`, in the order given; all rows for an empty list."""
    names = only or [script.name for script in SCRIPTS]
    by_name = {script.name: script for script in SCRIPTS}
    chosen: list[tuple[Script, Device]] = []
    for name in names:
        name, _, device = name.partition(":")
        if name not in by_name:
            raise SystemExit(f"No row is called {name!r}; --list names them.")
        script = by_name[name]
        chosen += [(script, one) for one in script.devices if (one == device or not device) and one in devices]
    return chosen


def summary(line: dict[str, Any]) -> str:
    """One line about a row, for people."""
    parts = [line["script"], line["device"], line["outcome"], *(["so far"] if line.get("is_partial") else [])]
    for key in ("trials", "search_s", "claimed", "claimed_low", "claimed_high", "real", "expert", "why"):
        value = line.get(key)
        if value is not None:
            parts.append(f"{key}={value:.3g}" if isinstance(value, float) else f"{key}={value}")
    return "  ".join(parts)


def read_results(paths: list[Path]) -> list[dict[str, Any]]:
    """The lines of results files; of two lines for a row and device, the later stands."""
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for path in paths:
        if path.exists():
            for text in path.read_text().splitlines():
                row = json.loads(text)
                rows[row["script"], row["device"]] = row
    return list(rows.values())


def _parser() -> argparse.ArgumentParser:
    """What the command line takes."""
    parser = argparse.ArgumentParser(prog="python -m tests.street", description=__doc__)
    parser.add_argument("--checkouts", type=Path, help="folder of checkouts, each named OWNER+NAME")
    parser.add_argument(
        "--out", type=Path, nargs="*", help="results as JSON lines; more files only name rows that are done"
    )
    parser.add_argument("--work", type=Path, default=Path("/tmp/street"), help="where copies, data and logs go")
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME[:DEVICE]", help="rows to run, in this order")
    parser.add_argument("--device", nargs="*", default=list(DEVICES), choices=DEVICES)
    parser.add_argument("--gpus", default="", help="CUDA_VISIBLE_DEVICES, such as 0,1")
    parser.add_argument("--time", default="3m", help="what each search gets")
    parser.add_argument("--option", action="append", default=[], help="one more option of `autotune search`")
    parser.add_argument("--rounds", type=int, default=2, help="turns of script, `autotune run` and expert")
    parser.add_argument("--window", type=float, default=20.0, help="seconds counted per turn")
    parser.add_argument("--settle", type=float, default=5.0, help="seconds left out before that")
    parser.add_argument("--start", type=float, default=150.0, help="longest wait for the first progress, in seconds")
    parser.add_argument(
        "--table",
        type=Path,
        nargs="*",
        help="add these results to the record, and write docs/compatibility.md and the rows of docs/keras.md from it",
    )
    parser.add_argument(
        "--claims",
        type=Path,
        nargs="*",
        help="add these results and databases to the record of claims, and write docs/claims.md from it",
    )
    parser.add_argument("--data-only", action="store_true", help="make the data of the rows, and run nothing")
    parser.add_argument("--bare", action="store_true", help="no search: the script and the expert's line alone")
    parser.add_argument("--list", action="store_true", help="name the rows")
    return parser


if __name__ == "__main__":
    sys.exit(main())
