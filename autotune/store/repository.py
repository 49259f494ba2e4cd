"""Makes, reads and writes the studies of one database."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Self, TypeVar

from sqlalchemy import (
    ColumnElement,
    Connection,
    RowMapping,
    Table,
    case,
    delete,
    func,
    insert,
    or_,
    select,
    update,
)
from sqlalchemy.exc import IntegrityError

from autotune.errors import StoreError, StudyExistsError, UsageError
from autotune.model.facts import ScriptFacts
from autotune.model.outcome import Outcome
from autotune.model.trial_records import FinalRecord, TrialEnding, TrialRecord
from autotune.settings import Settings
from autotune.spec import SearchSpec
from autotune.store import leases, rows, tables
from autotune.store.database import Database
from autotune.store.records import Owner, StudyRecord, TrialOverview
from autotune.store.retry import Patience
from autotune.store.study_leases import StudyLeases

if TYPE_CHECKING:
    from optuna.storages import RDBStorage


T = TypeVar("T")
_OUTCOMES = frozenset(outcome.value for outcome in Outcome)


class Repository(StudyLeases):
    """Studies in one open database, each searched under a lease. Every write is one commit.

    Operations wait a bounded time for a locked or lost database (see `Patience`), then raise StoreError. Methods with
    a study's name raise StudyNotFoundError for an unknown name. Several threads may call methods at once. Close the
    repository after use, or use the repository as a context manager.
    """

    @classmethod
    def open(cls, url: str, *, must_exist: bool = False, patience: Patience | None = None) -> Self:
        """The repository in the database; missing tables are made, old tables migrated.

        Args:
            url: Result of `resolve_url`.
            must_exist: Refuse a missing SQLite file instead of making the file and the folder.
            patience: Limits on waiting for a locked or lost database; None = 90 s.

        Raises:
            StoreError: The database cannot be reached within 10 s, read or written, or the driver is missing.
            SchemaVersionError: A newer release wrote the database.
        """
        return cls(Database.open(url, must_exist=must_exist, patience=patience or Patience()))

    @classmethod
    def read(cls, url: str, *, patience: Patience | None = None) -> Self:
        """The repository in an existing database, for reading alone: nothing is made, migrated or written.

        Args:
            url: Result of `resolve_url`.
            patience: Limits on waiting for a locked or lost database; None = 90 s.

        Raises:
            StoreError: The database does not exist, cannot be read within 10 s, or holds no studies of ours.
            SchemaVersionError: A newer release wrote the database, or the tables of an older release need migrating.
        """
        return cls(Database.open(url, must_exist=True, patience=patience or Patience(), is_read_only=True))

    def names(self) -> list[str]:
        """Names of all studies, the newest last."""
        return self._database.names()

    @property
    def url(self) -> str:
        """The database's URL, secrets included; show it through `mask_url`."""
        return self._database.url

    @property
    def optuna_storage(self) -> RDBStorage:
        """Optuna's storage on the same database, made at the first use.

        Raises:
            StoreError: The database failed, or another release of Optuna made the Optuna tables.
        """
        return self._database.optuna_storage

    # Studies

    def create_study(self, record: StudyRecord) -> None:
        """Stores a new study.

        Raises:
            StudyExistsError: The name is taken by a study of ours, or of another program in Optuna's tables.
            UsageError: The name cannot be stored.
        """
        check_name(record.name)
        in_use = StudyExistsError(
            f"The database {self._database.display_name} already holds a study {record.name!r}.",
            f"Go on with it: autotune resume {record.name}, with --time for more time in all; or give another name "
            f"with --study, and --take-over {record.name} to count its trials.",
        )
        if record.name in self._database.names():
            raise in_use
        if self._database.has_optuna_study(record.name):
            raise StudyExistsError(
                f"The database {self._database.display_name} holds a study {record.name!r} that another program made.",
                "Give another name with --study.",
            )
        row = rows.study_to_row(record)

        def add(connection: Connection) -> None:
            try:
                connection.execute(insert(tables.studies).values(**row))
            except IntegrityError:
                raise in_use from None

        self._database.add(add)

    def study(self, name: str) -> StudyRecord:
        """The study's record."""

        def read(connection: Connection) -> StudyRecord:
            study_id = self._database.study_id(connection, name)
            row = connection.execute(select(tables.studies).where(tables.studies.c.study_id == study_id)).mappings()
            return rows.study_from_row(row.one(), self.url)

        return self._database.read(read)

    def studies(self, on_unreadable: Callable[[str, StoreError], None] | None = None) -> tuple[StudyRecord, ...]:
        """All studies, newest first.

        Args:
            on_unreadable: Called with the name and the error of each unreadable study, or with an empty name where the
                name is not text; None = raise the first error.
        """
        newest_first = tables.studies.c.created_at.desc(), tables.studies.c.study_id.desc()

        def read(connection: Connection) -> tuple[StudyRecord, ...]:
            found = connection.execute(select(tables.studies).order_by(*newest_first)).mappings()
            records = _readable(found, lambda row: rows.study_from_row(row, self.url), on_unreadable)
            return tuple(records)

        return self._database.read(read)

    def num_trials(self, name: str) -> int:
        """Number of stored trials of the study, readable or not."""

        def read(connection: Connection) -> int:
            study_id = self._database.study_id(connection, name)
            query = select(func.count()).select_from(tables.trials).where(tables.trials.c.study_id == study_id)
            return int(connection.execute(query).scalar_one())

        return self._database.read(read)

    def status(self, name: str) -> str:
        """Status of the study, even of an unreadable study."""

        def read(connection: Connection) -> str:
            query = select(tables.studies.c.status).where(tables.studies.c.name == name)
            self._database.study_id(connection, name)
            return str(connection.execute(query).scalar_one())

        return self._database.read(read)

    def overview(self, name: str, script_settings: Settings | None) -> TrialOverview:
        """Counts of the study's trials, with the best trial and the baseline.

        Args:
            name: The study.
            script_settings: The script's own settings, canonical; None if unknown.
        """
        table = tables.trials

        def read(connection: Connection) -> TrialOverview:
            of_study = table.c.study_id == self._database.study_id(connection, name)
            counts = connection.execute(select(table.c.outcome, func.count()).where(of_study).group_by(table.c.outcome))
            outcomes = {Outcome(text): int(num) for text, num in counts if text in _OUTCOMES}
            fastest = (
                select(table.c.number)
                .where(of_study, table.c.outcome == Outcome.OK.value, table.c.samples_per_second.is_not(None))
                .order_by(table.c.samples_per_second.desc(), table.c.number)
                .limit(1)
            )
            best = connection.execute(fastest).scalar()
            return TrialOverview(
                outcomes=outcomes,
                best=None if best is None else _trial(connection, of_study, best),
                baseline=None if script_settings is None else _latest_of(connection, of_study, script_settings),
            )

        return self._database.read(read)

    def delete_study(self, name: str) -> None:
        """Deletes the study with all trials, from our tables and Optuna's.

        Raises:
            StudyExistsError: Another live tuner searches the study.
        """
        for holder in self.live_owners(name, now=datetime.now(UTC)):
            if holder != Owner.this_process():
                raise leases.refusal(name, holder, leases.STALE_AFTER_S)
        # Optuna's part first: after an interruption between the parts, the study is still listed and can be deleted.
        self._database.delete_optuna_study(name)

        def remove(connection: Connection, study_id: int) -> None:
            connection.execute(delete(tables.studies).where(tables.studies.c.study_id == study_id))

        self._database.write(name, remove)

    def save_probe(
        self,
        name: str,
        *,
        facts: ScriptFacts,
        script_settings: Settings,
        refused: tuple[tuple[str, str], ...],
        memory_cap_bytes: int,
        layer_folder: str,
        fingerprint: dict[str, Any] | None = None,
    ) -> None:
        """Stores the results of the probe, and the study's fingerprint if given."""
        row = rows.probe_to_row(
            facts=facts,
            script_settings=script_settings,
            refused=refused,
            memory_cap_bytes=memory_cap_bytes,
            layer_folder=layer_folder,
        )
        if fingerprint is not None:
            row["fingerprint"] = rows.to_json(fingerprint)
        self._database.update_study(name, row)

    def add_spent(self, name: str, seconds: float) -> None:
        """Adds wall time to the study's spent budget."""
        self._database.update_study(name, {"spent_s": tables.studies.c.spent_s + seconds})

    def set_status(self, name: str, status: str, result: dict[str, Any] | None = None) -> None:
        """Stores the study's status and the document of the result; None removes an earlier document."""
        document = None if result is None else rows.result_to_json(result)
        self._database.update_study(name, {"status": status, "result": document})

    def reopen(self, name: str, spec: SearchSpec) -> None:
        """Stores a study's request with other limits, and marks the study as running; the stored result stays."""
        values = {"spec": rows.spec_to_text(spec), "status": "running"}
        self._database.update_study(name, values)

    # Trials and finals

    def record_trial(self, name: str, record: TrialRecord) -> None:
        """Stores a trial in one commit, in place of an earlier record with the same number."""
        row = rows.trial_to_row(record)
        self._database.write(name, lambda connection, study_id: _upsert(connection, tables.trials, study_id, row))

    def mark_told(self, name: str, number: int) -> None:
        """Notes that Optuna has the outcome of a stored trial.

        Raises:
            StoreError: No stored trial has the number.
        """

        def mark(connection: Connection, study_id: int) -> None:
            trials = tables.trials
            statement = update(trials).where(trials.c.study_id == study_id, trials.c.number == number)
            if connection.execute(statement.values(optuna_told=True)).rowcount == 0:
                raise StoreError(f"Study {name!r} has no trial {number} in its database.", "Search it anew.")

        self._database.write(name, mark)

    def trials(
        self,
        name: str,
        *,
        with_ranks: bool = True,
        on_unreadable: Callable[[str, StoreError], None] | None = None,
    ) -> tuple[TrialRecord, ...]:
        """All stored trials of the study, by number.

        Args:
            name: The study.
            with_ranks: Read the reports of all processes too: most of a result, and rarely needed.
            on_unreadable: Called with the number and the error of each unreadable trial; None = raise the first error.
        """

        def read(connection: Connection) -> tuple[TrialRecord, ...]:
            query = select(tables.trials).where(tables.trials.c.study_id == self._database.study_id(connection, name))
            found = connection.execute(query.order_by(tables.trials.c.number)).mappings()
            made = _readable(
                found, lambda row: rows.trial_from_row(row, with_ranks=with_ranks), on_unreadable, "number"
            )
            return tuple(made)

        return self._database.read(read)

    def endings(self, name: str) -> tuple[TrialEnding, ...]:
        """The endings of all stored trials of the study, by number; only the results of failed trials are read."""
        table = tables.trials
        failed = [outcome.value for outcome in Outcome if outcome.is_failed]
        failure = case((table.c.outcome.in_(failed), table.c.result), else_=None).label("failure")

        def read(connection: Connection) -> tuple[TrialEnding, ...]:
            of_study = table.c.study_id == self._database.study_id(connection, name)
            query = select(table.c.number, table.c.settings, table.c.stage, table.c.outcome, failure).where(of_study)
            return tuple(rows.ending_of(*row) for row in connection.execute(query.order_by(table.c.number)))

        return self._database.read(read)

    def record_final(self, name: str, record: FinalRecord) -> None:
        """Stores one run of the finals, in place of an earlier record with the same round and number."""
        row = rows.final_to_row(record)
        self._database.write(name, lambda connection, study_id: _upsert(connection, tables.finals, study_id, row))

    def finals(self, name: str) -> tuple[FinalRecord, ...]:
        """All stored runs of the finals, by round and time of the end."""

        def read(connection: Connection) -> tuple[FinalRecord, ...]:
            finals = tables.finals
            query = select(finals).where(finals.c.study_id == self._database.study_id(connection, name))
            found = connection.execute(query.order_by(finals.c.round, finals.c.finished_at)).mappings()
            return tuple(rows.final_from_row(row) for row in found)

        return self._database.read(read)


