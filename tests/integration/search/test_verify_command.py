"""A published gain verified by its command, with real processes."""

from __future__ import annotations

import json
import re

import pytest

from .test_search_command import NARROW, autotune, files_of, finished, project, strays  # noqa: F401 - a fixture

SEARCH = ("search", "train.py", "--trials", "2", "--time", "9m", "--json", *NARROW, "--set", "num_workers=0,2")
VERIFY = ("verify", "train", "--pairs", "2", "--seconds", "3")


@pytest.fixture
def searched(project):  # noqa: F811
    code, output, talk = finished(autotune(project, *SEARCH), timeout_s=700)
    assert code == 0, talk
    assert json.loads(output)["status"] == "improved"
    return project


@pytest.mark.slow
def test_the_script_and_the_tuned_settings_train_in_turns_and_nothing_of_the_users_changes(searched):
    before = files_of(searched)
    code, output, talk = finished(autotune(searched, *VERIFY, "--json"))
    assert code in (0, 8), talk  # A busy machine may change the ratio between search and verification, not the rest.
    found = json.loads(output)
    own = [turn["samples_per_second"] for turn in found["turns"] if not turn["is_tuned"]]
    tuned = [turn["samples_per_second"] for turn in found["turns"] if turn["is_tuned"]]
    # The script sleeps 2 ms for each sample, and two workers sleep side by side.
    assert max(own) < 500 and max(tuned) < 1000
    assert (code == 0) == (found["finding"] in ("held", "exceeded"))
    changed = {name for name, content in files_of(searched).items() if before.get(name) != content}
    assert changed == {"autotune.yaml"}
    assert strays(searched) == []

    _, best, _ = finished(autotune(searched, "best", "train"))
    assert re.search(r"verified.*x \[.*\] by 2 pairs of runs of 3.0 s", " ".join(best.split())), best
    _, document, _ = finished(autotune(searched, "studies", "show", "train", "--json"))
    assert json.loads(document)["result"]["verifications"][0]["real"] == found["real"]
