"""`autotune report`: the forms, where they go, and what is not overwritten."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from autotune.model.outcome import Outcome

from ..unit.report.examples import NATURAL, TUNED, failed, measured, search_result
from .conftest import trial_record

TRIALS = (
    trial_record(0, NATURAL, measured(1000.0)),
    trial_record(1, TUNED, measured(2410.0)),
    trial_record(2, replace(TUNED, compile=True), failed(Outcome.CRASHED, "RuntimeError: token=hunter2")),
)


@pytest.fixture
def study(stored):
    best = replace(search_result().best, trial=1)
    stored(trials=TRIALS, result=search_result(best=best))


def test_a_report_is_one_html_file_named_after_the_study(cli, study, folder):
    assert cli("report", "train") == (0, "", "Written: train.html\n")
    text = (folder / "train.html").read_text(encoding="utf-8")
    assert text.startswith("<!DOCTYPE html>\n<!-- autotune report -->\n")
    assert "2.41x" in text and "<svg" in text and text.rstrip().endswith("</html>")


def test_a_report_shows_no_secret_of_the_command_or_of_an_error(cli, study):
    for form in ("html", "md", "json"):
        _, out, _ = cli("report", "train", "--format", form, "--out", "-")
        assert "train.py" in out and "RuntimeError" in out
        assert "hunter2" not in out and "***" in out.replace("\\", "")


def test_a_report_as_json_is_one_document(cli, study):
    _, out, err = cli("report", "train", "--format", "json", "--out", "-")
    document = json.loads(out)
    assert err == ""
    assert (document["study"], document["best_trial"], len(document["trials"])) == ("train", 1, 3)


def test_the_end_of_the_file_gives_the_form(cli, study, folder):
    assert cli("report", "train", "--out", "new/a.md")[0] == 0
    assert (folder / "new" / "a.md").read_text().startswith("<!-- autotune report -->\n# autotune: study train\n")
    code, _, err = cli("report", "train", "--out", "a.md", "--format", "html")
    assert code == 2 and "do not go together" in err
    code, _, err = cli("report", "train", "--format", "md", "--interactive")
    assert code == 2 and "--interactive goes with html" in err
    for name in ("a.txt", "a"):
        code, _, err = cli("report", "train", "--out", name)
        assert code == 2 and f"--out {name} does not say" in err and ".html, .md or .json" in err
        assert not (folder / name).exists()
    assert cli("report", "train", "--out", "a.txt", "--format", "md")[0] == 0
    code, _, err = cli("report", "train", "--format", "pdf")
    assert code == 2 and "html, md, json" in err


@pytest.mark.parametrize("form", ["html", "md", "json"])
def test_a_report_replaces_a_report_and_nothing_else(cli, study, folder, form):
    path = folder / f"train.{form}"
    path.write_text("<!DOCTYPE html>\nmine")
    code, _, err = cli("report", "train", "--format", form)
    assert code == 2 and "is no report of autotune" in err and "--force" in err
    assert path.read_text().endswith("mine")
    assert cli("report", "train", "--format", form, "--force")[0] == 0
    assert cli("report", "train", "--format", form)[0] == 0


def test_the_file_of_a_study_with_an_odd_name_stays_in_the_folder(cli, stored, folder):
    stored("../up & <away>", trials=TRIALS)
    code, _, err = cli("report", "../up & <away>")
    assert (code, err) == (0, "Written: _up____away_.html\n")
    assert "This search has not ended" in (folder / "_up____away_.html").read_text()


def test_a_place_that_cannot_be_written_is_a_usage_error(cli, study, folder):
    code, _, err = cli("report", "train", "--out", "train.py/a.html")
    assert code == 2 and "cannot be written" in err
    (folder / "dir.html").mkdir()
    assert cli("report", "train", "--out", "dir.html")[0] == 2
    assert cli("report", "train", "--out", "dir.html", "--force")[0] == 2


def test_a_report_of_an_unknown_study_knows_the_closest_name(cli, study):
    code, _, err = cli("report", "trian")
    assert code == 2 and "Did you mean 'train'?" in err
