from __future__ import annotations

import os
import sys
import textwrap

import pytest
import torch

from autotune.trial.observing.user_code import is_torchs, is_users, shown_place, statement_around, users_stack

LOOP = textwrap.dedent(
    """\
    def accuracy(outputs, targets):
        count = 0
        for output, target in zip(outputs, targets):
            if output.item() == target.item():
                count += 1
        return count


    def main():
        for x, y in loader:
            out = model(x)
            loss = loss_fn(out, y)
            loss.backward()
            optimizer.step()
            with torch.no_grad():
                total = 0.0
                for value in out:
                    total += value.item()
            if step % 10 == 0:
                print(loss.item())


    main()
    """
)
TRAINING = {10, 11, 13, 14, 23}


@pytest.mark.parametrize(
    ("line", "statement"),
    [(18, (15, 18)), (20, (19, 20)), (4, (3, 5)), (13, (13, 13)), (12, (12, 12))],
    ids=["in a block of its own", "under a condition", "in a function", "training itself", "beside training"],
)
def test_a_line_belongs_to_the_largest_statement_that_holds_no_training(line, statement):
    assert statement_around(LOOP, line, TRAINING) == statement


@pytest.mark.parametrize("source", ["", "def (", "\0"])
def test_a_line_of_a_file_that_is_no_python_stands_for_itself(source):
    assert statement_around(source, 7, set()) == (7, 7)


def test_whose_code_it_is_follows_from_where_it_lies(tmp_path):
    script = tmp_path / "train.py"
    namespace = {}
    exec(compile("def step(): pass", str(script), "exec"), namespace)
    assert is_users(namespace["step"].__code__)
    assert not is_users(os.path.join.__code__)
    assert not is_users(torch.nn.Linear.forward.__code__) and is_torchs(torch.nn.Linear.forward.__code__)
    assert not is_users(compile("1", "<string>", "exec"))


def test_the_stack_holds_the_users_lines_alone_innermost_first(tmp_path):
    script = tmp_path / "train.py"
    source = "def inner(look):\n    return look()\n\n\ndef outer(look):\n    return inner(look)\n"
    namespace = {}
    exec(compile(source, str(script), "exec"), namespace)
    stack = namespace["outer"](lambda: users_stack(sys._getframe(1)))
    assert stack[:2] == ((str(script), 2), (str(script), 6))
    assert shown_place(stack[0]) == "train.py:2" and shown_place(None) == ""
