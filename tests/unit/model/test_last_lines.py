"""The end of a script's output, as shown to its user."""

from __future__ import annotations

from autotune.model.result import last_lines


def test_a_line_that_is_cut_in_the_middle_is_left_out() -> None:
    printed = "\n".join(f"line {number}" for number in range(1000)) + "\n\n"
    shown = last_lines(printed, 100).splitlines()
    assert shown[-1] == "line 999" and all(line in printed.splitlines() for line in shown)
    assert len("\n".join(shown)) <= 100


def test_a_short_output_is_shown_whole_and_a_long_line_by_its_end() -> None:
    assert last_lines(" one\ntwo \n") == "one\ntwo"
    assert last_lines("x" * 50 + "end", 10) == "x" * 7 + "end"
