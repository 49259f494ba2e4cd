"""The README's lines that search a callable run as they stand there."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"
HEADING = "## Any callable, and recorded grids"


def section() -> str:
    text = README.read_text()
    return text[text.index(HEADING) :].split("\n## ")[0]


def example() -> str:
    (block,) = re.findall(r"(?:^(?:    .*)?\n)+", section(), flags=re.MULTILINE)[:1]
    return textwrap.dedent(block)


def test_the_example_runs_and_finds_the_best(capsys):
    names = {}
    exec(compile(example(), str(README), "exec"), names)
    found = names["found"]
    assert len(found.trials) <= 20
    assert (found.best.settings.num_workers, found.best.settings.precision) == (4, "bf16")
    assert str(found.best.samples_per_second) in capsys.readouterr().out


def test_the_section_stays_short():
    assert len(section().strip().splitlines()) <= 18
