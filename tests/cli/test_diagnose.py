from __future__ import annotations

import json
from pathlib import Path

import pytest

from autotune.diagnose import diagnosing

from ..unit.diagnoses import diagnosis


@pytest.fixture
def asked(monkeypatch):
    """What a tuner that only answers was asked for."""
    calls = []

    def answer(spec, *, profiles_to, on_event, stop):
        calls.append((spec, profiles_to))
        return diagnosis(profiles=("somewhere/trace.json",) if profiles_to else ())

    monkeypatch.setattr(diagnosing, "diagnose", answer)
    return calls


def test_the_page_is_the_result_and_the_script_keeps_its_arguments(cli, asked):
    code, out, _ = cli("diagnose", "train.py", "--device", "cpu", "--", "--epochs", "3")
    assert code == 0 and out.startswith("train.py on CPU")
    spec, profiles_to = asked[0]
    assert spec.command[-2:] == ("--epochs", "3") and spec.device == "cpu" and profiles_to is None


def test_with_json_there_is_one_document(cli, asked):
    code, out, _ = cli("diagnose", "train.py", "--json")
    assert code == 0 and json.loads(out)["samples_per_second"] == 640.0


@pytest.mark.parametrize(("words", "where"), [([], "autotune-profile"), (["--out", "p"], "p")])
def test_profiles_go_where_they_were_asked_for(cli, asked, words, where):
    code, out, _ = cli("diagnose", "train.py", "--profile", *words)
    assert code == 0 and "somewhere/trace.json" in out
    assert asked[0][1] == Path(where)


def test_a_place_for_profiles_without_profiles_is_a_usage_error(cli, asked):
    code, _, err = cli("diagnose", "train.py", "--out", "p")
    assert code == 2 and "--profile" in err and not asked


def test_an_interrupted_diagnosis_says_so(cli, monkeypatch):
    def stop(spec, **_):
        raise InterruptedError

    monkeypatch.setattr(diagnosing, "diagnose", stop)
    code, out, err = cli("diagnose", "train.py")
    assert code == 130 and out == "" and "Interrupted" in err
