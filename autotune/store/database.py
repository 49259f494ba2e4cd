"""One open database: reads and writes with patience, Optuna's storage on it, and studies found by name."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from sqlalchemy import Connection, Engine, select, update

from autotune.errors import StoreError, StudyNotFoundError
from autotune.store import tables
from autotune.store.engine import open_engine, reading, transaction
from autotune.store.faults import display_name, may_pass
from autotune.store.retry import Patience
from autotune.store.url import make_private_file, sqlite_path

if TYPE_CHECKING:
    from optuna.storages import RDBStorage

T = TypeVar("T")


class Database:
    """An open database with our tables; every operation waits a bounded time for a lost connection."""

    def __init__(self, engine: Engine, url: str, patience: Patience, *, is_read_only: bool = False) -> None:
        self.url, self._is_read_only = url, is_read_only
        self._engine = engine
        self._patience = patience
        self._optuna_storage: RDBStorage | None = None

    @classmethod
    def open(cls, url: str, *, must_exist: bool, patience: Patience, is_read_only: bool = False) -> Self:
        """The database at the URL; see `Repository.open` and `Repository.read`."""
        engine = open_engine(url, busy_s=patience.busy_s, is_read_only=is_read_only)
        path = sqlite_path(url)
        if (must_exist or is_read_only) and path is not None and not path.exists():
            raise StoreError(f"There is no database {path}.", "Name it with --storage, or start a search.")
        try:
            if is_read_only:
                tables.check_readable(engine)
            else:
                if not must_exist:
                    make_private_file(url)
                tables.migrate(engine, may_make=not must_exist)
        except BaseException:
            engine.dispose()
            raise
        return cls(engine, url, patience, is_read_only=is_read_only)

    def close(self) -> None:
        """Closes all connections."""
        if self._optuna_storage is not None:
            self._optuna_storage.remove_session()
            self._optuna_storage.engine.dispose()
            self._optuna_storage = None
        self._engine.dispose()

    @property
    def display_name(self) -> str:
        """The database's name for people, without secrets."""
        return display_name(self._engine.url)

    def read(self, operation: Callable[[Connection], T]) -> T:
        """The result of the operation, read in one snapshot.

        Raises:
            StoreError: The database failed, or was away for too long.
        """

        def run() -> T:
            with reading(self._engine) as connection:
                return operation(connection)

        return self._patience.attempt(run, may_pass)

    def write(self, name: str, operation: Callable[[Connection, int], T], *, patience: Patience | None = None) -> T:
        """The result of the operation, done on the study in one commit.

        Args:
            name: The study.
            operation: Takes the connection and the study's id. Runs twice if the answer to a commit is lost.
            patience: Limits on waiting for the database; None = the patience of `open`.

        Raises:
            StudyNotFoundError: The study does not exist.
            StoreError: The database failed, or was away for too long.
        """

        def run() -> T:
            with transaction(self._engine) as connection:
                return operation(connection, self.study_id(connection, name))

        return (patience or self._patience).attempt(run, may_pass)

    def change(self, operation: Callable[[Connection], T]) -> T:
        """The result of the operation, done in one commit; runs twice if the answer to a commit is lost.

        Raises:
            StoreError: The database failed, or was away for too long.
        """

        def run() -> T:
            with transaction(self._engine) as connection:
                return operation(connection)

        return self._patience.attempt(run, may_pass)

    def make_tables(self, make: Callable[[Connection], None]) -> None:
        """Runs a function that makes missing tables, while no other process makes tables."""
        with tables.only_migrator(self._engine), transaction(self._engine) as connection:
            make(connection)

    def update_study(self, name: str, values: dict[str, Any]) -> None:
        """Writes columns of the study."""
        table = tables.studies
        self.write(
            name,
            lambda connection, study_id: connection.execute(
                update(table).where(table.c.study_id == study_id).values(**values)
            ),
        )

    def add(self, operation: Callable[[Connection], object]) -> None:
        """Runs an operation that adds rows, once: a second attempt would collide with the rows of the first."""
        with transaction(self._engine) as connection:
            operation(connection)

    def names(self) -> list[str]:
        """Names of all studies."""
        return self.read(_names)

    def study_id(self, connection: Connection, name: str) -> int:
        """Key of the study in our tables.

        Raises:
            StudyNotFoundError: The study does not exist; the hint has similar names.
        """
        table = tables.studies
        study_id: int | None = connection.execute(select(table.c.study_id).where(table.c.name == name)).scalar()
        if study_id is not None:
            return study_id
        names = _names(connection)
        close = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
        hint = f"Did you mean {' or '.join(repr(other) for other in close)}?" if close else _holds(names)
        raise StudyNotFoundError(f"The database {self.display_name} holds no study {name!r}.", hint)

    @property
    def optuna_storage(self) -> RDBStorage:
        """Optuna's storage on the same database, made at the first use.

        Raises:
            StoreError: The database failed, or another release of Optuna made the Optuna tables.
        """
        if self._optuna_storage is None:
            # Imported here, so that listing studies does not wait for Optuna.
            from autotune.store.optuna_storage import open_optuna_storage

            self._optuna_storage = open_optuna_storage(self.url, self._patience, is_read_only=self._is_read_only)
        return self._optuna_storage

    def has_optuna_study(self, name: str) -> bool:
        """Whether Optuna's tables hold a study with the name."""
        from autotune.store.optuna_storage import find_study

        return find_study(self.optuna_storage, name) is not None

    def delete_optuna_study(self, name: str) -> None:
        """Deletes Optuna's study, if present."""
        from autotune.store.optuna_storage import delete_study

        delete_study(self.optuna_storage, name)


class OwnsDatabase:
    """Owner of an open database, closed by `close` or at the end of a `with` block.

    Args:
        database: An open database with our tables.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def close(self) -> None:
        """Closes all connections; no method may be called afterwards."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _holds(names: list[str]) -> str:
    if len(names) == 1:
        return f"It holds one other, {names[0]!r}."
    return f"It holds {len(names)} others; see `autotune studies`." if names else "It holds no study."


def _names(connection: Connection) -> list[str]:
    found = connection.execute(select(tables.studies.c.name).order_by(tables.studies.c.study_id)).scalars()
    return [name for name in found if isinstance(name, str)]  # an edited SQLite file may hold bytes
