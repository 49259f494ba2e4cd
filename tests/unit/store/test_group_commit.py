"""Changes of several threads share a commit, and a failed change spares the others."""

from __future__ import annotations

import threading
import time

import pytest
from sqlalchemy import event, insert, select

from autotune.errors import StoreError, StudyNotFoundError
from autotune.store.database import Database
from autotune.store.group_commit import GroupCommit
from autotune.store.job_tables import make_missing, queue
from autotune.store.retry import Patience


@pytest.fixture
def database(tmp_path):
    opened = Database.open(f"sqlite:///{tmp_path / 'queue.db'}", must_exist=False, patience=Patience())
    opened.make_tables(make_missing)
    yield opened
    opened.close()


@pytest.fixture
def commits(database):
    found = []
    event.listen(database._engine, "commit", lambda connection: found.append(1))
    return found


def row(version):
    return lambda connection: connection.execute(insert(queue).values(version=version, changes=0)).rowcount


def refused(connection):
    row(50)(connection)
    raise StudyNotFoundError("There is no such thing.", "Look elsewhere.")


def versions(database):
    return sorted(database.read(lambda connection: connection.execute(select(queue.c.version)).scalars().all()))


def all_at_once(group, operations):
    """Result or error of each operation, by threads that wait for one another."""
    found = [None] * len(operations)

    def run(index):
        try:
            found[index] = group.run(operations[index])
        except Exception as error:
            found[index] = error

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(operations))]
    with group._turn:
        for thread in threads:
            thread.start()
        while len(group._waiting) < len(operations):
            time.sleep(0.001)
    for thread in threads:
        thread.join()
    return found


def test_waiting_changes_share_a_commit_and_each_gets_its_own_result(database, commits):
    found = all_at_once(GroupCommit(database), [row(number) for number in range(10, 20)])
    assert found == [1] * 10 and len(commits) == 1
    assert versions(database) == [1, *range(10, 20)]


def test_a_refused_change_is_undone_alone(database, commits):
    found = all_at_once(GroupCommit(database), [row(10), refused, row(11)])
    assert isinstance(found[1], StudyNotFoundError) and (found[0], found[2], len(commits)) == (1, 1, 1)
    assert versions(database) == [1, 10, 11]


def test_a_change_that_the_database_refuses_fails_alone(database):
    found = all_at_once(GroupCommit(database), [row(10), row(1), row(11)])
    assert isinstance(found[1], StoreError) and (found[0], found[2]) == (1, 1)
    assert versions(database) == [1, 10, 11]


def test_a_database_out_of_reach_is_told_to_every_thread(database, monkeypatch):
    def fail(operation):
        raise StoreError("The database cannot be reached.", "Start it.") from OSError()

    monkeypatch.setattr(database, "change", fail)
    found = all_at_once(GroupCommit(database), [row(10), row(11)])
    assert [str(error)[:31] for error in found] == ["The database cannot be reached."] * 2
