"""The lines for a script that is to apply settings itself."""

from __future__ import annotations

import ast

import pytest

from autotune.model.own_lines import own_lines
from autotune.settings import Group


@pytest.mark.parametrize("group", sorted(set(Group) - {Group.OWN}))
def test_every_group_but_the_users_own_knobs_has_a_line(group):
    assert len(own_lines([group], "tuned.yaml")) > 2


def test_the_lines_of_all_groups_are_one_loop_in_order():
    lines = own_lines(Group, "tuned.yaml")
    assert len(set(lines)) == len(lines)
    *_, loop = ast.parse("\n".join(lines)).body
    assert isinstance(loop, ast.For) and "cfg.backward" in ast.unparse(loop.body[-1])
