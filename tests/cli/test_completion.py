"""What the shell is offered after TAB."""

import subprocess
import sys

import pytest

from .test_process import COMMAND, environment


def offered(*words, shell="bash"):
    """What the shell asks for, and is told, when TAB is hit behind the last of these words."""
    asked = {
        "_AUTOTUNE_COMPLETE": f"complete_{shell}",
        "COMP_WORDS": " ".join(words),
        "COMP_CWORD": str(len(words) - 1),
    }
    if shell == "zsh":
        asked = {"_AUTOTUNE_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": " ".join(words)}
    done = subprocess.run(COMMAND, env=environment(**asked), capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == ""
    return done.stdout.split()


def test_verbs_and_options_are_offered():
    assert {"resume", "record"} <= set(offered("autotune", "re"))
    assert offered("autotune", "search", "--jsonl") == ["--jsonl"]


def test_studies_of_this_folder_are_offered_by_name(stored):
    stored("photos")
    stored("texts")
    assert offered("autotune", "resume", "ph") == ["photos"]
    assert any("texts" in line for line in offered("autotune", "best", "te", shell="zsh"))


def test_without_a_database_nothing_is_offered_and_none_is_made(folder):
    assert offered("autotune", "best", "x") == []
    assert not (folder / "studies").exists()


@pytest.mark.parametrize(("option", "begun", "found"), [("--device", "cp", ["cpu"]), ("--to", "js", ["json"])])
def test_values_of_options_are_offered(option, begun, found):
    verb = "search" if option == "--device" else "export"
    assert offered("autotune", verb, option, begun) == found


def test_the_shell_is_told_how_to_ask():
    shown = environment(_AUTOTUNE_COMPLETE="source_bash")
    done = subprocess.run(
        [sys.executable, "-m", "autotune"], env=shown, capture_output=True, text=True, timeout=60, check=False
    )
    assert "_AUTOTUNE_COMPLETE=complete_bash" in done.stdout
