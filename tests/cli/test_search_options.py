"""The table of options against every place that a user says one: flag, study file, variable, Python, and the docs."""

from __future__ import annotations

import inspect
import json
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import get_type_hints

import pytest
import typer

import autotune
from autotune.cli.main import app
from autotune.cli.options import COMPLETIONS
from autotune.spec import SearchSpec
from autotune.study import public
from autotune.study_file.search_options import BY_NAME, KEYS, OPTIONS, VARIABLES, WHAT_TO_RUN, Kind
from tests.docs.options_page import PAGE, page, row
from tests.docs.readme import README

EXAMPLES = {
    "script": "other.py",
    "module": "json.tool",
    "command": [sys.executable, "-u", "train.py"],
    "args": ["--epochs", "3"],
    "nproc_per_node": 2,
    "study": "photos",
    "study_file": "other.toml",
    "storage": "other.db",
    "memory_cap": "80%",
    "trials": 3,
    "time": "90s",
    "spend_all": True,
    "effective_batch": "64..256",
    "set": {"num_workers": "0..2"},
    "fix": {"precision": "bf16"},
    "map": {"num_workers": "--workers={}"},
    "samples_per_step": 32.5,
    "take_over": "last-week",
    "out": "tuned.toml",
    "force": True,
    "seed": 7,
    "device": "cuda:1",
    "start": "live",
    "require_gain": True,
    "share_gpu": True,
    "protection": "landlock",
    "unprotected": True,
    "network": True,
    "allow_batchnorm_accumulation": True,
    "writable": ["runs"],
}
"""A value of each option that is not the default."""
STR_OR_PATH = str | os.PathLike[str]
PYTHON_TYPES = {
    Kind.TEXT: str | None,
    Kind.PATH: STR_OR_PATH | None,
    Kind.PATHS: Sequence[STR_OR_PATH],
    Kind.DATABASE: str | None,
    Kind.WORDS: Sequence[str] | None,
    Kind.COMMAND: Sequence[str] | None,
    Kind.COUNT: int | None,
    Kind.SEED: int | None,
    Kind.AMOUNT: float | None,
    Kind.TIME: str | float | None,
    Kind.MEMORY_CAP: str | None,
    Kind.EFFECTIVE_BATCH: str | None,
    Kind.DEVICE: str | None,
    Kind.PROTECTION: str | None,
    Kind.START: str | None,
    Kind.SWITCH: bool,
}
TABLE_TYPES = {
    "set": Mapping[str, str | Sequence[public.Value]] | None,
    "fix": Mapping[str, public.Value] | None,
    "map": Mapping[str, str] | None,
}
OF_A_CALL = {"cwd", "on_event", "stop"}
"""Parameters of `autotune.search` beside the options."""
NOT_ASKED = {"command", "script", "cwd", "num_processes_per_node"}
"""Fields of a SearchSpec that follow from what is run, and where."""


@pytest.fixture
def place(folder, tuner, monkeypatch):
    """The working directory, with the files that the examples name."""
    (folder / "other.py").write_text("")
    (folder / "other.toml").write_text("trials = 5\n")
    monkeypatch.setattr(public, "searching", sys.modules["autotune.study.searching"])
    return folder


def words_of(name: str, value: object) -> list[str]:
    """The words of `autotune search` that say the value."""
    option = BY_NAME[name]
    if name in ("args", "command"):
        return ["--", *value]
    if name == "script":
        return [value]
    if isinstance(value, dict):
        return [word for key, text in value.items() for word in (option.flag, f"{key}={text}")]
    values = value if isinstance(value, list) else [value]
    return (
        [option.flag] if option.kind is Kind.SWITCH else [word for item in values for word in (option.flag, str(item))]
    )


