"""Waits for the result of a study searched together with tuners on other machines."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime

from autotune.model.events import Notice, OnEvent
from autotune.model.search_result import SearchResult
from autotune.store.repository import Repository
from autotune.study.status import is_final
from autotune.study.stop import StopRequest

LOOK_EVERY_S = 2.0


def wait_for_result(
    study: str,
    repository: Repository,
    stop: StopRequest,
    on_event: OnEvent,
    *,
    sleep: Callable[[float], None] = time.sleep,
) -> SearchResult | None:
    """The result published by the tuner of another machine; None when no other tuner lives, or after a stop.

    Args:
        study: Name of the study, without a lease of this process.
        repository: Place of the study.
        stop: Ends the wait early.
        on_event: Receives a notice of the wait.
        sleep: Passes the time between two looks at the database.
    """
    is_announced = False
    while not stop.level:
        # Owners before the record: a tuner publishes the result before giving up the lease.
        others = repository.live_owners(study, now=datetime.now(UTC))
        record = repository.study(study)
        if is_final(record) and record.result is not None:
            return SearchResult.from_document(record.result)
        if not others:
            return None
        if not is_announced:
            hosts = ", ".join(owner.host for owner in others)
            on_event(Notice(message=f"Nothing is left to try here; the tuner on {hosts} goes on to the finals."))
            is_announced = True
        sleep(LOOK_EVERY_S)
    return None
