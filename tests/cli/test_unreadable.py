"""One row that cannot be read stands in nobody's way: it is left out by name, and can be deleted."""

import json
import sqlite3
from contextlib import closing

import pytest

from ..unit.report.examples import NATURAL, TUNED, measured
from .conftest import trial_record
from .test_completion import offered
from .test_stored import names

DEEP = "[" * 100_000


@pytest.fixture
def broken(stored, folder):
    """Two studies, of which `bad` cannot be read."""
    stored("good", trials=[trial_record(0, NATURAL, measured(1000.0)), trial_record(1, TUNED, measured(2000.0))])
    stored("bad", trials=[trial_record(0, NATURAL, measured(1000.0))])

    def spoil(table, column, value, name="bad"):
        with closing(sqlite3.connect(folder / "studies" / "autotune.db")) as connection, connection:
            of_study = "study_id = (SELECT study_id FROM autotune_studies WHERE name = ?)"
            connection.execute(f"UPDATE {table} SET {column} = ? WHERE {of_study}", [value, name])
        connection.close()

    return spoil


COLUMNS = [("spec", "{"), ("spec", DEEP), ("fingerprint", "[]"), ("created_at", "yesterday"), ("refused", "[1]")]


@pytest.mark.parametrize(("column", "value"), COLUMNS, ids=lambda text: text[:10])
def test_a_study_that_cannot_be_read_is_left_out_of_the_list_by_name_and_can_be_deleted(
    cli, broken, folder, column, value
):
    broken("autotune_studies", column, value)
    code, out, err = cli("studies", "list")
    assert code == 0
    assert "good" in out and "bad" not in out
    assert "'bad' cannot be read" in err and "autotune studies delete bad" in err
    assert [entry["study"] for entry in json.loads(cli("studies", "list", "--json")[1])["studies"]] == ["good"]
    assert cli("studies", "delete", "bad", "--yes")[0] == 0
    assert names(folder) == ["good"]


@pytest.mark.parametrize("name", [b"bad", b"\xff\x00"], ids=repr)
def test_a_study_whose_name_is_no_text_is_left_out_of_the_list_with_its_name_in_bytes(cli, broken, name):
    broken("autotune_studies", "name", name)
    code, out, err = cli("studies", "list")
    assert code == 0
    assert "good" in out and "bad" not in out
    assert f"left out: The stored study {name!r} cannot be read" in err
    assert [entry["study"] for entry in json.loads(cli("studies", "list", "--json")[1])["studies"]] == ["good"]
    assert "studies delete" not in err, "no word that can be typed names it"


def test_beside_a_name_in_bytes_other_studies_are_found_and_offered(cli, broken):
    broken("autotune_studies", "name", b"bad")
    assert "'good'" in cli("best", "goad")[2]
    assert cli("best", "good")[0] == 0
    assert offered("autotune", "best", "go") == ["good"]
    assert cli("studies", "upgrade")[1] == "Up to date: 1 study.\n"


@pytest.mark.parametrize("verb", ["best", "studies show", "report", "resume"])
def test_a_study_that_cannot_be_read_is_one_sentence_to_every_verb(cli, broken, tuner, verb):
    broken("autotune_studies", "spec", DEEP)
    code, _, err = cli(*verb.split(), "bad")
    assert code == 5
    assert "The stored study 'bad' cannot be read" in err and "Traceback" not in err


def test_a_result_that_no_release_knows_leaves_the_study_out_of_the_list(cli, broken):
    broken("autotune_studies", "result", '{"status": 1}')
    broken("autotune_studies", "status", "improved")
    code, out, err = cli("studies", "list")
    assert code == 0 and "good" in out
    assert "'bad'" in err


def test_a_trial_that_cannot_be_read_is_left_out_of_the_page_and_named(cli, broken):
    with_trial = "autotune_trials"
    broken(with_trial, "result", DEEP, name="bad")
    code, _, err = cli("studies", "show", "bad")
    assert code == 0
    assert "The stored trial 0 cannot be read" in err
    assert cli("report", "bad", "--out", "-")[0] == 0
