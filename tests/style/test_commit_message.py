from __future__ import annotations

import pytest

from tests.style.commit_message import LIMIT, complaints, main

GOOD = "trial: end a crashed trial without waiting for its workers"


@pytest.mark.parametrize("message", [GOOD, f"{GOOD}\n\nWhy and figures.\n", f"{GOOD}\n# git's comment\n", "Merge x"])
def test_a_subject_with_a_scope_and_an_empty_line_below_is_good(message):
    assert complaints(message) == []


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (f"{GOOD} {'x' * LIMIT}", "characters"),
        ("End a crashed trial without waiting", "scope"),
        (f"{GOOD}.", "full stop"),
        (f"{GOOD}\nWhy.", "not empty"),
        ("", "scope"),
    ],
)
def test_any_other_subject_is_refused_with_the_rule(message, words, tmp_path, capsys):
    assert any(words in complaint for complaint in complaints(message))
    (tmp_path / "message").write_text(message)
    assert main(str(tmp_path / "message")) == 1
    assert words in capsys.readouterr().err
