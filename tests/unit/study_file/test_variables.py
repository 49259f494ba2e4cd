import shlex

import pytest

from autotune.emit.export import export
from autotune.settings import Settings
from autotune.study_file.search_options import VARIABLES
from autotune.study_file.sources import unread_variables

from ..emit.example import tuned_config


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("AUTOTUNE_MEMORYCAP", "AUTOTUNE_MEMORY_CAP"),
        ("AUTOTUNE_TRAILS", "AUTOTUNE_TRIALS"),
        ("AUTOTUNE_STUDYFILE", "AUTOTUNE_STUDY_FILE"),
        ("AUTOTUNE_COMPILED_FORCE", ""),
    ],
)
def test_a_misspelled_variable_is_told_with_the_nearest_one(name, nearest):
    (sentence,) = unread_variables({name: "8", "AUTOTUNE_TIME": "10m"})
    assert sentence.startswith(f"{name} is no variable that autotune reads")
    assert sentence.partition("did you mean ")[2].rstrip("?") == nearest


def test_what_only_the_command_line_can_say_is_told_so():
    (sentence,) = unread_variables({"AUTOTUNE_SET": "num_workers=0..4"})
    assert "command line" in sentence and "AUTOTUNE_SET" in sentence


def test_nothing_is_said_of_what_is_read_or_exported_or_empty():
    said = dict.fromkeys((*VARIABLES.values(), "AUTOTUNE_STUDY_FILE", "OTHER_AUTOTUNE_TIME"), "8")
    config = tuned_config(settings=Settings(batch_size=8, num_workers=2, compile=True, knobs=(("storage", "lmdb"),)))
    exported = dict(shlex.split(line)[0].split("=", 1) for line in export(config, "env").splitlines())
    assert "AUTOTUNE_KNOB_STORAGE" in exported and "AUTOTUNE_BATCH_SIZE" in exported
    assert list(unread_variables({**said, **exported, "AUTOTUNE_TRAILS": ""})) == []


@pytest.mark.parametrize("ours", ["AUTOTUNE_TRIAL", "AUTOTUNE_JOB"])
def test_nothing_is_said_in_a_process_that_autotune_started(ours):
    assert list(unread_variables({ours: "x", "AUTOTUNE_STARTED_AT": "1.0", "AUTOTUNE_TRAILS": "8"})) == []
