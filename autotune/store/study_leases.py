"""Leases of the studies in one database: one tuner per machine searches a study, and a dead tuner loses the lease."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection

from autotune.errors import StudyExistsError
from autotune.store import leases
from autotune.store.database import OwnsDatabase
from autotune.store.records import Owner
from autotune.store.retry import Patience

_LEASE_ATTEMPTS = 10


class StudyLeases(OwnsDatabase):
    """The leases of the studies in one database. Every write is one commit.

    Args:
        database: An open database with our tables.
    """

    def acquire_lease(
        self, name: str, owner: Owner, *, now: datetime, stale_after_s: float = leases.STALE_AFTER_S
    ) -> None:
        """Makes the owner the study's only tuner on the machine; taking an own lease again is no error.

        Args:
            name: The study.
            owner: The future tuner.
            now: The present moment, with a time zone.
            stale_after_s: Age of the last sign of life from which an owner on another machine counts as dead.

        Raises:
            StudyExistsError: Another live owner on the same machine holds the lease.
        """

        def take(connection: Connection, study_id: int) -> bool:
            return leases.take(connection, study_id, name, owner, now=now, stale_after_s=stale_after_s)

        # The loser of a race finds a live winner at the next attempt, and is refused.
        for _ in range(_LEASE_ATTEMPTS):
            if self._database.write(name, take):
                return
        raise StudyExistsError(f"Several tuners want study {name!r} at once.", "Start one of them again.")

    def renew_lease(self, name: str, owner: Owner, *, now: datetime) -> None:
        """Writes a sign of life of the owner; call about every `leases.STALE_AFTER_S` / 4.

        Does not wait for a lost database, because the caller watches a running trial.

        Raises:
            StoreError: The database failed, or cannot be reached.
            StudyExistsError: The owner no longer holds the lease.
        """

        def renew(connection: Connection, study_id: int) -> bool:
            return leases.renew(connection, study_id, owner, now=now)

        if not self._database.write(name, renew, patience=Patience(retry_for_s=0)):
            raise StudyExistsError(
                f"Study {name!r} was taken over from process {owner.pid} on {owner.host} by another tuner.",
                "That happens after a long pause of this machine; what was finished is stored.",
            )

    def release_lease(self, name: str, owner: Owner) -> None:
        """Gives the owner's lease up, if held."""
        self._database.write(name, lambda connection, study_id: leases.release(connection, study_id, owner))

    def leave_to_others(
        self, name: str, owner: Owner, *, now: datetime, stale_after_s: float = leases.STALE_AFTER_S
    ) -> bool:
        """Whether tuners of further machines go on with the study; if so, the owner's lease is given up.

        Of several leaving tuners, exactly the last gets False and keeps the lease.
        """

        def leave(connection: Connection, study_id: int) -> bool:
            return leases.leave(connection, study_id, owner, now=now, stale_after_s=stale_after_s)

        return self._database.write(name, leave)

    def live_owners(
        self, name: str, *, now: datetime, stale_after_s: float = leases.STALE_AFTER_S
    ) -> tuple[Owner, ...]:
        """Owners of live leases of the study, at most one per machine."""

        def read(connection: Connection) -> tuple[Owner, ...]:
            study_id = self._database.study_id(connection, name)
            return leases.live_owners(connection, study_id, now=now, stale_after_s=stale_after_s)

        return self._database.read(read)
