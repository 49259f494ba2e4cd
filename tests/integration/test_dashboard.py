"""Optuna's own dashboard on our database, asked in this process by its WSGI application."""

from __future__ import annotations

import csv
import io
import json
from urllib.parse import urlsplit

import pytest

from autotune.model.outcome import Outcome
from autotune.settings import Settings

from ..unit.study.whole_search import by_workers, folder

pytestmark = pytest.mark.slow
dashboard = pytest.importorskip(
    "optuna_dashboard", reason="optuna-dashboard comes with the extra dashboard, which `make test-all` installs"
)
__all__ = ["folder"]


def measured(settings):
    """Two workers are one too many."""
    if settings.num_workers == 2:
        raise MemoryError("no room for two")
    return by_workers(settings)


class Asked:
    """The dashboard's answers about the one study of a database."""

    def __init__(self, repository):
        self._app = dashboard.wsgi(repository.optuna_storage)

    def text(self, address):
        parts = urlsplit(address)
        environ = {
            "REQUEST_METHOD": "GET",
            "PATH_INFO": parts.path,
            "QUERY_STRING": parts.query,
            "SERVER_NAME": "localhost",
            "SERVER_PORT": "80",
            "wsgi.input": io.BytesIO(),
            "wsgi.errors": io.StringIO(),
            "wsgi.url_scheme": "http",
        }
        answer = []
        body = b"".join(self._app(environ, lambda status, headers, *_: answer.append(status)))
        assert answer == ["200 OK"], body
        return body.decode()

    def json(self, address):
        return json.loads(self.text(address))


@pytest.fixture
def searched(folder):
    """The dashboard, and our own records of the same trials, after a search in which some trials ran out of memory."""
    folder.runner.measure = measured
    folder.search(max_trials=8, ranges=(("num_workers", "0,1,2"),))
    with folder.repository() as repository:
        yield Asked(repository), repository.trials("train")


def test_the_dashboard_lists_the_study_and_knows_what_its_values_are(searched):
    ask, records = searched
    (study,) = ask.json("/api/studies")["study_summaries"]
    assert (study["study_name"], study["directions"]) == ("train", ["maximize"])
    detail = ask.json(f"/api/studies/{study['study_id']}?after=0")
    assert detail["objective_names"] == ["samples_per_second"]
    attrs = {attr["key"]: attr["value"] for attr in detail["user_attrs"]}
    assert attrs["made_by"] == "autotune" and attrs["memory_cap_bytes"] == str(4 << 30)
    (baseline, *_) = records
    assert Settings.from_dict(json.loads(attrs["natural"])) == baseline.settings and baseline.settings.num_workers == 0


def test_the_dashboard_shows_rates_settings_and_reasons_of_every_trial(searched):
    ask, records = searched
    shown = {trial["number"]: trial for trial in ask.json("/api/studies/1?after=0")["trials"]}
    assert {record.number for record in records} <= set(shown)
    for record in records:
        trial = shown[record.number]
        attrs = {attr["key"]: attr["value"] for attr in trial["user_attrs"]}
        rate = record.result.measurement.samples_per_second if record.result.measurement is not None else 0.0
        assert trial["state"] == "Complete" and trial["values"] == [pytest.approx(rate)]
        assert Settings.from_dict(json.loads(attrs["settings"])) == record.settings
        assert attrs["stage"] == record.stage and attrs.get("reason", "") == record.result.reason
        params = {param["name"]: param["param_external_value"] for param in trial["params"]}
        assert params["num_workers"] == str(record.settings.num_workers)


def test_the_dashboard_takes_what_needs_too_much_memory_for_infeasible(searched):
    ask, records = searched
    outcomes = {record.number: record.result.outcome for record in records}
    assert Outcome.OUT_OF_MEMORY in outcomes.values() and Outcome.OK in outcomes.values()
    detail = ask.json("/api/studies/1?after=0")
    for trial in detail["trials"]:
        if trial["number"] not in outcomes:
            continue
        is_feasible = len(trial["constraints"]) == 2 and all(value <= 0 for value in trial["constraints"])
        assert is_feasible == (outcomes[trial["number"]] is Outcome.OK)
    (best,) = detail["best_trials"]
    assert outcomes[best["number"]] is Outcome.OK


def test_the_dashboard_finds_importances_and_writes_a_table(searched):
    ask, records = searched
    (importances,) = ask.json("/api/studies/1/param_importances")["param_importances"]
    names = {entry["name"] for entry in importances}
    assert "num_workers" in names and len(names) > 1, "which others vary in eight trials depends on the processor"
    rows = list(csv.DictReader(io.StringIO(ask.text("/csv/1"))))
    assert {int(row["Number"]) for row in rows} >= {record.number for record in records}
    assert {row["Param num_workers"] for row in rows} == {"0", "1", "2"}


@pytest.mark.parametrize("kind", ["contour", "slice", "parallel_coordinate", "rank", "edf", "timeline"])
def test_the_dashboard_draws_optunas_own_figures(searched, kind):
    pytest.importorskip("plotly", reason="plotly comes with the extra `report`")
    ask, _ = searched
    figure = ask.json(f"/api/studies/1/plot/{kind}")
    assert figure["data"] and figure["layout"]
