"""What a forked trial makes of the variables of the process that it comes from."""

from __future__ import annotations

import os
import tempfile

import pytest

from autotune.trial.start.forked_environment import change_environment


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process whose imports have asked for a temporary folder."""
    for name, value in {"TMPDIR": "/study/a/tmp", "CACHE": "/study/a/tmp/inductor", "LANG": "C"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(tempfile, "tempdir", "/study/a/tmp")


@pytest.mark.usefixtures("server")
def test_what_was_derived_from_the_temporary_folder_follows_it() -> None:
    change_environment({"TMPDIR": "/study/b/tmp", "LANG": None})
    assert os.environ["CACHE"] == "/study/b/tmp/inductor" and "LANG" not in os.environ
    assert tempfile.gettempdir() == "/study/b/tmp"


@pytest.mark.usefixtures("server")
def test_what_a_trial_is_given_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COVERED", "/nowhere")  # so that it goes afterwards
    change_environment({"TMPDIR": "/study/b/tmp", "COVERED": "/study/a/tmp"})
    assert os.environ["COVERED"] == "/study/a/tmp"


@pytest.mark.usefixtures("server")
def test_a_temporary_folder_of_the_scripts_own_choice_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/scratch")
    change_environment({"TMPDIR": "/study/b/tmp"})
    assert tempfile.gettempdir() == "/scratch"
    change_environment({"LANG": "en"})
    assert os.environ["TMPDIR"] == "/study/b/tmp" and os.environ["CACHE"] == "/study/b/tmp/inductor"
