"""The scripts that are tried for a common beginning, and a trial of them that is ended and goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks.startup import qualify
from tests.benchmarks.startup.qualify import NONE, Found, Script


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of scripts as they are tried; of three, the last cannot be."""
    names: list[str] = []

    def try_script(script: Script, device: str) -> Found:
        names.append(script.name)
        start, reason = {"a": ("prepared", "at its loader"), "b": ("forked", "a | thread\nruns")}.get(
            script.name, (NONE, "no library")
        )
        return Found(name=script.name, start=start, reason=reason, saved_s=1.25)

    monkeypatch.setattr(qualify, "scripts", lambda device: iter([Script(name=name, arguments=()) for name in "abc"]))
    monkeypatch.setattr(qualify, "try_script", try_script)
    return names


def test_what_was_found_is_not_tried_again(tried: list[str], tmp_path: Path) -> None:
    path = tmp_path / "found.jsonl"
    whole = qualify.qualify(path)
    lines = path.read_text().splitlines()
    assert (tried, len(lines)) == (["a", "b", "c"], 3)
    path.write_text("\n".join(lines[:1]) + "\n")
    tried.clear()
    assert qualify.qualify(path) == whole
    assert tried == ["b", "c"]
    tried.clear()
    assert qualify.qualify(None) == whole
    assert tried == ["a", "b", "c"]


def test_the_share_is_of_those_that_train_here(tried: list[str]) -> None:
    text = qualify.qualify(None)
    assert "1 of 2 scripts" in text
    assert "| a | prepared | 1.2 | at its loader |" in text
    assert "| b | forked | 1.2 | a / thread |" in text
    assert "| c | none | 1.2 | no library |" in text


def test_some_scripts_can_be_asked_for(tried: list[str]) -> None:
    assert "1 of 1 scripts" in qualify.qualify(None, "cpu", "a") and tried == ["a"]


def test_there_are_the_studies_the_jobs_and_the_shapes_of_one_process() -> None:
    names = [script.name for script in qualify.scripts()]
    assert len(names) == len(set(names))
    assert {"studies/mlp/train.py", "tests/benchmarks/startup/preparing_job.py", "one plain loop"} <= set(names)
    assert "two ranks of torchrun" not in names
    assert "studies/gpt2/train.py" not in names
    assert "studies/gpt2/train.py" in [script.name for script in qualify.scripts("cuda")]
