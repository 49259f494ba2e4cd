"""`--jsonl`: the events of a search on standard output, one JSON object per line; see docs/events.md."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from autotune.model.events import Event, ProbeFinished
from autotune.model.result import TrialResult
from autotune.protocol.codec import to_plain
from autotune.report.document import without_infinite
from autotune.report.streams import BestEffortStream
from autotune.settings import Settings

SCHEMA = 1
LONG_FACTS = ("imports", "modules")
"""Facts left out of the stream: lists of every module imported by a script."""


class EventStream:
    """A subscriber of a search's events. The search goes on when the reader of the stream leaves.

    Args:
        mask: Hides the secrets in every text of a document.
        stream: Destination of the lines; None = standard output.
        now: The clock.
    """

    def __init__(
        self,
        *,
        mask: Callable[[Any], Any] = lambda document: document,
        stream: BestEffortStream | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._mask, self._now = mask, now
        self._stream = stream or BestEffortStream(sys.stdout)

    def __call__(self, event: Event) -> None:
        """Writes one event."""
        self._write(event_name(event), event_document(event))

    def finish(self, document: Mapping[str, Any]) -> None:
        """Writes the last line, `result`: the document printed by `--json`."""
        self._write("result", document)

    def _write(self, name: str, document: Mapping[str, Any]) -> None:
        head = {"schema": SCHEMA, "event": name, "at": self._now().isoformat(timespec="milliseconds")}
        fields = without_infinite(self._mask(dict(document)))
        # The head comes first, and wins over an event's fields of the same names.
        line = json.dumps({**head, **fields, **head}, ensure_ascii=True, allow_nan=False)
        self._stream.write(f"{line}\n")


def event_name(event: Event) -> str:
    """The name of an event in the stream: `trial_finished`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", type(event).__name__).lower()


def event_document(event: Event) -> dict[str, Any]:
    """An event as plain values: its own fields, settings as in a tuned config, a result by `result_document`."""
    document: dict[str, Any] = {}
    for name in type(event).__dataclass_fields__:
        value = getattr(event, name)
        if isinstance(value, Settings):
            document[name] = value.to_dict()
        elif isinstance(value, TrialResult):
            document.update(result_document(value))
        else:
            document[name] = to_plain(value)
    if isinstance(event, ProbeFinished):
        document["refused"] = dict(event.refused)
        document["facts"] = {name: fact for name, fact in document["facts"].items() if name not in LONG_FACTS}
    return document


def result_document(result: TrialResult) -> dict[str, Any]:
    """A trial's ending as plain values, without its raw blocks and log; texts are not masked."""
    measurement = result.measurement
    return {
        "outcome": result.outcome.value,
        "reason": result.reason,
        "place": result.place,
        "samples_per_second": measurement.samples_per_second if measurement is not None else None,
        "interval": [measurement.low, measurement.high] if measurement is not None else None,
        "data_wait_fraction": measurement.data_wait_fraction if measurement is not None else None,
        "peak_memory_bytes": result.peak_memory_bytes,
        "wall_s": result.wall_s,
        "durations_s": dict(result.durations_s),
        "start": result.start,
        "start_reason": result.start_reason,
        "saved_s": result.saved_s,
    }
