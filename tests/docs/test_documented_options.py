"""Options on the pages for users are options of the command line, each of the verb beside it."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.cli.test_options import HELP, SURFACE
from tests.docs.readme import README

ROOT = README.parent
PAGES = [
    README,
    *(ROOT / "docs" / f"{name}.md" for name in ("events", "live", "measurement", "options", "report", "service")),
    *sorted(ROOT.glob("studies/*/README.md")),
    ROOT / "autotune" / "sandbox" / "README.md",
]
OURS = HELP.union(*SURFACE.values())
OF_OTHERS = {
    *("--amp", "--api-key", "--batch-size", "--data", "--dtype", "--epochs", "--workers"),  # scripts'
    *("--cap-add", "--gpus", "--init", "--rm", "--security-opt", "--shm-size", "--tmpfs", "--user"),  # docker's
    *("--gres", "--exclusive", "--resources"),  # Slurm's and Ray's
    *("--rounds", "--script"),  # of `tests.benchmarks.live`
    "--write",  # of `tests.benchmarks.watch`
}
"""Options of scripts and of other programs on these pages."""


def commands(page: Path) -> list[str]:
    """Commands of ours on a page: indented lines, continued lines joined, and inline code."""
    text = page.read_text().replace("\\\n", " ")
    lines = [line.strip() for line in text.splitlines() if line.startswith("    ")]
    inline = re.findall(r"`([^`]+)`", re.sub(r"\s*\n\s*", " ", text))
    return [words for words in (*lines, *inline) if words.startswith("autotune ")]


def verb_of(words: list[str]) -> str:
    """The longest known verb at the beginning, such as `studies show`; empty for the command alone."""
    names = (" ".join(words[:count]) for count in (2, 1))
    return next((name for name in names if name in SURFACE), "")


def unknown(command: str) -> set[str]:
    """Options of a command without a place in the command line."""
    words = shlex.split(command.partition("#")[0], comments=False)[1:]
    own = words[: words.index("--")] if "--" in words else words
    given = {word.partition("=")[0] for word in own if word.startswith("--")}
    return given - SURFACE[verb_of(words)] - HELP


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_command_on_a_page_has_options_of_its_verb_alone(page: Path) -> None:
    assert {command: unknown(command) for command in commands(page) if unknown(command)} == {}


@pytest.mark.parametrize("page", PAGES[:7], ids=lambda page: page.name)
def test_an_option_named_on_a_page_for_users_exists(page: Path) -> None:
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*[a-z]", page.read_text()))
    assert named - OURS - OF_OTHERS == set()


def test_an_option_that_is_gone_is_noticed() -> None:
    assert unknown("autotune search train.py --tiem 5m -- --epochs 90") == {"--tiem"}
    assert unknown("autotune studies show train --json") == set()
    assert unknown("autotune best train --quiet") == {"--quiet"}


def test_no_option_of_others_is_listed_without_need() -> None:
    assert set(OF_OTHERS).isdisjoint(OURS)
    assert all(any(option in page.read_text() for page in PAGES) for option in OF_OTHERS)
