"""Whatever happens to the tuner: a sentence, an exit code, nothing left running, no finished trial lost."""

from __future__ import annotations

import json
import os
import pty
import shutil
import signal
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.contract.private_servers import PostgresqlCluster, postgresql

from .pretend import Project

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("heard")]

SENTENCES = {
    "corrupt": "is not an SQLite database, or it is damaged",
    "newer": "is of version 99; this release reads up to version 2",
    "read-only": "is read-only",
    "locked": "is locked by another process",
}


def ended(process: subprocess.Popen[str]) -> str:
    """How it ended, for the table; its talk has no traceback."""
    _, talk = process.communicate(timeout=120)
    assert "Traceback" not in (talk or ""), talk
    return f"exit code {process.returncode}"


def finish(project: Project, study: str = "train", num_trials: int = 3) -> None:
    """A resume brings the study to its end, with as many trials as were asked for, no two of them alike."""
    code, output, talk = project.run("resume", study, "--json")
    assert code == 0, talk
    assert json.loads(output)["trials"]["total"] == num_trials
    settings = [settings for settings, _, _ in project.trials(study).values()]
    assert len(settings) == len(set(settings)) == num_trials
    assert project.workspaces() == []


@pytest.mark.parametrize(
    ("name", "signals", "num_kept"),
    [
        ("SIGTERM", [signal.SIGTERM], 2),
        ("SIGINT once", [signal.SIGINT], 2),
        ("SIGINT twice", [signal.SIGINT, signal.SIGINT], 1),
        ("SIGKILL", [signal.SIGKILL], 1),
    ],
)
def test_a_signal_costs_no_finished_trial(project: Project, name: str, signals: list[int], num_kept: int) -> None:
    search = project.start(*project.search("train"), variables={"PRETEND_S": "3"})
    finished = project.wait_for_trials(1, search)
    _wait_for_run(project, num_begun=2)
    for number in signals:
        search.send_signal(number)
        time.sleep(0.2)
    outcome = ended(search)
    assert search.returncode == (-signal.SIGKILL if name == "SIGKILL" else 130)
    assert len(project.trials("train")) == num_kept
    project.check(name, outcome, finished)
    finish(project)


def test_a_terminal_that_goes_away_ends_the_search_in_good_order(project: Project) -> None:
    terminal, end = pty.openpty()

    def take_terminal() -> None:
        import fcntl
        import termios

        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    search = project.start(
        *project.search("train"),
        variables={"PRETEND_S": "1"},
        stdin=end,
        stdout=end,
        stderr=end,
        start_new_session=True,
        preexec_fn=take_terminal,
    )
    os.close(end)
    finished = project.wait_for_trials(1, search)
    os.close(terminal)
    search.wait(60)
    assert search.returncode == 130
    project.check("terminal gone", f"exit code {search.returncode}", finished)
    assert project.run("studies", "--json")[1].count('"interrupted"') == 1
    finish(project)


def test_a_search_killed_in_its_probe_leaves_nothing_after_the_next_start(project: Project) -> None:
    search = project.start(*project.search("train"))
    deadline = time.monotonic() + 60
    while not (project.runs() or project.workspaces()) and time.monotonic() < deadline:
        time.sleep(0.01)
    search.kill()
    search.wait()
    search.communicate()
    assert project.processes_left() == []
    code, _, talk = project.run("search", "train.py", "--dry-run", "--probe")
    assert code == 0, talk
    assert project.workspaces() == []
    project.check("SIGKILL in the probe, never resumed", "exit code -9", {})


