"""Optuna's storage class on our database; Optuna makes the Optuna tables beside ours."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from optuna.exceptions import StorageInternalError, UpdateFinishedTrialError
from optuna.storages import BaseStorage, RDBStorage
from sqlalchemy import make_url
from sqlalchemy.exc import DBAPIError, IntegrityError, SQLAlchemyError

from autotune.errors import StoreError
from autotune.store.engine import engine_options, wait_on_reconnect, write_nothing
from autotune.store.faults import display_name, explain, is_transient, may_pass
from autotune.store.retry import Patience

_CREATION_LIMIT_S = 10.0
_ONCE = frozenset({"create_new_study", "delete_study"})
"""Methods not tried again after a lost answer: a second attempt collides with the work of the first."""


class Storage(RDBStorage):
    """Optuna's storage with StoreError for faults, and with patience for a lost database."""

    patience = Patience(retry_for_s=0)


def _guarded(name: str) -> Callable[..., Any]:
    """The storage's method with StoreError for faults of the database."""
    method = getattr(RDBStorage, name)

    @functools.wraps(method)
    def call(storage: Storage, *arguments: Any, **options: Any) -> Any:
        num_attempts = 0

        def once() -> Any:
            nonlocal num_attempts
            num_attempts += 1
            try:
                with _database_faults(storage.url):
                    return method(storage, *arguments, **options)
            except UpdateFinishedTrialError:
                if num_attempts == 1:
                    raise
                return True  # The first attempt succeeded, and only the answer was lost.

        return once() if name in _ONCE else storage.patience.attempt(once, may_pass)

    return call


_public = {name for name in dir(BaseStorage) if not name.startswith("_") and callable(getattr(BaseStorage, name))}
# Optuna's cache, present in every study, calls these private methods directly.
_past_the_public = {"_create_new_trial", "_set_trial_param", "_get_trials", "_get_best_trial_id"} & set(dir(RDBStorage))
for _name in (_public - {"remove_session"}) | _past_the_public:
    setattr(Storage, _name, _guarded(_name))


def open_optuna_storage(url: str, patience: Patience, *, is_read_only: bool = False) -> RDBStorage:
    """Optuna's storage on the database; missing Optuna tables are made, lost connections are opened again.

    Args:
        url: Result of `resolve_url`.
        patience: Limits on waiting for a lost connection.
        is_read_only: Make and write nothing; Optuna's tables must be present.

    Raises:
        StoreError: The database failed, or another release of Optuna made the Optuna tables.
    """

    def create() -> Storage:
        # Optuna fills a template, so braces of the URL are doubled.
        template = url.replace("{", "{{").replace("}", "}}")
        storage = Storage.__new__(Storage)
        try:
            options = engine_options(url, is_read_only=is_read_only)
            RDBStorage.__init__(storage, template, engine_kwargs=options, skip_table_creation=is_read_only)
        except BaseException:
            # A half-made storage may hold open connections.
            if hasattr(storage, "engine"):
                storage.engine.dispose()
            raise
        return storage

    with optuna_faults(url):
        # Two processes may make the same tables at once and disturb each other; a second attempt finds the tables.
        storage = replace(patience, retry_for_s=_CREATION_LIMIT_S).attempt(create, _is_lost_race)
    if is_read_only:
        storage.engine.dispose()
        write_nothing(storage.engine)
    wait_on_reconnect(storage.engine, patience)
    storage.patience = patience
    return storage


def find_study(storage: RDBStorage, name: str) -> int | None:
    """Optuna's id of the study; None without such a study.

    Raises:
        StoreError: The database failed.
    """
    with optuna_faults(storage.url):
        try:
            return storage.get_study_id_from_name(name)
        except KeyError:
            return None


def delete_study(storage: RDBStorage, name: str) -> None:
    """Deletes Optuna's study with all trials, if present.

    Raises:
        StoreError: The database failed.
    """
    study_id = find_study(storage, name)
    if study_id is not None:
        with optuna_faults(storage.url):
            storage.delete_study(study_id)


@contextmanager
def optuna_faults(url: str) -> Iterator[None]:
    """Turns errors of the storage into StoreError, including RuntimeError for tables of another release of Optuna."""
    try:
        with _database_faults(url):
            yield
    except RuntimeError as error:
        raise StoreError(
            f"Optuna's tables in the database {display_name(make_url(url))} are of another release of Optuna.",
            "Bring them up to date with `optuna storage upgrade --storage URL`, or choose another with --storage.",
        ) from error


@contextmanager
def _database_faults(url: str) -> Iterator[None]:
    try:
        yield
    except SQLAlchemyError as error:
        raise explain(error, make_url(url)) from error
    except StorageInternalError as error:
        if isinstance(error.__cause__, SQLAlchemyError):
            raise explain(error.__cause__, make_url(url)) from error.__cause__
        hint = "See whether the server runs, and resume: what was stored is kept."
        raise StoreError(f"The database {display_name(make_url(url))} failed: {error}.", hint) from error


def _is_lost_race(error: Exception) -> bool:
    if isinstance(error, StorageInternalError):
        error = error.__cause__ if isinstance(error.__cause__, Exception) else error
    if isinstance(error, IntegrityError) or is_transient(error):
        return True
    return isinstance(error, DBAPIError) and "already exists" in str(error.orig)