def _readable(
    found: Iterable[RowMapping],
    make: Callable[[RowMapping], T],
    on_unreadable: Callable[[str, StoreError], None] | None,
    key: str = "name",
) -> Iterator[T]:
    """Objects made from the readable rows; the errors of all further rows go to `on_unreadable`."""
    for row in found:
        try:
            yield make(row)
        except StoreError as error:
            if on_unreadable is None:
                raise
            on_unreadable("" if isinstance(row[key], bytes) else str(row[key]), error)


def _trial(connection: Connection, of_study: ColumnElement[bool], number: int) -> TrialRecord:
    query = select(tables.trials).where(of_study, tables.trials.c.number == number)
    return rows.trial_from_row(connection.execute(query).mappings().one(), with_ranks=False)


def _latest_of(connection: Connection, of_study: ColumnElement[bool], settings: Settings) -> TrialRecord | None:
    """The latest trial of the settings.

    Older releases wrote other text for the same settings, so trial 0, the baseline, is compared as settings as well.
    """
    table = tables.trials
    is_same = or_(table.c.settings == rows.to_json(settings.to_dict()), table.c.number == 0)
    query = select(table.c.number).where(of_study, is_same).order_by(table.c.number.desc())
    found = (_trial(connection, of_study, number) for number in connection.execute(query).scalars().all())
    return next((trial for trial in found if trial.settings == settings), None)


def _upsert(connection: Connection, table: Table, study_id: int, row: dict[str, Any]) -> None:
    """Replaces the row with the same key, or adds a row; the study's lease keeps a second writer away."""
    values = {"study_id": study_id, **row}
    same_key = [column == values[column.name] for column in table.primary_key]
    if connection.execute(update(table).where(*same_key).values(**row)).rowcount == 0:
        connection.execute(insert(table).values(**values))


def check_name(name: str) -> None:
    """Checks the name of a study.

    Raises:
        UsageError: The name is too long, holds invisible characters, or looks like an option.
    """
    if len(name) > tables.MAX_NAME_LENGTH or not name.isprintable() or name != name.strip() or name[:1] == "-":
        raise UsageError(
            f"{name[:80]!r} cannot be the name of a study.",
            f"It has at most {tables.MAX_NAME_LENGTH} printable characters, no space at its ends, and no dash first.",
        )