def toml_of(value: object) -> str:
    """The value as a study file has it."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {json.dumps(text)}" for key, text in value.items()) + " }"
    return json.dumps(value)


@pytest.fixture
def asked(cli, tuner, place) -> Callable[..., SearchSpec]:
    """What the tuner is asked for by some words."""

    def ask(*words: str) -> SearchSpec:
        code, _, err = cli("search", *words)
        assert code == 0, err
        return tuner.specs[-1]

    return ask


@pytest.fixture
def by_flag(asked) -> Callable[[str], SearchSpec]:
    """What the tuner is asked for when a flag gives the example."""
    return lambda name: asked(*(() if name in WHAT_TO_RUN else ("train.py",)), *words_of(name, EXAMPLES[name]))


def test_every_option_has_an_example():
    assert set(EXAMPLES) == set(BY_NAME) and len(BY_NAME) == len(OPTIONS)


@pytest.mark.parametrize("name", BY_NAME)
def test_a_flag_reaches_the_search(name, asked, by_flag):
    default, changed = asked("train.py"), by_flag(name)
    assert changed != default
    field = BY_NAME[name].spec_field
    if field is not None:
        assert {
            each.name for each in fields(SearchSpec) if getattr(changed, each.name) != getattr(default, each.name)
        } == {field}


@pytest.mark.parametrize("name", KEYS)
def test_a_key_of_the_study_file_says_what_the_flag_says(name, asked, by_flag, cli, place):
    expected = by_flag(name)
    said = {name: EXAMPLES[name]} if name in WHAT_TO_RUN else {"script": "train.py", name: EXAMPLES[name]}
    (place / "study.toml").write_text("".join(f"{key} = {toml_of(value)}\n" for key, value in said.items()))
    assert cli("trust")[0] == 0
    assert asked() == expected


@pytest.mark.parametrize("name", VARIABLES)
def test_a_variable_says_what_the_flag_says(name, asked, by_flag, monkeypatch):
    expected = by_flag(name)
    monkeypatch.setenv(f"AUTOTUNE_{name.upper()}", str(EXAMPLES[name]))
    assert asked("train.py") == expected


@pytest.mark.parametrize("name", [option.name for option in OPTIONS if not option.has_variable])
def test_a_variable_that_is_not_read_is_said_to_be_none(name, cli, place, monkeypatch):
    monkeypatch.setenv(f"AUTOTUNE_{name.upper()}", "x")
    assert f"AUTOTUNE_{name.upper()} is not read" in cli("search", "train.py")[2]


@pytest.mark.parametrize("name", [option.name for option in OPTIONS if option.in_python])
def test_a_parameter_in_python_says_what_the_flag_says(name, by_flag, tuner):
    expected = by_flag(name)
    script = {} if name in WHAT_TO_RUN else {"script": "train.py"}
    autotune.search(**script, **{name: EXAMPLES[name]})
    assert tuner.specs[-1] == expected


def test_the_signature_in_python_is_that_of_the_table():
    hints = get_type_hints(public.search)
    parameters = inspect.signature(autotune.search).parameters
    assert set(parameters) - OF_A_CALL == {option.name for option in OPTIONS if option.in_python}
    for name in set(parameters) - OF_A_CALL:
        kind = BY_NAME[name].kind
        assert hints[name] == (TABLE_TYPES[name] if kind is Kind.TABLE else PYTHON_TYPES[kind]), name
        assert parameters[name].default == {Kind.SWITCH: False, Kind.PATHS: ()}.get(kind), name


def test_the_page_of_the_function_describes_every_parameter():
    described = re.findall(r"^        (\w+): ", (autotune.search.__doc__ or "").split("Raises:")[0], re.M)
    assert sorted(described) == sorted(inspect.signature(autotune.search).parameters)


@pytest.mark.parametrize("verb", ["search", "record", "diagnose", "resume", "run"])
def test_a_verb_has_the_flags_of_the_table_with_their_words(verb):
    found = {parameter.name: parameter for parameter in typer.main.get_command(app).commands[verb].params}
    for option in OPTIONS:
        if verb not in option.verbs:
            assert option.name not in found or option.help_text(verb) != found[option.name].help
            continue
        parameter = found[option.name]
        assert parameter.help == option.help_text(verb) and parameter.metavar == option.metavar
        assert not option.flag.startswith("--") or option.flag in parameter.opts
        assert option.short is None or option.short in parameter.opts


def test_only_options_complete_after_tab():
    assert set(COMPLETIONS) <= set(BY_NAME)


def test_every_field_of_a_search_comes_from_one_option():
    reached = [option.spec_field for option in OPTIONS if option.spec_field is not None]
    assert sorted([*reached, *NOT_ASKED]) == sorted(field.name for field in fields(SearchSpec))


@pytest.mark.parametrize("name", BY_NAME)
def test_the_docs_have_a_row_of_it(name):
    assert row(BY_NAME[name]) in PAGE.read_text().splitlines()


def test_the_page_of_options_is_written_from_the_table_and_the_readme_leads_there():
    assert PAGE.read_text() == page()
    assert "(docs/options.md)" in README.read_text()
