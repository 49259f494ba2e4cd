"""The page on how a trial is measured names figures of the code, and no others."""

from __future__ import annotations

import importlib
import re
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "measurement.md"
ROW = re.compile(r"^\| (?P<what>[^|]+) \| (?P<value>[\d.]+)[^|]* \| `(?P<name>autotune\.[\w.]+)` \|$", re.M)
ROWS = ROW.findall(PAGE.read_text())


def value_of(name):
    """The constant, or the default of a dataclass's field, that a dotted name leads to."""
    parts = name.split(".")
    for length in range(len(parts) - 1, 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for part in parts[length:]:
            if is_dataclass(found):
                return next(field.default for field in fields(found) if field.name == part)
            found = getattr(found, part)
        return found
    raise LookupError(name)


def test_every_row_of_the_table_is_read():
    table = PAGE.read_text().split("## The figures")[1]
    assert len(ROWS) == sum(line.startswith("| ") for line in table.splitlines()) - 2 >= 10


@pytest.mark.parametrize(("what", "value", "name"), ROWS, ids=[row[2].rpartition(".")[2] for row in ROWS])
def test_a_figure_on_the_page_is_that_of_the_code(what, value, name):
    assert value_of(name) == float(value), what
