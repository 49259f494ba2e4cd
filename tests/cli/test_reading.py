"""Verbs that only read: nothing is made, changed or asked of a server, whatever lies in the folder."""

import hashlib
import socket
import sqlite3
import stat
from contextlib import closing

import pytest

from autotune.store.repository import Repository
from autotune.store.url import resolve_url

from ..unit.report.examples import NATURAL, measured
from .conftest import trial_record
from .test_completion import offered

READERS = (
    ("studies", "list"),
    ("studies", "show", "train"),
    ("best", "train"),
    ("report", "train", "--out", "-"),
    ("compare", "train", "train"),
    ("export", "train"),
)


@pytest.fixture
def foreign(folder):
    """Another program's SQLite file, in the usual place of ours."""
    path = folder / "studies" / "autotune.db"
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE photos (name TEXT)")
    connection.close()
    return path


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def server(folder):
    """A server that a study file in the folder names; it is told when somebody connects."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setblocking(False)
    port = listener.getsockname()[1]
    (folder / "study.toml").write_text(f'storage = "mysql+pymysql://x@127.0.0.1:{port}/x?local_infile=1"\n')
    yield listener
    listener.close()


def was_asked(listener):
    try:
        listener.accept()
    except BlockingIOError:
        return False
    return True


@pytest.mark.parametrize("words", READERS, ids=" ".join)
def test_a_file_of_another_program_is_refused_by_name_and_stays_as_it_is(cli, foreign, words):
    before = digest(foreign)
    code, _, err = cli(*words)
    assert code == 5
    assert f"{foreign} holds no studies of autotune" in err
    assert digest(foreign) == before


def test_a_completion_leaves_a_file_of_another_program_as_it_is(foreign):
    before = digest(foreign)
    assert offered("autotune", "best", "") == []
    assert digest(foreign) == before


def test_a_completion_makes_no_files_beside_a_database_with_a_write_ahead_log(stored, folder):
    stored(trials=[trial_record(0, NATURAL, measured(1000.0))])
    path = folder / "studies" / "autotune.db"
    assert len(offered("autotune", "best", "")) == 1
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
    assert offered("autotune", "best", "") == []
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("words", READERS, ids=" ".join)
def test_a_reader_changes_no_byte_of_our_own_database(cli, stored, folder, words):
    stored(trials=[trial_record(0, NATURAL, measured(1000.0))])
    path = folder / "studies" / "autotune.db"
    before = digest(path)
    cli(*words)
    assert digest(path) == before
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_a_search_writes_no_tables_into_a_file_of_another_program(foreign):
    before = digest(foreign)
    with pytest.raises(Exception, match="tables of another program: photos"):
        Repository.open(resolve_url(str(foreign), foreign.parent))
    assert digest(foreign) == before


def test_a_database_of_an_older_release_is_not_migrated_by_who_reads_it(cli, stored, folder):
    stored()
    path = folder / "studies" / "autotune.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE autotune_schema SET version = 0")
    connection.close()
    before = digest(path)
    code, _, err = cli("studies", "list")
    assert code == 5
    assert "is of version 0" in err and "autotune studies upgrade" in err
    assert digest(path) == before


@pytest.mark.parametrize("words", READERS, ids=" ".join)
def test_a_server_that_a_study_file_names_is_not_asked_before_the_user_agrees(cli, server, words):
    code, _, err = cli(*words)
    assert code == 2
    assert "study.toml" in err and "autotune trust" in err
    assert not was_asked(server)


def test_a_completion_asks_no_server(server):
    assert offered("autotune", "best", "") == []
    assert not was_asked(server)


def test_a_server_is_asked_for_no_completion_even_where_the_user_names_it(folder, server):
    port = server.getsockname()[1]
    assert offered("autotune", "best", "--storage", f"mysql://x@127.0.0.1:{port}/x", "") == []
    assert not was_asked(server)


def test_a_driver_option_that_reads_the_users_files_is_refused_by_name(cli, folder):
    (folder / "mine.cnf").write_text("[client]\n")
    for option in ("local_infile=1", "read_default_file=mine.cnf", "init_command=SELECT+1", "plugin=evil"):
        code, _, err = cli("studies", "list", "--storage", f"mysql+pymysql://x@127.0.0.1:1/x?{option}")
        assert code == 5
        assert f"the option {option.partition('=')[0]!r}, which is not allowed" in err


def test_a_database_is_made_for_this_user_alone(stored, folder):
    stored()
    assert stat.S_IMODE((folder / "studies" / "autotune.db").stat().st_mode) == 0o600


def test_an_upgrade_says_how_many_studies_there_are(cli, stored):
    stored("a")
    stored("b")
    assert cli("studies", "upgrade") == (0, "Up to date: 2 studies.\n", "")
