"""The repository on each database that can be had here, and the faults that only one of them has."""

from __future__ import annotations

import os
import shutil
import socket
import sqlite3
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import optuna
import pytest
from sqlalchemy import event

from autotune.errors import StoreError
from autotune.model.outcome import Outcome
from autotune.model.search_result import SearchResult
from autotune.store import engine as engine_module
from autotune.store.repository import Repository
from autotune.store.retry import Patience
from autotune.store.url import resolve_url

from . import store_samples as samples
from .private_servers import PostgresqlCluster, postgresql
from .repository_contract import RepositoryContract
from .store_processes import Child

SCHEMAS = Path(__file__).parents[1] / "data" / "schemas"
NO_PATIENCE = Patience(retry_for_s=0)
NOBODY = 65534
"""The user that has no rights of its own, on every Linux."""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "studies" / "a {b}.db"


class TestSqlite(RepositoryContract):
    @pytest.fixture
    def url(self, file: Path) -> str:
        return resolve_url(str(file), file.parent)

    @pytest.fixture
    def filled(self, url: str, file: Path) -> str:
        """A database with one study and two trials, closed."""
        with Repository.open(url) as repository:
            repository.create_study(samples.study("photos"))
            repository.record_trial("photos", samples.trial(0))
            repository.record_trial("photos", samples.trial(1))
        return url

    @pytest.fixture
    def short_wait(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(engine_module, "BUSY_TIMEOUT_S", 0.01)

    def test_a_kill_leaves_a_file_that_passes_sqlites_own_check(
        self, repository: Repository, file: Path, children: list[Child]
    ) -> None:
        repository.create_study(samples.study("photos"))
        children.append(Child("hang_in_commit", repository.url, "photos"))
        children[0].read()
        children[0].kill()
        repository.record_trial("photos", samples.trial(2))
        connection = sqlite3.connect(file)
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
        assert connection.execute("PRAGMA journal_mode").fetchall() == [("delete",)]  # not forced to WAL
        connection.close()

    def test_a_missing_file_is_made_only_where_that_is_wanted(self, url: str, file: Path) -> None:
        with pytest.raises(StoreError, match="There is no database"):
            Repository.open(url, must_exist=True)
        assert not file.exists()
        assert not file.parent.exists()
        Repository.open(url).close()
        assert file.exists()
        Repository.open(url, must_exist=True).close()

    @pytest.mark.parametrize(
        "name", ["100% c%20.db", "#1+2&a=b@c:d;e.db", "Gr\u00f6\u00dfe {SCHEMA_VERSION}.db", "'\"$.db"]
    )
    def test_the_file_has_the_very_name_that_was_given(self, tmp_path: Path, name: str) -> None:
        with Repository.open(resolve_url(name, tmp_path)) as repository:
            repository.create_study(samples.study("photos"))
            assert repository.optuna_storage.get_all_studies() == []
        assert [path.name for path in tmp_path.iterdir()] == [name]

    def test_a_file_that_is_no_database_is_named_and_left_alone(self, url: str, file: Path) -> None:
        file.parent.mkdir()
        file.write_bytes(b"epoch,loss\n1,0.5\n" * 100)
        with pytest.raises(StoreError, match="is not an SQLite database, or it is damaged") as caught:
            Repository.open(url)
        assert str(file) in caught.value.message
        assert file.read_bytes() == b"epoch,loss\n1,0.5\n" * 100

    def test_a_damaged_file_is_said_to_be_damaged(self, filled: str, file: Path) -> None:
        size = file.stat().st_size
        with file.open("r+b") as stream:  # the header is whole, the rest is garbage
            stream.seek(100)
            stream.write(b"\xa5" * (size - 100))
        with pytest.raises(StoreError, match="is damaged") as caught, Repository.open(filled) as repository:
            repository.trials("photos")
        assert ".recover" in caught.value.hint

    def test_a_stored_trial_that_was_edited_is_named(self, filled: str, file: Path) -> None:
        connection = sqlite3.connect(file)
        connection.execute('UPDATE autotune_trials SET result = \'{"outcome": "sideways"}\' WHERE number = 1')
        connection.commit()
        connection.close()
        with Repository.open(filled) as repository, pytest.raises(StoreError, match="stored trial 1 cannot be read"):
            repository.trials("photos")

    def test_a_read_only_database_can_be_read_and_says_why_it_cannot_be_written(self, filled: str, file: Path) -> None:
        read_only = resolve_url(f"sqlite:///file:{file}?mode=ro&uri=true", file.parent)
        with Repository.open(read_only, patience=NO_PATIENCE) as repository:
            assert len(repository.trials("photos")) == 2
            assert repository.studies()[0].name == "photos"
            with pytest.raises(StoreError, match="read-only"):
                repository.record_trial("photos", samples.trial(2))

    def test_a_file_without_the_right_to_write_says_so(self, filled: str, file: Path) -> None:
        file.chmod(0o444)
        with (
            as_nobody(file) as path,
            Repository.open(resolve_url(str(path), path.parent)) as repository,
            pytest.raises(StoreError, match="read-only"),
        ):
            repository.record_trial("photos", samples.trial(2))

    def test_a_folder_in_which_no_file_can_be_made_is_said_to_be_so(self, tmp_path: Path) -> None:
        # sysfs has folders in which not even root can make a file.
        with pytest.raises(StoreError, match="cannot be opened"):
            Repository.open(resolve_url("/sys/kernel/x.db", tmp_path))

    def test_a_full_disk_loses_only_the_trial_that_did_not_fit(self, filled: str) -> None:
        with Repository.open(filled, patience=NO_PATIENCE) as repository:
            # SQLite gives the same error for a full disk and for its own limit of pages.
            engine = repository._database._engine
            event.listen(engine, "connect", lambda connection, _: connection.execute("PRAGMA max_page_count = 1"))
            engine.dispose()
            with pytest.raises(StoreError, match="the disk is full"):
                repository.record_trial("photos", samples.trial(2, result=samples.ok_result(num_blocks=5000)))
            assert repository.trials("photos") == (samples.trial(0), samples.trial(1))

    def test_a_full_disk_is_a_sentence_when_it_is_optuna_that_writes(self, filled: str) -> None:
        with Repository.open(filled, patience=NO_PATIENCE) as repository:
            study = optuna.create_study(storage=repository.optuna_storage, study_name="photos")
            engine = repository.optuna_storage.engine
            event.listen(engine, "connect", lambda connection, _: connection.execute("PRAGMA max_page_count = 1"))
            engine.dispose()
            with pytest.raises(StoreError, match="the disk is full"):
                for _ in range(1000):
                    study.ask()
            assert repository.trials("photos") == (samples.trial(0), samples.trial(1))

    def test_what_optuna_says_of_wrong_use_is_still_optunas(self, filled: str) -> None:
        with Repository.open(filled) as repository:
            study = optuna.create_study(storage=repository.optuna_storage, study_name="photos")
            with pytest.raises(optuna.exceptions.DuplicatedStudyError):
                optuna.create_study(storage=repository.optuna_storage, study_name="photos")
            trial = study.ask()
            study.tell(trial, 1.0)
            with pytest.raises(optuna.exceptions.UpdateFinishedTrialError):
                trial.set_user_attr("late", 1)

    @pytest.mark.usefixtures("short_wait")
    def test_a_lock_that_meets_optuna_is_waited_for(self, filled: str, file: Path) -> None:
        holder = sqlite3.connect(file, isolation_level=None)
        pauses = []

        def sleep(seconds: float) -> None:
            pauses.append(seconds)
            holder.execute("ROLLBACK")

        with Repository.open(filled, patience=Patience(clock=lambda: 0.0, sleep=sleep)) as repository:
            trial = optuna.create_study(storage=repository.optuna_storage, study_name="photos").ask()
            holder.execute("BEGIN EXCLUSIVE")
            trial.set_user_attr("stage", "baseline")
            assert len(pauses) == 1
        holder.close()

    @pytest.mark.usefixtures("short_wait")
    def test_a_database_that_stays_locked_is_given_up_after_the_time_for_it(self, filled: str, file: Path) -> None:
        now_s, pauses = [0.0], []

        def sleep(seconds: float) -> None:
            pauses.append(seconds)
            now_s[0] += seconds

        holder = sqlite3.connect(file, isolation_level=None)
        with Repository.open(filled, patience=Patience(clock=lambda: now_s[0], sleep=sleep)) as repository:
            holder.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreError, match="is locked by another process"):
                repository.record_trial("photos", samples.trial(2))
            holder.close()
            assert 85 < sum(pauses) <= 90
            assert max(pauses) == 2.0
            assert len(repository.trials("photos")) == 2

    @pytest.mark.usefixtures("short_wait")
    def test_a_write_goes_on_when_the_lock_is_gone(self, filled: str, file: Path) -> None:
        holder = sqlite3.connect(file, isolation_level=None)
        pauses = []

        def sleep(seconds: float) -> None:
            pauses.append(seconds)
            if len(pauses) == 3:
                holder.execute("ROLLBACK")

        with Repository.open(filled, patience=Patience(clock=lambda: 0.0, sleep=sleep)) as repository:
            holder.execute("BEGIN EXCLUSIVE")
            repository.record_trial("photos", samples.trial(2))
            assert len(pauses) == 3
            assert len(repository.trials("photos")) == 3
        holder.close()

    def test_optuna_tables_of_another_release_are_named(self, filled: str, file: Path) -> None:
        with Repository.open(filled) as repository:
            assert repository.optuna_storage.get_all_studies() == []
        connection = sqlite3.connect(file)
        connection.execute("UPDATE alembic_version SET version_num = 'v99.0.0.a'")
        connection.commit()
        connection.close()
        with Repository.open(filled) as repository, pytest.raises(StoreError, match="another release of Optuna"):
            _ = repository.optuna_storage

    @pytest.mark.parametrize("version", [1, 2])
    def test_a_database_of_an_earlier_release_opens_and_goes_on(self, tmp_path: Path, version: int) -> None:
        """Each was made by `python tests/data/schemas/write_database.py`, run from the root of that release."""
        shutil.copy(SCHEMAS / f"v{version}.db", tmp_path / "old.db")
        with Repository.open(resolve_url("old.db", tmp_path)) as repository:
            study = repository.study("photos")
            assert study.spec.command == ("python", "train.py", "--epochs", "90")
            assert study.status == "improved"
            assert study.result is not None
            assert SearchResult.from_document(study.result) == samples.search_result("photos")
            assert study.script_settings is not None
            assert study.facts is not None
            assert [trial.result.outcome for trial in repository.trials("photos")] == [
                Outcome.OK,
                Outcome.OUT_OF_MEMORY,
                Outcome.OK,
            ]
            best = repository.overview("photos", None).best
            assert best is not None and best.number == 2
            assert [final.round for final in repository.finals("photos")] == [0, 0]
            stored = optuna.load_study(storage=repository.optuna_storage, study_name="photos")
            assert [trial.value for trial in stored.trials] == [1000.0, 0.0, 1002.0]
            repository.record_trial("photos", samples.trial(3))
            assert len(repository.trials("photos")) == 4


