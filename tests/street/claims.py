"""docs/claims.md: every search that published a gain, beside the real ratio; none is left out.

Claims come from results of the corpus, and from studies with or without an `autotune verify`. A search without a real
run is listed as such.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from autotune.measure.paired import Final, compare
from autotune.model.search_result import SearchResult
from autotune.model.verification import Ratio, Verification
from autotune.store.records import StudyRecord
from autotune.store.repository import Repository
from autotune.store.url import resolve_url

HEAD = """# Published gains, and what real runs said

Every search that published a gain, the newest last, none left out: searches of the corpus of public scripts
(`python -m tests.street`, counted from the script's own progress lines), studies verified by `autotune verify`
(counted by autotune), and comparisons with another tool (`python -m tests.benchmarks.rival`, counted by the script).
`python -m tests.street --claims FILES` adds the claims of results, databases and comparisons to
`tests/street/claims.jsonl`, and writes this page from there.

* **claimed** is the ratio that the search published, with its interval; **real** is `autotune run` over the script, in
  turns.
* **within**: the real ratio lies within the claimed interval. **held**: the claim agrees with the runs, by the
  intervals of both; `unclear` where the runs differ too much to tell."""
COLUMNS = "| script | device | date | autotune | claimed [interval] | real [interval] | within | held |"
NO_COMMIT = "not noted"


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One published gain, with the real ratio if there is one."""

    script: str
    device: str
    at: str
    """ISO date and time of the search or verification."""
    commit: str
    claimed: tuple[float, float, float]
    real: float | None = None
    verification: Verification | None = None
    """None for fewer than two pairs of runs, whose interval is unknown."""

    @property
    def is_within(self) -> bool | None:
        """Whether the real ratio lies within the published interval; None without a real run."""
        return None if self.real is None else self.claimed[1] <= self.real <= self.claimed[2]

    @property
    def error(self) -> float | None:
        """Relative error of the published ratio; None without a real run."""
        return None if self.real is None else abs(self.claimed[0] / self.real - 1)


def read_claims(paths: Sequence[Path]) -> list[Claim]:
    """All claims in results files and databases, by date."""
    found: dict[tuple[str, str, str, float], Claim] = {}
    for path in paths:
        for claim in READERS.get(path.suffix, _of_results)(path):
            # The last line about a search is the whole one.
            found[claim.script, claim.device, claim.at, claim.claimed[0]] = claim
    return sorted(found.values(), key=lambda claim: (claim.at, claim.script))


def _of_results(path: Path) -> Iterator[Claim]:
    for text in path.read_text().splitlines():
        row = json.loads(text)
        if isinstance(row, dict) and isinstance(row.get("claimed"), list):
            yield recorded(row)
        elif isinstance(row, dict) and row.get("claimed"):
            yield claim_of(row)


def _of_comparison(path: Path) -> Iterator[Claim]:
    """The searches of a comparison by `python -m tests.benchmarks.rival --out FILE.json`."""
    compared = json.loads(path.read_text())
    for model, figures in compared["models"].items():
        gain = figures.get("our_search", {}).get("speedup")
        if gain is not None:
            yield Claim(
                script=f"tests.benchmarks.rival {model}",
                device="gpu",
                at=compared["date"],
                commit=compared.get("autotune") or NO_COMMIT,
                claimed=(gain["ratio"], gain["low"], gain["high"]),
                real=figures["ratios"].get("ours / default"),
            )


def document(claim: Claim) -> dict[str, Any]:
    """The claim as a line of the record; `recorded` reads it back."""
    real = claim.real if claim.verification is None else claim.verification.real
    names = {"script": claim.script, "device": claim.device, "at": claim.at, "commit": claim.commit}
    return {**names, "claimed": claim.claimed, "real": real}


def recorded(line: dict[str, Any]) -> Claim:
    """The claim of a line of the record."""
    names = {name: line[name] for name in ("script", "device", "at", "commit")}
    claimed, real = tuple(line["claimed"]), line["real"]
    if not isinstance(real, list):
        return Claim(**names, claimed=claimed, real=real)
    return Claim(**names, claimed=claimed, real=real[0], verification=_verified(claimed, tuple(real), line["at"]))


def _verified(claimed: Ratio, real: Ratio, at: str) -> Verification:
    return Verification(claimed=claimed, real=real, window_s=0.0, turns=(), at=at, autotune="")


def claim_of(row: dict[str, Any]) -> Claim:
    """The claim of a row of results."""
    claimed = (row["claimed"], row["claimed_low"], row["claimed_high"])
    rates = row.get("rates") or {}
    finals = [
        Final(candidate=side, round=number, samples_per_second=rate, peak_memory_bytes=0, feasible=True)
        for side, name in enumerate(("script", "run"))
        for number, rate in enumerate(rates.get(name) or ())
        if rate
    ]
    try:
        ratio = compare(finals, 1, 0, is_last=True)
        verification = _verified(claimed, (ratio.ratio, ratio.low, ratio.high), row["at"])
    except ValueError:
        verification = None
    return Claim(
        script=f"{row['repository']} {row['script']}",
        device=row["device"],
        at=row["at"],
        commit=row.get("autotune") or NO_COMMIT,
        claimed=claimed,
        real=verification.real[0] if verification is not None else row.get("real"),
        verification=verification,
    )


def _of_database(path: Path) -> Iterator[Claim]:
    with Repository.read(resolve_url(str(path), Path.cwd())) as repository:
        for record in repository.studies():
            result = SearchResult.from_document(record.result) if record.result is not None else None
            if result is not None and result.speedup is not None:
                yield from _of_study(record, result, result.speedup)


READERS = {".db": _of_database, ".json": _of_comparison}
"""Reads the claims of a file, by its suffix; all other files are results, one line each."""


def _of_study(record: StudyRecord, result: SearchResult, claimed: tuple[float, float, float]) -> Iterator[Claim]:
    """A claim for each verification of a study; without any, the claim alone."""
    device = record.facts.device if record.facts is not None else ""
    script = f"{Path(record.spec.script).name} (study {record.name})"
    common: dict[str, Any] = {"script": script, "device": device, "claimed": claimed}
    version = str(record.fingerprint.get("versions", {}).get("autotune", NO_COMMIT))
    if not result.verifications:
        yield Claim(**common, at=record.created_at.isoformat(timespec="seconds"), commit=version)
    for found in result.verifications:
        yield Claim(**common, at=found.at, commit=found.autotune, real=found.real[0], verification=found)


def page(claims: Sequence[Claim]) -> str:
    """The whole page."""
    lines = [HEAD, "", "## Figures", "", *figures(claims), "", "## Claims", "", COLUMNS, "| " + "--- | " * 8]
    lines += map(_line, claims)
    return "\n".join(line.rstrip() for line in lines) + "\n"


def figures(claims: Sequence[Claim]) -> list[str]:
    """Summary figures, for all devices and for each kind."""
    num_scripts = len({claim.script for claim in claims})
    lines = [f"* {len(claims)} claims of a gain over {num_scripts} scripts."]
    unmeasured = sum(claim.real is None for claim in claims)
    if unmeasured:
        lines.append(f"* Without a real run: {unmeasured}.")
    for name, of_kind in (("On a GPU", _on(claims, is_cpu=False)), ("On a CPU", _on(claims, is_cpu=True))):
        errors = sorted(claim.error for claim in of_kind if claim.error is not None)
        if errors:
            inside = sum(bool(claim.is_within) for claim in of_kind)
            lines.append(
                f"* {name}: real ratio within the claimed interval in {inside} of {len(errors)}; |error| of the "
                f"claimed ratio: median {median(errors):.1%}, largest {errors[-1]:.1%}."
            )
    slower = [claim.script for claim in claims if claim.real is not None and claim.real < 0.95]
    lines.append(f"* Slower by 5 % or more in the real runs: {len(slower)}{': ' if slower else ''}{', '.join(slower)}.")
    return lines


def _on(claims: Iterable[Claim], *, is_cpu: bool) -> list[Claim]:
    return [claim for claim in claims if (claim.device == "cpu") is is_cpu]


def _line(claim: Claim) -> str:
    found = claim.verification
    real = "no real run" if claim.real is None else f"{claim.real:.2f}x"
    held = ""
    if found is not None:
        real = _ratio(found.real)
        held = found.finding.value.replace("_", " ")
    within = {True: "yes", False: "no", None: ""}[claim.is_within]
    cells = [claim.script, claim.device, claim.at[:10], claim.commit, _ratio(claim.claimed), real, within, held]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _ratio(ends: tuple[float, float, float]) -> str:
    return f"{ends[0]:.2f}x [{ends[1]:.2f}, {ends[2]:.2f}]"
