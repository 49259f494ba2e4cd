"""What the README tells people to type is typed here: what costs nothing in every run, all of it by the newcomer."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest

from autotune import errors
from autotune.cli import compare_verb, finish, main, verify_verb
from autotune.emit.tuned_config import config_text
from autotune.model.search_result import Status
from tests.cli.conftest import cli, folder, stored, trial_record  # noqa: F401 - fixtures
from tests.cli.test_compare import log_of
from tests.docs.newcomer import LEFT_OUT, PROJECT, markdown, shown, type_all, wanted
from tests.docs.readme import README, commands
from tests.docs.record_session import ELIDED, excerpt
from tests.unit.emit.example import tuned_config
from tests.unit.report.examples import NATURAL, TUNED, measured, search_result

ROOT = README.parent
STORED = ("best", "compare", "config", "export", "report", "studies", "trust")
"""Verbs that read what is stored, or agree to it, and start nothing."""
STARTING = tuple(
    f"autotune {verb}" for verb in ("search", "run", "resume", "verify", "record", "diagnose", "estimate", "doctor")
)
"""What starts processes: typed by the newcomer, and each verb by tests of its own."""
IN_A_SHELL = ("autotune --install-completion",)
"""Typed by the newcomer: it writes to the shell's own files. What it offers: tests/cli/test_completion.py."""
ALL = [command.words for command in commands()]
QUICK = [words for words in ALL if words.split()[1] in STORED and words.startswith("autotune")]


def test_every_command_is_typed_here_by_the_newcomer_or_left_out_with_a_reason():
    typed = [command.words for command in wanted(with_all=False, has_python=False)]
    assert sorted([*typed, *(words for words in LEFT_OUT if words in ALL)]) == sorted(ALL)
    others = [words for words in typed if words not in QUICK and words != "make setup"]
    assert all(words.startswith(STARTING) or words in IN_A_SHELL for words in others)


def test_nothing_is_left_out_that_the_readme_does_not_say():
    assert set(LEFT_OUT) <= set(ALL)


@pytest.mark.parametrize("words", QUICK)
def test_a_command_that_starts_nothing_does_what_the_readme_says(words, cli, stored, folder):  # noqa: F811
    trials = (trial_record(0, NATURAL, measured(1000.0)), trial_record(1, TUNED, measured(2410.0)))
    (folder / "autotune.yaml").write_text(config_text(tuned_config(), "yaml"))
    rates = (3118.0, 3120.0, 3116.0)
    (folder / "autotune-watch.jsonl").write_text(log_of(*rates, config=folder / "autotune.yaml"))
    for name in ("train", "wider"):
        config = folder / f"{name}.yaml"
        config.write_text(config_text(tuned_config(provenance_study=name), "yaml"))
        stored(name, trials=trials, result=search_result(config=str(config)))
    code, out, err = cli(*shlex.split(words)[1:])
    assert code == 0, err
    assert out or "Written" in err


def test_targets_of_make_are_there():
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M)
    for words in ALL:
        if words.startswith("make "):
            assert words.split()[1] in targets
    for page in PAGES:
        named = set(
            re.findall(r"`(?:make )?((?:bench|test|lint|setup|session|newcomer)(?:-[a-z]+)?)`", page.read_text())
        )
        assert named <= {*targets, "tests"}, page.name


def test_the_exit_codes_are_those_of_the_code():
    section = README.read_text().split("## Exit codes")[1].split("\n## ")[0]
    told = {int(code) for code in re.findall(r"^\| (\d+) \|", section, re.M)}
    raised = {
        error.exit_code
        for error in vars(errors).values()
        if isinstance(error, type) and issubclass(error, errors.AutotuneError) and error is not errors.AutotuneError
    }
    assert told == raised | {status.exit_code for status in Status} | {
        finish.NO_GAIN,
        compare_verb.REGRESSION,
        verify_verb.NOT_HELD,
        main.INTERRUPTED,
    }


def test_the_sample_is_an_excerpt_of_the_recorded_session():
    sample = README.read_text().split("<!-- docs/session.txt -->")[1].split("<!-- end of docs/session.txt -->")[0]
    text = "\n".join(line.removeprefix("    ") for line in sample.strip("\n").splitlines())
    session = (ROOT / "docs" / "session.txt").read_text()
    assert text == excerpt(session)
    assert text.startswith("study ") and "samples per second" in text and len(text.splitlines()) <= 16
    rest = iter(session.splitlines())
    assert all(line in rest for line in text.splitlines() if line.strip() != ELIDED)


def test_the_first_screen_says_what_it_is_how_to_install_it_and_what_comes_of_it():
    screen = "\n".join(README.read_text().splitlines()[:45])
    assert all(
        words in screen for words in ("autotune search train.py", "pip install .", "These settings train", "#use-it")
    )


PAGES = [
    page
    for places in ("*.md", "docs/*.md", "studies/*/*.md", "tests/*.md", "autotune/*/*.md")
    for page in ROOT.glob(places)
]


def test_links_lead_to_files_that_are_there():
    assert len(PAGES) > 10
    for page in PAGES:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_pictures_load_nothing_from_elsewhere():
    for picture in (ROOT / "docs").glob("*.svg"):
        assert not re.search(r"(?:href|src|url)\s*[=(]\s*['\"]?https?:", picture.read_text()), picture.name


def test_a_long_output_is_shown_by_its_two_ends():
    lines = shown("\n".join(map(str, range(200))))
    assert lines[0] == "0" and lines[-1] == "199" and "[... 140 lines ...]" in lines


@pytest.mark.slow
def test_a_newcomer_gets_through_the_readme():
    """Half an hour: eight searches with their real trials, long enough to find the gain that `verify` looks for."""
    log = type_all(time_limit="2m", python=Path(sys.executable))
    failed = [f"{one.command.words}: exit code {one.code}\n{one.output[-2000:]}" for one in log if one.code]
    assert not failed, "\n\n".join(failed)
    page = markdown(log, "2m")
    assert all(f"## `{one.command.words}`" in page for one in log)
    assert PROJECT.exists() and shutil.which("bash")
