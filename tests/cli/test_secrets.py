"""Values of secrets are in nothing that is shown or stored, whatever prints them and in whatever form."""

import json
import sqlite3
from contextlib import closing

import pytest

from autotune.model.events import Notice
from autotune.model.outcome import Outcome
from autotune.store.secrets import mask_known, mask_plain, mask_text
from autotune.store.url import mask_url, resolve_url

from ..unit.report.examples import NATURAL, failed, measured
from .conftest import trial_record

VALUE = 'plain words "and" <odd> signs'


@pytest.fixture
def secret(monkeypatch):
    """A secret that looks like none, in a variable with the name of one."""
    monkeypatch.setenv("STORE_DEPLOY_KEY", VALUE)
    return VALUE


@pytest.fixture
def printed(stored, secret):
    """A study whose script prints the secret in its reasons and its log."""
    result = failed(Outcome.CRASHED, f"KeyError: {secret}", log_tail=f"key is {secret}\n", notes=(f"note {secret}",))
    stored(trials=[trial_record(0, NATURAL, measured(1000.0)), trial_record(1, NATURAL, result)])


FORMS = (VALUE, json.dumps(VALUE)[1:-1], VALUE.replace('"', "&quot;").replace("<", "&lt;").replace(">", "&gt;"))


@pytest.mark.parametrize(
    "words",
    [
        ("studies", "show", "train"),
        ("studies", "show", "train", "--json"),
        ("report", "train", "--out", "-"),
        ("report", "train", "--out", "-", "--format", "json"),
    ],
    ids=" ".join,
)
def test_what_a_script_printed_is_shown_without_the_secret(cli, printed, words):
    code, out, err = cli(*words)
    assert code == 0
    assert "KeyError: ***" in out
    assert not any(form in out + err for form in FORMS)


def test_a_report_that_is_mailed_has_no_secret(cli, printed, folder):
    assert cli("report", "train", "--out", "page.html")[0] == 0
    page = (folder / "page.html").read_text()
    assert "KeyError: ***" in page and not any(form in page for form in FORMS)


def test_what_a_script_printed_is_stored_without_the_secret(printed, folder):
    with closing(sqlite3.connect(folder / "studies" / "autotune.db")) as connection, connection:
        dump = "\n".join(connection.iterdump())
    connection.close()
    assert "KeyError: ***" in dump and not any(form in dump for form in FORMS)


def test_events_have_no_secret_on_the_terminal_nor_as_lines_of_json(cli, tuner, secret, monkeypatch):
    def search(spec, *, on_event, stop=None):
        on_event(Notice(message=f"told {secret}"))
        return tuner.result

    monkeypatch.setattr("autotune.study.searching.search", search)
    _, out, err = cli("search", "train.py", "--jsonl")
    assert "told ***" in out and "told ***" in err
    assert not any(form in out + err for form in FORMS)


def test_an_error_of_ours_shows_no_secret(cli, secret):
    code, _, err = cli("best", secret)
    assert code == 5 or "***" in err
    assert not any(form in err for form in FORMS)


@pytest.mark.parametrize(
    ("name", "value", "is_hidden"),
    [
        ("WANDB_API_KEY", "0123456789", True),
        ("MY_TOKEN_2", "0123456789", True),
        ("DB_PASS", "correct-horse", True),
        ("KEY", "correct-horse", True),
        ("HTTPS_PROXY", "http://ada:correct-horse@proxy:3128", True),
        ("AUTOTUNE_STORAGE", "postgresql://ada:correct@horse@db/x", True),
        ("MY_TOKEN", "short", False),
        ("PWD", "/home/ada/correct-horse", False),
        ("GOOGLE_APPLICATION_CREDENTIALS", "/etc/passwd", False),
        ("TOKENIZERS_PARALLELISM", "correct-horse", False),
        ("EOS_TOKEN", "correct-horse", False),
    ],
)
def test_variables_are_secret_by_their_last_word_or_by_the_password_in_their_url(monkeypatch, name, value, is_hidden):
    monkeypatch.setenv(name, value)
    shown = {"HTTPS_PROXY": "correct-horse", "AUTOTUNE_STORAGE": "correct@horse"}.get(name, value)
    text = f"it is {shown}, twice: {shown}"
    assert mask_known(text) == ("it is ***, twice: ***" if is_hidden else text)
    assert mask_text(f"x {shown}")[2:] == ("***" if is_hidden else shown)
    assert mask_plain({"a": [shown]}) == {"a": ["***" if is_hidden else shown]}


# A password with an @


@pytest.mark.parametrize("password", ["p@ss", "p@ss@word", "p/ss@", "a?b@c", "12345/x@y", "p:ss"])
def test_no_fragment_of_a_password_is_shown_or_taken_for_the_host(tmp_path, password):
    url = f"postgresql://ada:{password}@db.example:5433/tuning"
    if "?" in password:
        assert "b@c" not in mask_url(url)
        return
    resolved = resolve_url(url, tmp_path)
    assert mask_url(resolved) == "postgresql+psycopg://ada:***@db.example:5433/tuning"
    from sqlalchemy import make_url

    parsed = make_url(resolved)
    assert (parsed.host, parsed.port, parsed.password) == ("db.example", 5433, password)


def test_a_server_that_cannot_be_reached_is_told_without_a_fragment_of_the_password(cli, folder):
    code, _, err = cli("studies", "list", "--storage", "postgresql://ada:first@second@127.0.0.1:1/x")
    assert code == 5
    assert "second" not in err and "first" not in err
    assert "ada:***@127.0.0.1:1" in err
