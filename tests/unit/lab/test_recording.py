"""A recording names the version, and in a checkout the commit, that measured it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import autotune
from autotune.lab.recording import version_in


def checkout(folder: Path) -> str:
    """Makes a repository of one commit, and gives back the commit's short name."""
    git = ["git", "-C", str(folder), "-c", "user.name=one", "-c", "user.email=one@example.org"]
    for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "first"]):
        subprocess.run([*git, *words], check=True)
    return subprocess.run(
        [*git, "rev-parse", "--short=8", "HEAD"], check=True, capture_output=True, text=True
    ).stdout.strip()


@pytest.mark.parametrize("then", [[], ["pack-refs", "--all"], ["checkout", "-q", "--detach"]])
def test_a_package_in_a_checkout_is_named_with_its_commit(tmp_path, then):
    commit = checkout(tmp_path)
    if then:
        subprocess.run(["git", "-C", str(tmp_path), *then], check=True)
    assert version_in(tmp_path).startswith(autotune.__version__)
    assert version_in(tmp_path).endswith(f"g{commit}")


def test_a_package_installed_below_another_checkout_is_not_of_its_commits(tmp_path):
    checkout(tmp_path)
    installed = tmp_path / "env" / "site-packages"
    installed.mkdir(parents=True)
    assert version_in(installed) == autotune.__version__


def test_a_package_outside_of_any_checkout_has_a_version_alone(tmp_path):
    assert version_in(tmp_path) == autotune.__version__
