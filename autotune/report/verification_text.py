"""A verification in words. Pure."""

from __future__ import annotations

from typing import Any

from autotune.model.search_result import SearchResult
from autotune.model.verification import VERIFIED_WORDS, Finding, Verification
from autotune.report.words import clean, ratio_text
from autotune.units import format_rate, format_seconds

SCHEMA = 1
ADVICE = {
    Finding.FELL_SHORT: "Search again on a quiet machine; until then expect the real ratio.",
    Finding.SLOWER: "Train without the config, and search again on a quiet machine.",
    Finding.UNCLEAR: "Give more --pairs or --seconds, on a quiet machine.",
}


def verification_line(verification: Verification) -> str:
    """One sentence about a verification, for pages about a study."""
    words = VERIFIED_WORDS[verification.finding]
    return (
        f"{words}: {ratio_text(verification.real)} by {verification.num_pairs} pairs of runs of "
        f"{format_seconds(verification.window_s)}, {verification.at}"
    )


def latest_lines(result: SearchResult) -> list[str]:
    """The sentence about the newest verification of a result; empty without a verification."""
    return [verification_line(result.verifications[-1])] if result.verifications else []


def verification_text(result: SearchResult, *, is_in_config: bool) -> str:
    """The newest verification of a result for people.

    Args:
        result: A result with a verification.
        is_in_config: Whether the tuned config has the verification now.
    """
    found, unit = result.verifications[-1], result.samples_unit
    lines = [
        f"study {clean(result.study)}: {VERIFIED_WORDS[found.finding]}",
        f"  claimed  {ratio_text(found.claimed)}",
        f"  real     {ratio_text(found.real)}, {_place(found)}",
    ]
    for number in sorted({turn.round for turn in found.turns}):
        rates = {turn.is_tuned: turn.samples_per_second for turn in found.turns if turn.round == number}
        ratio = rates[True] / rates[False]
        words = f"yours {format_rate(rates[False])}, tuned {format_rate(rates[True])} {unit} per second"
        lines.append(f"  pair {number + 1}   {ratio:.2f}x: {words}")
    lines += [
        "  Both sides were real training, counted alike after the first steps; yours with nothing applied.",
        *(f"  note: {clean(sentence)}" for sentence in found.disturbances),
    ]
    if found.finding in ADVICE:
        lines.append(f"  {ADVICE[found.finding]}")
    if result.config is not None:
        words = (
            "has this verification now" if is_in_config else "is left as it is, since it is not as the search wrote it"
        )
        lines.append(f"  {clean(result.config)} {words}.")
    return "\n".join(lines) + "\n"


def _place(found: Verification) -> str:
    if found.is_within:
        return "within the published interval"
    return f"{'above' if found.real[0] > found.claimed[2] else 'below'} the published interval"


def verification_document(result: SearchResult, *, is_in_config: bool) -> dict[str, Any]:
    """The document of `autotune verify --json`; the arguments are those of `verification_text`."""
    return {
        "schema": SCHEMA,
        "study": result.study,
        **result.verifications[-1].document(),
        "samples_unit": result.samples_unit,
        "config": result.config,
        "is_in_config": is_in_config,
    }
