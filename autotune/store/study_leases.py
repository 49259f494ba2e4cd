"""Who searches a study: one tuner per machine, under a lease that the dead lose."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection

from autotune.errors import StudyExistsError
from autotune.store import leases
from autotune.store.database import Database
from autotune.store.records import Owner
from autotune.store.retry import Patience

_LEASE_ATTEMPTS = 10


class StudyLeases:
    """The leases of the studies in one database. Every write is one commit.

    Args:
        database: With our tables in it.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def acquire_lease(
        self, name: str, owner: Owner, *, now: datetime, stale_after_s: float = leases.STALE_AFTER_S
    ) -> None:
        """Makes the owner the only one on its machine who searches the study; once more is no error.

        Args:
            name: The study.
            owner: Who will search it.
            now: The present moment, with its time zone.
            stale_after_s: Age from which the sign of life of an owner elsewhere is too old.

        Raises:
            StudyExistsError: Another live owner on the same machine holds it.
        """

        def take(connection: Connection, study_id: int) -> bool:
            return leases.take(connection, study_id, name, owner, now=now, stale_after_s=stale_after_s)

        # Whoever loses a race finds a live winner at the next look, and is refused.
        for _ in range(_LEASE_ATTEMPTS):
            if self._database.write(name, take):
                return
        raise StudyExistsError(f"Several tuners want study {name!r} at once.", "Start one of them again.")

    def renew_lease(self, name: str, owner: Owner, *, now: datetime) -> None:
        """Notes that the owner is alive; to be called every `leases.STALE_AFTER_S` / 4 or so.

        A database that is gone is not waited for: whoever calls this watches over a trial.

        Raises:
            StoreError: The database failed, or is away.
            StudyExistsError: The owner does not hold the lease any more.
        """

        def renew(connection: Connection, study_id: int) -> bool:
            return leases.renew(connection, study_id, owner, now=now)

        if not self._database.write(name, renew, patience=Patience(retry_for_s=0)):
            raise StudyExistsError(
                f"Study {name!r} was taken over from process {owner.pid} on {owner.host} by another tuner.",
                "That happens after a long pause of this machine; what was finished is stored.",
            )

    def release_lease(self, name: str, owner: Owner) -> None:
        """Gives the study up; nothing where the owner does not hold it."""
        self._database.write(name, lambda connection, study_id: leases.release(connection, study_id, owner))

    def leave_to_others(
        self, name: str, owner: Owner, *, now: datetime, stale_after_s: float = leases.STALE_AFTER_S
    ) -> bool:
        """Whether tuners of other machines go on with the study; the owner's lease is given up where they do.

        Of several that ask, exactly one is told that it is the last, and keeps its lease.
        """

        def leave(connection: Connection, study_id: int) -> bool:
            return leases.leave(connection, study_id, owner, now=now, stale_after_s=stale_after_s)

        return self._database.write(name, leave)

    def live_owners(
        self, name: str, *, now: datetime, stale_after_s: float = leases.STALE_AFTER_S
    ) -> tuple[Owner, ...]:
        """Who searches the study at this moment, at most one per machine."""

        def read(connection: Connection) -> tuple[Owner, ...]:
            study_id = self._database.study_id(connection, name)
            return leases.live_owners(connection, study_id, now=now, stale_after_s=stale_after_s)

        return self._database.read(read)