@contextmanager
def as_nobody(file: Path) -> Iterator[Path]:
    """A file that everybody may read, where the user of the tests is one whom its rights bind: root is not."""
    if os.geteuid() != 0:
        yield file
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        copy = Path(shutil.copy2(file, folder))
        os.seteuid(NOBODY)
        try:
            yield copy
        finally:
            os.seteuid(0)


@pytest.fixture(scope="module")
def cluster() -> Iterator[PostgresqlCluster]:
    yield from postgresql()


class TestPostgresql(RepositoryContract):
    @pytest.fixture
    def url(self, cluster: PostgresqlCluster) -> str:
        return cluster.new_url()

    def test_a_server_that_restarts_loses_nothing(self, repository: Repository, cluster: PostgresqlCluster) -> None:
        repository.create_study(samples.study("photos"))
        study = optuna.create_study(storage=repository.optuna_storage, study_name="photos")
        asked = study.ask()
        cluster.stop()
        restart = threading.Timer(3.0, cluster.start)
        restart.start()
        began_s = time.monotonic()
        try:
            repository.record_trial("photos", samples.trial(0))
            assert time.monotonic() - began_s > 2.0
            study.tell(asked, 1000.0)
        finally:
            restart.join()
        assert repository.trials("photos") == (samples.trial(0),)
        assert [trial.value for trial in study.trials] == [1000.0]

    def test_optuna_waits_for_the_server_too(self, repository: Repository, cluster: PostgresqlCluster) -> None:
        study = optuna.create_study(storage=repository.optuna_storage, study_name="photos")
        asked = study.ask()
        cluster.stop()
        restart = threading.Timer(2.0, cluster.start)
        restart.start()
        try:
            study.tell(asked, 1000.0)
        finally:
            restart.join()
        assert [trial.value for trial in study.trials] == [1000.0]

    def test_a_server_that_stays_away_ends_in_a_sentence(self, cluster: PostgresqlCluster) -> None:
        with Repository.open(cluster.new_url(), patience=Patience(retry_for_s=0.5)) as repository:
            repository.create_study(samples.study("photos"))
            cluster.stop()
            try:
                with pytest.raises(StoreError, match="cannot be reached"):
                    repository.record_trial("photos", samples.trial(0))
            finally:
                cluster.start()

    def test_a_server_that_does_not_answer_is_given_up(self, cluster: PostgresqlCluster) -> None:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen()
            url = f"postgresql+psycopg://ada:s3cret@127.0.0.1:{listener.getsockname()[1]}/tuning"
            with pytest.raises(StoreError, match="cannot be reached") as caught:
                Repository.open(url)
        assert "ada:***@" in str(caught.value)
        assert "s3cret" not in str(caught.value)

    def test_a_server_that_is_not_there_is_told_at_once(self, cluster: PostgresqlCluster) -> None:
        with pytest.raises(StoreError, match="cannot be reached") as caught:
            Repository.open("postgresql+psycopg://ada:s3cret@127.0.0.1:1/tuning?sslpassword=s3cret")
        assert "s3cret" not in str(caught.value)

    def test_a_database_that_the_server_does_not_have_is_named(self, cluster: PostgresqlCluster) -> None:
        url = cluster.new_url().replace("tuning_", "no_such_")
        with pytest.raises(StoreError, match="does not exist"):
            Repository.open(url)
