"""Several tuners on one study, of different machines: the wait of those that have nothing left to try."""

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
    """The result that the tuner of another machine publishes; None when none of them lives any more, or after a stop.

    Args:
        study: The study, whose lease this tuner has given up.
        repository: Where it is.
        stop: May end the wait.
        on_event: Told of the wait.
        sleep: Passes the time between two looks.
    """
    is_said = False
    while not stop.level:
        # In this order: whoever publishes a result gives the lease up afterwards.
        others = repository.live_owners(study, now=datetime.now(UTC))
        record = repository.study(study)
        if is_final(record) and record.result is not None:
            return SearchResult.from_document(record.result)
        if not others:
            return None
        if not is_said:
            hosts = ", ".join(owner.host for owner in others)
            on_event(Notice(message=f"Nothing is left to try here; the tuner on {hosts} goes on to the finals."))
            is_said = True
        sleep(LOOK_EVERY_S)
    return None
