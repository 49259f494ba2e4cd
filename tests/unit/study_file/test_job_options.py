"""The options of a job: the study file's, without commands, places and less protection."""

from __future__ import annotations

import pytest

from autotune.errors import UsageError
from autotune.study_file.job_options import check_job_options, job_options_schema, job_words
from autotune.study_file.search_options import IN_JOB, Kind

VALUES = {
    Kind.COUNT: 2,
    Kind.SEED: 3,
    Kind.AMOUNT: 1.5,
    Kind.TIME: "90s",
    Kind.MEMORY_CAP: "80%",
    Kind.EFFECTIVE_BATCH: "fixed",
    Kind.DEVICE: "cpu",
    Kind.PROTECTION: "layers",
    Kind.TABLE: {},
    Kind.SWITCH: True,
}


def test_every_option_of_a_job_is_described():
    properties = job_options_schema()["properties"]
    assert properties.keys() == {option.name for option in IN_JOB}
    assert all("description" in described and len(described) > 1 for described in properties.values())


@pytest.mark.parametrize("option", [option for option in IN_JOB if option.kind in VALUES], ids=lambda it: it.name)
def test_an_option_of_every_kind_is_taken_and_becomes_words(option):
    checked = check_job_options({option.name: VALUES[option.kind]})
    words = job_words(checked)
    assert all(word.startswith(option.flag) for word in words)
    assert bool(words) == bool(VALUES[option.kind])


def test_a_value_stays_in_its_word_although_it_looks_like_a_flag():
    words = job_words({"map": {"num_workers": "--workers={}"}, "time": "1m", "trials": 4})
    assert set(words) == {"--map=num_workers=--workers={}", "--time=60.000s", "--trials=4"}


@pytest.mark.parametrize(
    "key", ["command", "script", "module", "args", "storage", "out", "force", "writable", "network"]
)
def test_commands_places_and_permissions_are_no_options_of_a_job(key):
    with pytest.raises(UsageError, match=f"{key} is not an option of a job"):
        check_job_options({key: "x"})
