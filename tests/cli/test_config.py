"""`autotune config show`: what holds, and where it is said."""

import json
import re
from pathlib import Path

import pytest
import typer

import autotune
from autotune.cli.config_verb import DEFAULTS
from autotune.cli.main import app
from autotune.spec import DEFAULT_BUDGET_S
from autotune.study.target import FREE_SHARE_OF_DEVICE, FREE_SHARE_OF_HOST

STUDIES = Path(__file__).parents[2] / "studies"


def rows(out):
    """Key, value and origin of every line below the header."""
    return {key: (value, *rest) for key, value, *rest in (re.split(r"  +", line) for line in out.splitlines()[1:])}


@pytest.fixture
def said_everywhere(folder, monkeypatch):
    """A study file, a variable and a default, beside what a test gives as options."""
    (folder / "study.toml").write_text(
        "script = 'train.py'\ntime = '5m'\ntrials = 9\nmemory_cap = '4GiB'\n"
        "set = { num_workers = '0..2', batch_size = '8,16' }\nfix = { precision = 'fp32' }\n"
    )
    monkeypatch.setenv("AUTOTUNE_TRIALS", "7")
    monkeypatch.setenv("AUTOTUNE_MEMORY_CAP", "8GiB")


@pytest.mark.parametrize("study", sorted(path.parent.name for path in STUDIES.glob("*/study.toml")))
def test_every_study_of_the_repository_can_be_searched(cli, monkeypatch, study):
    monkeypatch.chdir(STUDIES / study)
    code, _, err = cli("config", "show")
    assert (code, err) == (0, "")


def test_every_value_has_the_place_that_says_it(cli, said_everywhere):
    words = ("--memory-cap", "16GiB", "--set", "num_workers=0,4", "--origin", "--", "--epochs", "3")
    code, out, err = cli("config", "show", *words)
    assert (code, err) == (0, "")
    assert out.splitlines()[0].split() == ["KEY", "VALUE", "FROM"]
    found = rows(out)
    assert found["memory_cap"] == ("16GiB", "--memory-cap"), "an option before a variable and a file"
    assert found["trials"] == ("7", "AUTOTUNE_TRIALS"), "a variable before a file"
    assert found["time"] == ("5 min 0 s", "study.toml")
    assert found["effective_batch"] == ("fixed", "default")
    assert found["set.num_workers"] == ("0,4", "--set num_workers")
    assert found["set.batch_size"] == ("8,16", "study.toml")
    assert found["fix.precision"] == ("fp32", "study.toml")
    assert found["args"] == ("--epochs 3", "after --")
    assert found["script"] == ("train.py", "study.toml")


def test_without_origin_there_are_only_values(cli, said_everywhere):
    _, out, _ = cli("config", "show")
    assert out.splitlines()[0].split() == ["KEY", "VALUE"]
    assert rows(out)["memory_cap"] == ("8GiB",)


def test_it_takes_what_a_search_takes(cli, folder):
    (folder / "other.toml").write_text("seed = 5\n")
    _, out, _ = cli("config", "show", "train.py", "--origin", "--study-file", "other.toml", "--share-gpu", "--force")
    found = rows(out)
    assert found["script"] == ("train.py", "SCRIPT")
    assert found["seed"] == ("5", "other.toml")
    assert found["share_gpu"] == ("true", "--share-gpu") and found["force"] == ("true", "--force")
    assert found["storage"] == ("sqlite:///studies/autotune.db", "default")
    _, out, _ = cli("config", "show", "-m", "json.tool", "--origin")
    assert rows(out)["module"] == ("json.tool", "--module")
    _, out, _ = cli("config", "show", "--origin", "--", "python", "train.py", "--epochs", "3")
    assert rows(out)["command"][1] == "after --"


def test_secrets_are_masked(cli, folder):
    (folder / "study.toml").write_text("script = 'train.py'\nstorage = 'postgresql://ada:hunter2@db/studies'\n")
    for form in ((), ("--json",)):
        _, out, _ = cli("config", "show", *form, "--", "--api-key", "hunter2", "--epochs", "3")
        assert "hunter2" not in out and "***" in out and "--epochs" in out


def test_it_is_a_document_too(cli, said_everywhere, folder):
    _, out, _ = cli("config", "show", "--json", "--seed", "3")
    document = json.loads(out)
    assert document["file"] == str(folder / "study.toml")
    assert document["values"]["seed"] == {"value": 3, "origin": "flag", "where": "--seed"}
    assert document["values"]["time"] == {"value": 300.0, "origin": "file", "where": "study.toml"}
    assert document["values"]["trials"]["origin"] == "environment"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train.py", "--epochs", "3"], "No such option: --epochs"),
        (["train.py", "photos"], "unexpected extra argument"),
        (["train.py", "--trials", "none"], "--trials"),
        ([], "no script to run"),
    ],
)
def test_what_a_search_would_refuse_is_refused(cli, words, message):
    code, out, err = cli("config", "show", *words)
    assert (code, out) == (2, "") and message in err


def test_defaults_that_are_told_in_words_are_those_that_hold():
    options = {name: option.help for name, option in search_options().items()}
    assert "no limit" in DEFAULTS["trials"] and "[default: no limit]" in options["trials"]
    assert f"[default: {DEFAULT_BUDGET_S / 60:g}m]" in options["time"]
    for words in (DEFAULTS["memory_cap"], options["memory_cap"]):
        assert f"{FREE_SHARE_OF_DEVICE:.0%} of what is free" in words and f"{FREE_SHARE_OF_HOST:.0%}" in words
    page = " ".join((autotune.search.__doc__ or "").split())
    assert "None = no limit but the time" in page and f"None = {DEFAULT_BUDGET_S / 60:g} minutes." in page
    assert f"{FREE_SHARE_OF_DEVICE * 100:g} % of what is free" in page
    assert f"{FREE_SHARE_OF_HOST * 100:g} % of what is available" in page


def search_options():
    """Options of `autotune search` by name."""
    return {option.name: option for option in typer.main.get_command(app).commands["search"].params}
