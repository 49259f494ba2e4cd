from rich.text import Text

from autotune.report.folding import bar, flow, fold


def test_a_line_that_fits_stays_as_it_is():
    assert fold("a  b", 4, column=3) == ["a  b"]


def test_a_line_is_broken_between_words_and_never_inside_one():
    assert fold("  one two three four five", 20) == ["  one two three four", "    five"]
    assert fold("--num-workers=12345678901234567890", 24) == ["--num-workers=12345678901234567890"]


def test_a_row_is_broken_at_its_column_first():
    assert fold("1  ok  aaaaaaaaaa=1 bbbbbbbbbb=2", 24, column=7, indent=3) == [
        "1  ok",
        "   aaaaaaaaaa=1",
        "   bbbbbbbbbb=2",
    ]


def test_parts_stand_side_by_side_as_far_as_they_fit():
    parts = [Text("aaaaaaaaaa"), Text("bbbbbbbbbb"), Text("c" * 30)]
    assert [line.plain for line in flow(parts, 22)] == ["aaaaaaaaaa  bbbbbbbbbb", "c" * 22]
    assert flow([], 80) == []


def test_a_bar_is_full_at_one_and_empty_at_nothing_whatever_is_beyond():
    assert [bar(share, 4) for share in (-1.0, 0.0, 0.5, 1.0, 7.0)] == ["[----]", "[----]", "[##--]", "[####]", "[####]"]
