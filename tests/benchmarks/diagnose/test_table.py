"""What the benchmark makes of its outcomes."""

from __future__ import annotations

from tests.benchmarks.diagnose.__main__ import page, row
from tests.benchmarks.diagnose.sick import SICK, Outcome, arguments_of
from tests.benchmarks.diagnose.table import known_lines


def test_a_cured_script_is_told_what_was_advised():
    assert arguments_of({"settings": {"num_workers": 4}}) == ["--workers", "4"]
    assert arguments_of({"settings": {}}) == []


def test_the_table_says_which_advice_was_wrong_and_which_promise_was_not_kept():
    values = {"action": "Load.", "where": "num_workers=4", "promised": 2.0, "rate": 100.0}
    right = row(Outcome(name="loader", sickness="loader", cured_rate=180.0, **values))
    wrong = row(Outcome(name="host", sickness="loader", cured_rate=400.0, **values))
    assert right == "| `loader.py` | 100 | loader | Load. `num_workers=4` | 2.00x | 1.80x | yes |"
    assert "(wrong)" in wrong and wrong.endswith("| no |")


def test_rows_that_were_measured_before_stay(tmp_path):
    lines = {
        "host": ("| `host.py` | 1 |", "* `host.py`: then"),
        "loader": ("| `loader.py` | 2 |", "* `loader.py`: now"),
    }
    text = page(lines)
    report = tmp_path / "RESULTS.md"
    report.write_text(text)
    assert known_lines(report, SICK) == lines
    assert text.index("`loader.py` |") < text.index("`host.py` |")
