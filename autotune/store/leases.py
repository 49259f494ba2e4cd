"""The lease of a study: at most one tuner searches it, and one that died is replaced.

A lease is one row. It is taken by a compare-and-swap, so that of two tuners that see the same dead owner one wins.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from autotune.errors import StudyExistsError
from autotune.store.records import Owner
from autotune.store.rows import moment_from_text, moment_to_text
from autotune.store.schema import leases

STALE_AFTER_S = 120.0
"""A tuner of another host without a sign of life for so long counts as dead."""


def live_owner(connection: Connection, study_id: int, *, now: datetime, stale_after_s: float) -> Owner | None:
    """Who searches the study; None when nobody does, or whoever did is dead.

    On this machine the process table decides, elsewhere the age of the last sign of life. One from the future, by a
    clock that is ahead, counts as fresh: two tuners on one study do more harm than a wait.
    """
    row = connection.execute(select(leases).where(leases.c.study_id == study_id)).mappings().one_or_none()
    if row is None:
        return None
    owner = Owner(host=row["host"], boot_id=row["boot_id"], pid=row["pid"], start_ticks=row["start_ticks"])
    is_alive = owner.is_alive_here()
    if is_alive is None:
        is_alive = (now - moment_from_text(row["heartbeat_at"])).total_seconds() < stale_after_s
    return owner if is_alive else None


def take(
    connection: Connection, study_id: int, name: str, owner: Owner, *, now: datetime, stale_after_s: float
) -> bool:
    """Whether the lease is now the owner's; False when another changed it in the same moment: try again.

    Raises:
        StudyExistsError: Another live owner holds it.
    """
    values = {**_columns(owner), "heartbeat_at": moment_to_text(now)}
    seen = connection.execute(select(leases).where(leases.c.study_id == study_id)).mappings().one_or_none()
    if seen is None:
        try:
            with connection.begin_nested():
                connection.execute(insert(leases).values(study_id=study_id, **values))
        except IntegrityError:
            return False
        return True
    holder = live_owner(connection, study_id, now=now, stale_after_s=stale_after_s)
    if holder is not None and holder != owner:
        raise refusal(name, holder, stale_after_s)
    swap = update(leases).where(_is_row(dict(seen))).values(**values)
    return connection.execute(swap).rowcount == 1


def renew(connection: Connection, study_id: int, owner: Owner, *, now: datetime) -> bool:
    """Whether the owner still holds the lease; if so its sign of life is now."""
    statement = update(leases).where(_is_row({"study_id": study_id, **_columns(owner)}))
    return connection.execute(statement.values(heartbeat_at=moment_to_text(now))).rowcount == 1


def release(connection: Connection, study_id: int, owner: Owner) -> None:
    """Gives the lease up, where the owner holds it."""
    connection.execute(delete(leases).where(_is_row({"study_id": study_id, **_columns(owner)})))


def refusal(name: str, holder: Owner, stale_after_s: float) -> StudyExistsError:
    """The error for everyone but the holder."""
    return StudyExistsError(
        f"Study {name!r} is being searched by process {holder.pid} on {holder.host}.",
        "Wait for it or end that process; a tuner of another host or container that died is replaced after "
        f"{stale_after_s:.0f} s.",
    )


def _columns(owner: Owner) -> dict[str, Any]:
    return {"host": owner.host, "boot_id": owner.boot_id, "pid": owner.pid, "start_ticks": owner.start_ticks}


def _is_row(values: dict[str, Any]) -> ColumnElement[bool]:
    """Whether a lease has exactly these values, NULL equal to NULL."""
    return and_(*(leases.c[name].is_not_distinct_from(value) for name, value in values.items()))
