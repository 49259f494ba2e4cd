"""The lines for a script that is to apply settings itself."""

from __future__ import annotations

import ast

import pytest

from autotune.settings import BY_NAME, own_lines


@pytest.mark.parametrize("name", BY_NAME)
def test_every_setting_has_a_line(name):
    assert len(own_lines([name], "tuned.yaml")) > 2


def test_the_lines_of_all_settings_are_one_loop_in_order():
    lines = own_lines(BY_NAME, "tuned.yaml")
    assert len(set(lines)) == len(lines)
    *_, loop = ast.parse("\n".join(lines)).body
    assert isinstance(loop, ast.For) and "cfg.backward" in ast.unparse(loop.body[-1])


@pytest.mark.parametrize("names", [*((name,) for name in BY_NAME), ("precision", "channels_last"), ("batch_size",)])
def test_the_lines_to_paste_are_python(names):
    """The lines for `precision` alone began with `    with`, under no loop."""
    compile("\n".join(own_lines(names, "tuned.yaml")), "pasted", "exec")
