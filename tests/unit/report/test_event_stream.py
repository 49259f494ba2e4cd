"""The events of a search as lines of JSON."""

from __future__ import annotations

import io
import json
import math
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import get_args

import pytest

from autotune.model.events import (
    Event,
    FinalFinished,
    FinalsStarted,
    FinalStarted,
    LargerBatchStarted,
    MemoryShareStarted,
    Notice,
    ProbeStarted,
    TrialProgress,
    TrialStarted,
)
from autotune.model.gauges import Gauges, TrialPhase
from autotune.model.outcome import Outcome
from autotune.report.event_stream import EventStream, event_document, event_name
from autotune.report.streams import BestEffortStream

from .examples import NATURAL, PROBED, STARTED, TUNED, failed, finished, measured, search_result

EVENTS = (
    STARTED,
    ProbeStarted(),
    PROBED,
    TrialStarted(number=1, settings=TUNED, stage="workers"),
    TrialProgress(gauges=Gauges(phase=TrialPhase.WINDOW, cpu_fraction=0.5)),
    finished(1, TUNED, measured(2000.0), is_best=True),
    LargerBatchStarted(factor=2),
    MemoryShareStarted(limit_bytes=12 << 30),
    FinalsStarted(numbers=(1, 0), num_rounds=3),
    FinalStarted(round=0, number=1),
    FinalFinished(round=0, number=1, result=measured(2010.0)),
    Notice(message="told"),
)
PAGE = Path(__file__).parents[3] / "docs" / "events.md"


def lines(*events, **options):
    page = io.StringIO()
    now = datetime(2026, 11, 20, 10, 30, tzinfo=UTC)
    stream = EventStream(stream=BestEffortStream(page), now=lambda: now, **options)
    for event in events:
        stream(event)
    stream.finish(search_result().document())
    return [json.loads(line) for line in page.getvalue().splitlines()]


def test_the_samples_here_are_all_the_events_there_are():
    assert {type(event) for event in EVENTS} == set(get_args(Event))


def test_every_line_says_its_schema_its_event_and_when():
    for line in lines(*EVENTS):
        assert (line["schema"], line["at"]) == (1, "2026-11-20T10:30:00.000+00:00")
        assert line["event"]
    assert lines(*EVENTS)[-1]["status"] == "improved"
    assert all(list(line)[:3] == ["schema", "event", "at"] for line in lines(*EVENTS))


def test_a_finished_trial_holds_what_it_is_compared_by_and_no_raw_blocks():
    (line, _) = lines(finished(1, TUNED, measured(2000.0), is_best=True))
    assert (line["event"], line["number"], line["outcome"], line["is_best"]) == ("trial_finished", 1, "ok", True)
    assert (line["samples_per_second"], line["interval"]) == (2000.0, [1980.0, 2020.0])
    assert line["settings"]["num_workers"] == 4
    assert "ranks" not in line and "log_tail" not in line


def test_what_json_cannot_say_is_null():
    open_ended = measured(2000.0)
    open_ended = replace(open_ended, measurement=replace(open_ended.measurement, high=math.inf))
    (line, _) = lines(finished(1, TUNED, open_ended))
    assert line["interval"] == [1980.0, None]
    (line, _) = lines(finished(1, NATURAL, failed(Outcome.CRASHED, "It raised.")))
    assert (line["samples_per_second"], line["reason"]) == (None, "It raised.")


def test_a_figure_that_is_no_number_does_not_end_the_search():
    (line, _) = lines(replace(PROBED, wall_s=math.nan))
    assert line["wall_s"] is None


def test_what_is_secret_is_masked_in_every_line():
    found = lines(Notice(message="token"), mask=lambda document: dict.fromkeys(document, "***"))
    assert found[0]["message"] == "***" and found[0]["event"] == "notice"


def test_a_reader_that_has_left_ends_nothing():
    class Gone(io.StringIO):
        def write(self, text):
            raise BrokenPipeError

    stream = EventStream(stream=BestEffortStream(Gone()))
    for event in EVENTS:
        stream(event)


@pytest.mark.parametrize("event", EVENTS, ids=event_name)
def test_the_page_on_events_names_every_event_and_every_field_of_it(event):
    section = PAGE.read_text().split(f"### `{event_name(event)}`")[1].split("\n### ")[0]
    for field in event_document(event):
        assert f"`{field}`" in section, field