@pytest.mark.parametrize("fault", ["corrupt", "newer", "read-only"])
def test_a_database_that_cannot_be_used_is_said_to_be_so_and_left_alone(project: Project, fault: str) -> None:
    assert project.run(*project.search("train"))[0] == 0
    finished = project.trials("train")
    kept = project.database.read_bytes()
    options = {}
    if fault == "corrupt":
        project.database.write_bytes(b"garbage " * 4000)
    elif fault == "newer":
        with closing(sqlite3.connect(project.database)) as connection, connection:
            connection.execute("UPDATE autotune_schema SET version = 99")
        connection.close()
    else:
        options = {"variables": {"AUTOTUNE_STORAGE": f"sqlite:///file:{project.database}?mode=ro&uri=true"}}
    before = project.database.read_bytes()
    for words in (project.search("more"), ("resume", "train"), ("best", "train")):
        code, output, talk = project.run(*words, **options)
        if fault == "read-only" and words[0] != "search":
            assert code == 0, talk  # a finished study is read
            continue
        assert (code, output) == (5, ""), talk
        assert SENTENCES[fault] in talk and "Traceback" not in talk
    assert project.database.read_bytes() == before
    project.database.write_bytes(kept)
    project.check(f"database {fault}", "exit code 5", finished)


def test_a_database_that_is_locked_for_a_while_is_waited_for(project: Project) -> None:
    search = project.start(*project.search("train"))
    finished = project.wait_for_trials(1, search)
    holder = sqlite3.connect(project.database, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    time.sleep(5)
    holder.execute("ROLLBACK")
    holder.close()
    outcome = ended(search)
    assert search.returncode == 0
    project.check("database locked for 5 s", outcome, finished)


def test_a_full_disk_under_the_database_loses_only_what_did_not_fit(project: Project) -> None:
    """A small file system of its own, in a namespace that ends with the search; its content is saved beforehand."""
    if subprocess.run(["unshare", "-Urm", "true"], capture_output=True, check=False).returncode:
        pytest.skip("this system permits no mounts")
    place = project.database.parent
    mount, save = f"mount -t tmpfs -o size=240k tmpfs {place}", f"cp {place}/study.db {project.root}/saved.db"
    script = f'{mount} && "$@"; code=$?; {save}; exit $code'
    words = ["unshare", "-Urm", "sh", "-c", script, "sh"]
    search = project.start(*project.search("train", num_trials=12), prefix=words)
    outcome = ended(search)
    assert search.returncode == 5
    shutil.copy(project.root / "saved.db", project.database)
    finished = project.trials("train")
    assert 0 < len(finished) < 12
    project.check("disk full under the database", outcome, finished)
    finish(project, num_trials=12)


def test_a_clock_that_is_set_back_changes_nothing(project: Project) -> None:
    search = project.start(*project.search("train"), prelude=SET_BACK)
    outcome = ended(search)
    assert search.returncode == 0
    finished = project.trials("train")
    assert len(finished) == 3
    project.check("clock set back an hour at every look", outcome, finished)


SET_BACK = """
import datetime, time
looks = []
class Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        looks.append(1)
        return cls.fromtimestamp(before() - 3600 * len(looks), tz)
before, time.time = time.time, lambda: before() - 3600 * len(looks)
datetime.datetime = Clock
"""


@pytest.fixture
def cluster() -> Iterator[PostgresqlCluster]:
    yield from postgresql()


def test_a_server_that_is_gone_for_half_a_minute_is_waited_for(project: Project, cluster: PostgresqlCluster) -> None:
    project.url = cluster.new_url()
    search = project.start(*project.search("train"), variables={"PRETEND_S": "1"})
    finished = project.wait_for_trials(1, search)
    cluster.stop()
    time.sleep(30)
    cluster.start()
    _, talk = search.communicate(timeout=120)
    assert search.returncode == 0, talk
    assert len(project.trials("train")) == 3
    project.check("PostgreSQL gone for 30 s", "exit code 0", finished)


def _wait_for_run(project: Project, num_begun: int) -> None:
    """Until so many trials have begun."""
    deadline = time.monotonic() + 60
    while sum(what == "begins" and mode == "trial" for what, mode, *_ in project.runs()) < num_begun:
        assert time.monotonic() < deadline
        time.sleep(0.02)
