from __future__ import annotations

import re
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
REPOS = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
HOOKS = [hook for repo in REPOS for hook in repo["hooks"]]


def test_no_hook_is_fetched_from_a_network():
    assert [repo["repo"] for repo in REPOS] == ["local"]
    assert all(hook["language"] == "system" for hook in HOOKS)


def test_hooks_run_programs_of_the_set_up_and_modules_of_this_repository():
    for hook in HOOKS:
        program, *words = hook["entry"].split()
        assert program in {".venv/bin/ruff", ".venv/bin/mypy", ".venv/bin/python"}
        if words[:1] == ["-m"]:
            assert ROOT.joinpath(*words[1].split(".")).with_suffix(".py").exists()


def test_what_lint_runs_is_a_hook_as_well():
    recipe = re.search(r"^lint:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.M)
    assert recipe
    programs = {re.sub(r"\$\(BIN\)/(\S+)( -m \S+)?.*", r"\1\2", line.strip()) for line in recipe[1].splitlines()}
    entries = {re.sub(r"\.venv/bin/(\S+)( -m \S+)?.*", r"\1\2", hook["entry"]) for hook in HOOKS}
    assert programs <= entries
