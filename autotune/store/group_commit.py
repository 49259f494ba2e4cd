"""Changes of many threads in one commit.

A commit waits for the disk: a hundred changes in one commit take about as long as a single change. While a commit
runs, further changes gather for the next commit.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from autotune.errors import StoreError
from autotune.store.database import Database
from autotune.store.faults import may_pass

T = TypeVar("T")


@dataclass(eq=False, slots=True)
class _Change:
    """A thread's change."""

    operation: Callable[[Connection], Any]
    is_done: bool = False
    result: Any = None
    error: BaseException | None = None

    def attempt(self, connection: Connection) -> None:
        """Runs the operation in a savepoint: a refusal undoes this change alone.

        Raises:
            SQLAlchemyError: The database failed; the whole transaction must end.
        """
        self.result = self.error = None
        try:
            with connection.begin_nested():
                self.result = self.operation(connection)
        except SQLAlchemyError:
            raise
        except Exception as error:
            self.error = error


class GroupCommit:
    """Commits the changes of all waiting threads together; a refused change spares the rest.

    Args:
        database: An open database.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._turn, self._lock = threading.Lock(), threading.Lock()
        self._waiting: list[_Change] = []

    def run(self, operation: Callable[[Connection], T]) -> T:
        """The result of the operation, after the commit; the operation runs again if a commit fails.

        Raises:
            StoreError: The database failed, or was away for too long.
            Exception: The operation's own error.
        """
        change = _Change(operation)
        with self._lock:
            self._waiting.append(change)
        with self._turn:
            if not change.is_done:  # the thread before may have committed the change
                with self._lock:
                    waiting, self._waiting = self._waiting, []
                self._commit(waiting)
        if change.error is not None:
            raise change.error
        result: T = change.result
        return result

    def _commit(self, changes: Sequence[_Change]) -> None:
        try:
            if len(changes) > 1 and self._commit_together(changes):
                return
            for change in changes:
                self._commit_alone(change)
        finally:
            for change in changes:
                change.is_done = True

    def _commit_together(self, changes: Sequence[_Change]) -> bool:
        """Whether every change has a result or an error; False if a single change may have failed."""

        def run(connection: Connection) -> None:
            for change in changes:
                change.attempt(connection)

        try:
            self._database.change(run)
        except BaseException as error:
            if isinstance(error, StoreError) and not may_pass(error):
                return False
            for change in changes:
                change.error = error
        return True

    def _commit_alone(self, change: _Change) -> None:
        try:
            change.result, change.error = self._database.change(change.operation), None
        except BaseException as error:
            change.error = error
