"""What every database behind a Repository must do; one subclass per database gives the `url` of an empty one."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import optuna
import pytest
from sqlalchemy import Column, Connection, Integer, MetaData, Table, inspect, select, text, update

from autotune.errors import SchemaVersionError, StoreError, StudyExistsError, StudyNotFoundError, UsageError
from autotune.model.outcome import Outcome
from autotune.store import tables
from autotune.store.engine import open_engine, reading, transaction
from autotune.store.records import Owner, TrialOverview
from autotune.store.repository import Repository

from . import store_samples as samples
from .lease_contract import LeaseContract
from .store_samples import NOW


def dump(url: str) -> str:
    """All that our tables hold, as text."""
    engine = open_engine(url)
    try:
        with reading(engine) as connection:
            return "\n".join(
                repr(tuple(row)) for table in tables.metadata.sorted_tables for row in connection.execute(select(table))
            )
    finally:
        engine.dispose()


class RepositoryContract(LeaseContract):
    """Behaviour that does not depend on the database."""

    can_undo_table_changes = True
    """MySQL commits each at once."""

    # Studies

    def test_a_study_comes_back_as_it_was_stored(self, repository: Repository) -> None:
        record = samples.study("photos")
        repository.create_study(record)
        assert repository.study("photos") == replace(record, spec=replace(record.spec, storage=repository.url))

    def test_a_moment_of_another_time_zone_is_the_same_moment(self, repository: Repository) -> None:
        local = NOW.astimezone(timezone(timedelta(hours=-5)))
        repository.create_study(samples.study("photos", created_at=local))
        created_at = repository.study("photos").created_at
        assert created_at == NOW
        assert created_at.utcoffset() == timedelta(0)

    @pytest.mark.parametrize(
        "name", ['it\'s "1"; DROP TABLE autotune_studies', "Gr\u00f6\u00dfe \N{SNOWMAN}", "%s {x}"]
    )
    def test_any_printable_name_is_a_name(self, repository: Repository, name: str) -> None:
        repository.create_study(samples.study(name))
        repository.record_trial(name, samples.trial(0))
        assert [study.name for study in repository.studies()] == [name]
        assert repository.trials(name) == (samples.trial(0),)

    @pytest.mark.parametrize("name", [" a", "-rf", "a\nb", "a\x00", "\udcff", "x" * 513])
    def test_a_name_that_cannot_be_stored_is_refused(self, repository: Repository, name: str) -> None:
        with pytest.raises(UsageError, match="cannot be the name"):
            repository.create_study(samples.study(name))
        assert repository.studies() == ()

    def test_a_second_study_of_one_name_is_refused_and_the_first_is_kept(self, repository: Repository) -> None:
        repository.create_study(samples.study("photos"))
        with pytest.raises(StudyExistsError, match="already holds a study 'photos'"):
            repository.create_study(samples.study("photos", created_at=NOW + timedelta(days=1)))
        assert repository.study("photos").created_at == NOW

    def test_the_study_of_another_program_in_the_same_database_is_not_taken(self, repository: Repository) -> None:
        optuna.create_study(storage=repository.optuna_storage, study_name="photos")
        with pytest.raises(StudyExistsError, match="another program"):
            repository.create_study(samples.study("photos"))

    def test_an_unknown_study_is_named_with_the_names_close_to_it(self, repository: Repository) -> None:
        repository.create_study(samples.study("photos"))
        with pytest.raises(StudyNotFoundError, match="holds one other, 'photos'"):
            repository.trials("zzzz")
        repository.create_study(samples.study("words"))
        with pytest.raises(StudyNotFoundError, match=r"no study 'fotos'\. Did you mean 'photos'\?"):
            repository.study("fotos")
        with pytest.raises(StudyNotFoundError, match="holds 2 others"):
            repository.trials("zzzz")
        with pytest.raises(StudyNotFoundError):
            repository.record_trial("fotos", samples.trial(0))

    def test_studies_are_listed_newest_first(self, repository: Repository) -> None:
        for name, age_days in (("old", 2), ("newest", 0), ("middle", 1)):
            repository.create_study(samples.study(name, created_at=NOW - timedelta(days=age_days)))
        assert [study.name for study in repository.studies()] == ["newest", "middle", "old"]

    def test_deleting_takes_everything_of_one_study_and_nothing_of_another(
        self, repository: Repository, url: str
    ) -> None:
        for name in ("photos", "words"):
            repository.create_study(samples.study(name))
            repository.record_trial(name, samples.trial(0))
            repository.record_final(name, samples.final(0, 0))
            repository.acquire_lease(name, Owner.this_process(), now=NOW)
            study = optuna.create_study(storage=repository.optuna_storage, study_name=name)
            study.tell(study.ask(), 1.0)
        repository.delete_study("photos")
        assert [study.name for study in repository.studies()] == ["words"]
        assert optuna.get_all_study_names(repository.optuna_storage) == ["words"]
        assert repository.trials("words") == (samples.trial(0),)
        repository.create_study(samples.study("photos"))
        assert repository.trials("photos") == ()
        assert repository.finals("photos") == ()
        assert repository.live_owners("photos", now=NOW) == ()

    def test_a_study_without_a_part_in_optuna_can_be_deleted(self, repository: Repository) -> None:
        repository.create_study(samples.study("photos"))
        repository.delete_study("photos")
        assert repository.studies() == ()

    def test_a_study_that_is_being_searched_elsewhere_is_not_deleted(self, repository: Repository) -> None:
        repository.create_study(samples.study("photos"))
        repository.acquire_lease("photos", samples.elsewhere(), now=datetime.now(UTC))
        with pytest.raises(StudyExistsError, match="process 4711 on gpu-7"):
            repository.delete_study("photos")
        assert repository.study("photos").name == "photos"

    def test_what_the_probe_learned_comes_back(self, repository: Repository) -> None:
        repository.create_study(samples.study("photos"))
        folder = "/tmp/layer \udcff"  # a path need not be valid text
        repository.save_probe(
            "photos",
            facts=samples.facts(),
            script_settings=samples.settings(3),
            refused=(("compile", "No compiler was found."),),
            memory_cap_bytes=160 * 1024**3,
            layer_folder=folder,
        )
        study = repository.study("photos")
        assert study.facts == samples.facts()
        assert study.script_settings == samples.settings(3)
        assert study.refused == (("compile", "No compiler was found."),)
        assert study.memory_cap_bytes == 160 * 1024**3
        assert study.layer_folder == folder

    def test_time_spent_is_added_up(self, repository: Repository) -> None:
        repository.create_study(samples.study("photos"))
        repository.add_spent("photos", 12.5)
        repository.add_spent("photos", 0.25)
        assert repository.study("photos").spent_s == 12.75

    def test_status_and_result_are_replaced_together(self, repository: Repository) -> None:
        repository.create_study(samples.study("photos"))
        repository.set_status("photos", "improved", {"schema": 1, "speedup": {"ratio": 2.41}, "best": None})
        study = repository.study("photos")
        assert (study.status, study.result) == ("improved", {"schema": 1, "speedup": {"ratio": 2.41}, "best": None})
        repository.set_status("photos", "running", None)
        assert repository.study("photos").result is None

    def test_a_reopened_study_has_its_new_limits_its_result_and_still_no_secret(self, repository: Repository) -> None:
        record = samples.study("photos")
        repository.create_study(record)
        repository.set_status("photos", "too_short", {"schema": 1})
        spec = replace(record.spec, budget_s=1234.0, command=(*record.spec.command, "--api-key", "hunter-22"))
        repository.reopen("photos", spec)
        study = repository.study("photos")
        assert (study.status, study.result, study.spec.budget_s) == ("running", {"schema": 1}, 1234.0)
        assert "hunter-22" not in dump(repository.url)

    # Trials and finals

    def test_trials_come_back_exactly_in_the_order_of_their_numbers(self, repository: Repository) -> None:
        repository.create_study(samples.study("photos"))
        records = [samples.trial(2), samples.trial(0), samples.trial(1, result=samples.failed_result())]
        for record in records:
            repository.record_trial("photos", record)
        assert repository.trials("photos") == tuple(sorted(records, key=lambda record: record.number))

    def test_a_trial_with_thousands_of_blocks_is_kept_whole(self, repository: Repository) -> None:
        repository.create_study(samples.study("photos"))
        record = samples.trial(0, result=samples.ok_result(num_blocks=5000))
        repository.record_trial("photos", record)
        assert repository.trials("photos") == (record,)

    def test_endings_are_those_of_the_trials_with_the_reports_of_no_process(self, repository: Repository) -> None:
        repository.create_study(samples.study("photos"))
        crash = replace(samples.failed_result("no such kernel"), outcome=Outcome.CRASHED)
        for number, result in enumerate([samples.ok_result(), samples.failed_result(), crash]):
            repository.record_trial("photos", samples.trial(number, result=result))
        *others, failed = [trial.ending for trial in repository.trials("photos")]
        assert failed.failure is not None and [ending.failure for ending in others] == [None, None]
        without_ranks = replace(failed, failure=replace(failed.failure, ranks=()))
        assert repository.endings("photos") == (*others, without_ranks)

    def test_a_trial_that_ran_again_replaces_its_interrupted_run(self, repository: Repository) -> None:
        repository.create_study(samples.study("photos"))
        repository.record_trial("photos", samples.trial(0, result=samples.failed_result()))
        repository.record_trial("photos", samples.trial(0, attempt=2))
        assert repository.trials("photos") == (samples.trial(0, attempt=2),)

    def test_a_trial_is_told_once_it_is_marked(self, repository: Repository) -> None:
        repository.create_study(samples.study("photos"))
        for number in range(3):
            repository.record_trial("photos", samples.trial(number))
        repository.mark_told("photos", 1)
        repository.mark_told("photos", 1)
        assert [trial.optuna_told for trial in repository.trials("photos")] == [False, True, False]
        with pytest.raises(StoreError, match="no trial 7"):
            repository.mark_told("photos", 7)

    def test_finals_come_back_round_by_round_as_they_ended(self, repository: Repository) -> None:
        repository.create_study(samples.study("photos"))
        expected = [
            samples.final(0, 5, finished_at=NOW),
            samples.final(0, 2, finished_at=NOW + timedelta(seconds=9)),
            samples.final(1, 2, finished_at=NOW + timedelta(seconds=20)),
        ]
        for record in (expected[2], expected[1], expected[0], expected[1]):
            repository.record_final("photos", record)
        assert repository.finals("photos") == tuple(expected)

    def test_what_another_connection_stored_is_seen(self, repository: Repository, url: str) -> None:
        repository.create_study(samples.study("photos"))
        assert repository.trials("photos") == ()
        with Repository.open(url) as other:
            other.record_trial("photos", samples.trial(0))
        assert repository.trials("photos") == (samples.trial(0),)

    # Secrets

    def test_no_secret_reaches_the_database(self, repository: Repository, url: str) -> None:
        record = samples.study("photos")
        command = ("python", "train.py", "--token", "in-command-1")
        storage = "postgresql://ada:in-storage-2@db/tuning"
        repository.create_study(replace(record, spec=replace(record.spec, command=command, storage=storage)))
        result = replace(
            samples.ok_result(log_tail="login with hf_inLogTail3inLogTail3 at https://ada:in-log-4@host/x"),
            notes=("Bearer in-notes-5-in-notes",),
        )
        environment = {"OMP_NUM_THREADS": "2", "HF_TOKEN": "in-environment-6", "TORCH_HUB_TOKEN": "in-environment-7"}
        trial = replace(samples.trial(0, result=result), environment=environment)
        repository.record_trial("photos", trial)
        repository.record_final("photos", samples.final(0, 0, result=result))
        repository.set_status("photos", "improved", {"config": "s3://key:in-result-8@bucket"})
        stored = dump(url)
        assert repository.study("photos").spec.command == (*command[:-1], "***")
        for secret in (
            "in-command-1",
            "in-storage-2",
            "inLogTail3",
            "in-log-4",
            "in-notes-5",
            "in-environment",
            "in-result-8",
        ):
            assert secret not in stored, secret
        assert repository.trials("photos")[0].environment == {"OMP_NUM_THREADS": "2"}

    # Optuna beside us

    def test_optuna_asks_and_tells_in_the_same_database_and_goes_on_after_a_reopening(self, url: str) -> None:
        with Repository.open(url) as repository:
            repository.create_study(samples.study("photos"))
            study = optuna.create_study(storage=repository.optuna_storage, study_name="photos", direction="maximize")
            asked = study.ask()
            asked.suggest_int("split", 0, 5)
            asked.set_constraint("memory", -0.25)
            study.tell(asked, 1000.0)
            assert repository.optuna_storage is repository.optuna_storage
        with Repository.open(url) as repository:
            study = optuna.load_study(storage=repository.optuna_storage, study_name="photos")
            assert [trial.value for trial in study.trials] == [1000.0]
            assert repository.study("photos").name == "photos"

    def test_a_heartbeat_beside_the_search_disturbs_neither(self, repository: Repository) -> None:
        repository.create_study(samples.study("photos"))
        owner = Owner.this_process()
        repository.acquire_lease("photos", owner, now=datetime.now(UTC))
        study = optuna.create_study(storage=repository.optuna_storage, study_name="photos")
        is_over = threading.Event()
        errors: list[Exception] = []

        def beat() -> None:
            while not is_over.wait(0.02):
                try:
                    repository.renew_lease("photos", owner, now=datetime.now(UTC))
                except Exception as error:
                    errors.append(error)

        heart = threading.Thread(target=beat)
        heart.start()
        try:
            for number in range(10):
                asked = study.ask()
                asked.suggest_int("split", 0, 5)
                repository.record_trial("photos", samples.trial(number))
                study.tell(asked, 1.0)
                repository.mark_told("photos", number)
        finally:
            is_over.set()
            heart.join()
        assert errors == []
        assert [trial.optuna_told for trial in repository.trials("photos")] == [True] * 10

    # The schema

    def test_a_database_of_a_newer_release_is_refused_and_left_as_it_is(self, repository: Repository, url: str) -> None:
        repository.create_study(samples.study("photos"))
        engine = open_engine(url)
        with transaction(engine) as connection:
            connection.execute(update(tables.schema_version).values(version=99))
        engine.dispose()
        before = dump(url)
        with pytest.raises(SchemaVersionError, match="version 99") as caught:
            Repository.open(url)
        assert "Install the newest release" in caught.value.hint
        assert dump(url) == before

    def test_migrations_run_in_order_and_one_that_fails_is_undone(self, repository: Repository, url: str) -> None:
        repository.create_study(samples.study("photos"))
        extra = Table("autotune_test_extra", MetaData(), Column("n", Integer))
        ran: list[int] = []

        def second(connection: Connection) -> None:
            extra.create(connection)
            ran.append(2)

        def third(connection: Connection) -> None:
            connection.execute(extra.insert().values(n=3))
            ran.append(3)

        def broken(connection: Connection) -> None:
            connection.execute(extra.delete())
            if self.can_undo_table_changes:
                extra.drop(connection)
            raise RuntimeError("no")

        engine = open_engine(url)
        try:
            with pytest.raises(RuntimeError):
                tables.migrate(engine, (*tables.MIGRATIONS, second, third, broken))
            assert ran == [2, 3]
            with reading(engine) as connection:
                assert connection.execute(select(tables.schema_version.c.version)).scalars().all() == [
                    len(tables.MIGRATIONS) + 3
                ]
                assert connection.execute(select(extra)).scalars().all() == [3]
            tables.migrate(engine, (*tables.MIGRATIONS, second, third))
            assert ran == [2, 3]
        finally:
            engine.dispose()

    def test_the_rates_of_a_database_of_version_1_are_learned(self, repository: Repository, url: str) -> None:
        repository.create_study(samples.study("photos"))
        for number in range(3):
            repository.record_trial("photos", samples.trial(number))
        repository.record_trial("photos", samples.trial(3, result=samples.failed_result()))
        engine = open_engine(url)
        with transaction(engine) as connection:
            (index,) = tables.trials.indexes
            index.drop(connection)
            connection.execute(text("ALTER TABLE autotune_trials DROP COLUMN samples_per_second"))
            connection.execute(update(tables.schema_version).values(version=1))
        engine.dispose()
        with pytest.raises(SchemaVersionError, match="is of version 1"):
            Repository.read(url)
        with Repository.open(url) as reopened:
            seen = reopened.overview("photos", None)
        assert seen.best is not None and seen.best.number == 2
        assert dict(seen.outcomes) == {Outcome.OK: 3, Outcome.OUT_OF_MEMORY: 1}

    def test_an_overview_has_the_fastest_trial_and_the_latest_of_the_scripts_own_settings(
        self, repository: Repository, url: str
    ) -> None:
        repository.create_study(samples.study("photos"))
        assert repository.overview("photos", samples.settings(0)) == TrialOverview(
            outcomes={}, baseline=None, best=None
        )
        for number in (0, 1, 2, 30, 31):
            repository.record_trial("photos", samples.trial(number))
        slow = replace(samples.ok_result(99), outcome=Outcome.INVALID)
        repository.record_trial("photos", samples.trial(4, result=slow))
        with Repository.read(url) as reader:
            seen = reader.overview("photos", samples.settings(0))
        assert dict(seen.outcomes) == {Outcome.OK: 5, Outcome.INVALID: 1}
        assert seen.best is not None and seen.best.number == 31
        assert seen.baseline is not None and seen.baseline.number == 30

    def test_who_only_reads_can_write_nothing(self, repository: Repository, url: str) -> None:
        repository.create_study(samples.study("photos"))
        before = dump(url)
        with Repository.read(url) as reader:
            assert reader.names() == ["photos"]
            with pytest.raises(StoreError):
                reader.set_status("photos", "improved")
            with pytest.raises(StoreError):
                reader.delete_study("photos")
        assert dump(url) == before

    def test_a_study_and_a_trial_that_cannot_be_read_are_left_out_by_name_and_can_be_deleted(
        self, repository: Repository, url: str
    ) -> None:
        deep = "[" * 100_000
        for name in ("photos", "deep", "words"):
            repository.create_study(samples.study(name))
            repository.record_trial(name, samples.trial(0))
            repository.record_trial(name, samples.trial(1))
        engine = open_engine(url)
        with transaction(engine) as connection:
            for name, column, value in (("deep", "spec", deep), ("words", "fingerprint", '"x"')):
                changed = update(tables.studies).where(tables.studies.c.name == name)
                connection.execute(changed.values({column: value}))
            connection.execute(update(tables.trials).where(tables.trials.c.number == 1).values(result=deep))
        engine.dispose()
        left_out: list[str] = []
        with Repository.read(url) as reader:
            found = reader.studies(lambda name, error: left_out.append(name))
            assert [study.name for study in found] == ["photos"]
            trials = reader.trials("photos", on_unreadable=lambda name, error: left_out.append(name))
            assert [trial.number for trial in trials] == [0]
            with pytest.raises(StoreError, match="trial 1 cannot be read"):
                reader.trials("photos")
        assert sorted(left_out) == ["1", "deep", "words"]
        for name in ("deep", "words", "photos"):
            repository.delete_study(name)
        assert repository.names() == []

    def test_opening_makes_only_tables_with_our_prefix(self, url: str) -> None:
        Repository.open(url).close()
        engine = open_engine(url)
        with reading(engine) as connection:
            names = inspect(connection).get_table_names()
        engine.dispose()
        assert sorted(names) == [
            "autotune_finals",
            "autotune_leases",
            "autotune_schema",
            "autotune_studies",
            "autotune_trials",
        ]
