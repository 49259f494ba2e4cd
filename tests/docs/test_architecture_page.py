"""The page on the architecture names rooms, files, variables and figures as they are in the code."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from autotune.settings import BY_NAME
from tests.unit.test_rooms import BASE, MAY_IMPORT, MAY_START, PACKAGE, SHARED, THIRD_PARTY

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "ARCHITECTURE.md").read_text()
FILES = sorted(set(re.findall(r"`([\w./-]+\.(?:py|md|toml))`", TEXT)))
VARIABLE = re.compile(r"AUTOTUNE_[A-Z_]*[A-Z]")
OF_THE_USER = {"AUTOTUNE_STORAGE", "AUTOTUNE_KNOB"}
"""Options and exports, which are documented elsewhere."""
READINGS = re.findall(r"<!-- lines: ([^>]+) -->([\d,]+) lines", TEXT)
TOLERANCE = 0.2
NAMED_ANYWHERE = {"num_workers", "batch_size", "grad_accum_steps", "precision", "compile"}
"""Settings that planning, measuring and reporting are about."""


def rows(heading):
    """Cells of the first table below a row of headings that begins with these words."""
    table = TEXT.split(f"\n| {heading}")[1].split("\n\n")[0]
    return [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in table.splitlines()[2:]]


def names(cell):
    return set(re.findall(r"`([^`]+)`", cell))


def test_the_tables_of_rooms_are_those_that_the_imports_are_held_to():
    base = rows("base | what it holds")
    told = {room.strip("`"): names("".join(rest[1:])) for room, *rest in base}
    assert told.keys() == BASE
    for room, _, imports in rows("room | what it holds"):
        told[room.strip("`")] = names(imports) | (BASE if imports.startswith("base") else set())
    assert told == MAY_IMPORT


def test_the_shared_files_and_the_packages_are_those_of_the_rooms():
    assert all(f"`{name}`" in TEXT for name in SHARED)
    told = {package: names(rooms) for packages, rooms in rows("package |") for package in names(packages)}
    assert told == THIRD_PARTY


def test_the_programs_that_rooms_start_are_those_of_the_test_of_the_rooms():
    told = {caller.strip("`"): names(programs) for caller, programs in rows("room with the call")}
    assert told == MAY_START


@pytest.mark.parametrize("name", FILES)
def test_a_file_on_the_page_is_there(name):
    """A name without a folder is the base name of a module, which no other module has."""
    if "/" in name:
        assert (PACKAGE / name).exists() or (ROOT / name).exists()
    else:
        assert (ROOT / name).exists() or len(list(PACKAGE.rglob(name))) == 1


def test_the_variables_are_those_that_our_programs_set_for_each_other():
    told = {cells[0].strip("`") for cells in rows("variable |")}
    sources = [path for room in ("trial", "runner", "sandbox", "protocol") for path in (PACKAGE / room).rglob("*.py")]
    used = {name for path in [*sources, PACKAGE / "study" / "apply.py"] for name in VARIABLE.findall(path.read_text())}
    assert told == used - OF_THE_USER


def words(path):
    """Names and texts in the code of a file."""
    for node in ast.walk(ast.parse(path.read_text())):
        yield from (getattr(node, field, None) for field in ("id", "attr", "arg", "value"))


def test_files_outside_the_settings_that_name_a_setting_are_those_of_the_page():
    """A setting is a file: who adds one changes no other file, but for those whose subject it is."""
    others = [path for path in PACKAGE.rglob("*.py") if path.relative_to(PACKAGE).parts[0] != "settings"]
    names_of_settings = BY_NAME.keys() - NAMED_ANYWHERE
    naming = {
        str(path.relative_to(PACKAGE))
        for path in others
        if any(isinstance(word, str) and word in names_of_settings for word in words(path))
    }
    assert naming == {name for _, files in rows("subject |") for name in names(files)}


@pytest.mark.parametrize(("files", "told"), READINGS, ids=[files.split()[0] for files, _ in READINGS])
def test_what_a_recipe_gives_to_read_has_that_many_lines(files, told):
    num_lines = sum(len((PACKAGE / name).read_text().splitlines()) for name in files.split())
    assert int(told.replace(",", "")) == pytest.approx(num_lines, rel=TOLERANCE), num_lines


def test_every_recipe_counts_its_lines():
    assert len(READINGS) >= TEXT.split("## Recipes")[1].count("\n### ")


def test_classes_among_the_words_are_those_of_the_code():
    told = {word for cells in rows("word |") for word in cells[0].split(", ") if re.fullmatch(r"[A-Z]\w+", word)}
    sources = "\n".join(path.read_text() for path in PACKAGE.rglob("*.py"))
    defined = set(re.findall(r"^class (\w+)", sources, re.M))
    assert told - {"Landlock"} <= defined and len(told) > 10


def test_the_words_are_in_the_order_of_the_alphabet():
    words = [cells[0].lower() for cells in rows("word |")]
    assert words == sorted(words)
