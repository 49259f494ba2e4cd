from __future__ import annotations

import json

import pytest

from autotune.cli.main import main
from autotune.study import machine_check
from autotune.study.machine_check import Finding, Status

GOOD = Finding(name="cores", status=Status.OK, text="8 of 8 cores are usable")
BAD = Finding(name="torch", status=Status.PROBLEM, text="torch cannot be imported", remedy="Install torch.")


@pytest.mark.parametrize(("found", "code"), [([GOOD], 0), ([GOOD, BAD], 6)])
def test_findings_are_printed_with_their_remedies_and_a_problem_is_an_exit_code(monkeypatch, capsys, found, code):
    monkeypatch.setattr(machine_check, "examine", lambda: iter(found))
    assert main(["doctor"]) == code
    printed = capsys.readouterr().out
    assert "ok       cores      8 of 8 cores are usable." in printed
    assert ("Install torch." in printed) is (code == 6)


def test_with_json_there_is_one_document(monkeypatch, capsys):
    monkeypatch.setattr(machine_check, "examine", lambda: iter([GOOD, BAD]))
    assert main(["doctor", "--json"]) == 6
    document = json.loads(capsys.readouterr().out)
    assert [finding["status"] for finding in document["findings"]] == ["ok", "problem"]
