"""The leases of a study: at most one tuner per machine searches a study, and a dead tuner is replaced.

A lease is one row per machine. A tuner takes the lease by a compare-and-swap: of two tuners after the same dead owner,
exactly one wins.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, RowMapping, Select, and_, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from autotune.errors import StudyExistsError
from autotune.store.records import Owner
from autotune.store.rows import moment_from_text, moment_to_text
from autotune.store.tables import leases, studies

STALE_AFTER_S = 120.0
"""Age of the last sign of life from which a tuner of another host counts as dead."""


def live_owners(connection: Connection, study_id: int, *, now: datetime, stale_after_s: float) -> tuple[Owner, ...]:
    """Live owners of the study's leases, by host and process.

    On this machine the process table decides, elsewhere the age of the last sign of life. A sign from the future, by a
    fast clock, counts as fresh: two tuners on one machine do more harm than a wait.
    """
    return _alive(connection, select(leases).where(leases.c.study_id == study_id), now, stale_after_s)


def take(
    connection: Connection, study_id: int, name: str, owner: Owner, *, now: datetime, stale_after_s: float
) -> bool:
    """Whether the machine's lease is now the owner's; False after a lost race: try again.

    Raises:
        StudyExistsError: Another live owner on this machine holds the lease.
    """
    values = {**_columns(owner), "heartbeat_at": moment_to_text(now)}
    of_machine = and_(leases.c.study_id == study_id, leases.c.machine == owner.machine)
    seen = connection.execute(select(leases).where(of_machine)).mappings().one_or_none()
    if seen is None:
        try:
            with connection.begin_nested():
                connection.execute(insert(leases).values(study_id=study_id, **values))
        except IntegrityError:
            return False
        return True
    holder = _owner(seen)
    if holder != owner and _is_alive(seen, now=now, stale_after_s=stale_after_s):
        raise refusal(name, holder, stale_after_s)
    swap = update(leases).where(_is_row(dict(seen))).values(**values)
    return connection.execute(swap).rowcount == 1


def renew(connection: Connection, study_id: int, owner: Owner, *, now: datetime) -> bool:
    """Whether the owner still holds the lease; if so, the sign of life is set to now."""
    statement = update(leases).where(_is_row({"study_id": study_id, **_columns(owner)}))
    return connection.execute(statement.values(heartbeat_at=moment_to_text(now))).rowcount == 1


def release(connection: Connection, study_id: int, owner: Owner) -> None:
    """Gives the lease up, if held by the owner."""
    connection.execute(delete(leases).where(_is_row({"study_id": study_id, **_columns(owner)})))


def leave(connection: Connection, study_id: int, owner: Owner, *, now: datetime, stale_after_s: float) -> bool:
    """Whether tuners of further machines go on: if so, the owner's lease is given up; otherwise the owner keeps it.

    Of several tuners leaving at the same moment, only the last keeps the lease.
    """
    # On every database, a write to the study's row makes leaving tuners queue up here.
    connection.execute(update(studies).where(studies.c.study_id == study_id).values(spent_s=studies.c.spent_s))
    # Locked: without a lock MySQL reads values from before the wait.
    rows = select(leases).where(leases.c.study_id == study_id).with_for_update()
    others = {*_alive(connection, rows, now, stale_after_s)} - {owner}
    if others:
        release(connection, study_id, owner)
    return bool(others)


def refusal(name: str, holder: Owner, stale_after_s: float) -> StudyExistsError:
    """The error for a second tuner on the holder's machine."""
    return StudyExistsError(
        f"Study {name!r} is being searched by process {holder.pid} on {holder.host}.",
        "Wait for it or end that process; a tuner of another host or container that died is replaced after "
        f"{stale_after_s:.0f} s.",
    )


def _alive(connection: Connection, query: Select[Any], now: datetime, stale_after_s: float) -> tuple[Owner, ...]:
    rows = connection.execute(query).mappings().all()
    alive = [_owner(row) for row in rows if _is_alive(row, now=now, stale_after_s=stale_after_s)]
    return tuple(sorted(alive, key=lambda owner: (owner.host, owner.pid)))


def _owner(row: RowMapping) -> Owner:
    return Owner(host=row["host"], boot_id=row["boot_id"], pid=row["pid"], start_ticks=row["start_ticks"])


def _is_alive(row: RowMapping, *, now: datetime, stale_after_s: float) -> bool:
    is_alive = _owner(row).is_alive_here()
    if is_alive is None:
        return (now - moment_from_text(row["heartbeat_at"])).total_seconds() < stale_after_s
    return is_alive


def _columns(owner: Owner) -> dict[str, Any]:
    return {
        "machine": owner.machine,
        "host": owner.host,
        "boot_id": owner.boot_id,
        "pid": owner.pid,
        "start_ticks": owner.start_ticks,
    }


def _is_row(values: dict[str, Any]) -> ColumnElement[bool]:
    """Whether a lease has exactly the values, NULL equal to NULL."""
    return and_(*(leases.c[name].is_not_distinct_from(value) for name, value in values.items()))
