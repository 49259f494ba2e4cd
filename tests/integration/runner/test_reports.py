"""Whatever is in place of a report: an outcome, never an error of the tuner's, and no waiting."""

from __future__ import annotations

import pytest

from autotune.model.outcome import Outcome
from tests.integration.runner.ground import EITHER, Ground

UNUSABLE = [
    "half",
    "empty",
    "not_utf8",
    "wrong_types",
    "unknown_field",
    "a_list",
    "infinite_rate",
    "negative_memory",
    "endless_number",
    "not_a_number",
    "nested",
    "huge",
    "link",
    "link_to_zeros",
    "pipe",
    "folder",
    "two_of_one_rank",
    "ranks_that_disagree",
]


@EITHER
@pytest.mark.parametrize("how", UNUSABLE)
def test_a_report_that_cannot_be_used_is_a_crash_with_its_reason(ground: Ground, how: str) -> None:
    result = ground.run("hostile.py", how)
    assert result.outcome is Outcome.CRASHED, result.log_tail
    assert "report" in result.reason
    assert "\n" not in result.reason and len(result.reason) < 500
    ground.check(f"report: {how}", result)


@EITHER
def test_a_folder_of_reports_that_leads_elsewhere_is_not_followed(ground: Ground) -> None:
    result = ground.run("hostile.py", "linked_folder")
    assert result.outcome is Outcome.CRASHED
    ground.check("report: linked folder", result)


@EITHER
def test_text_of_a_report_can_be_printed_and_stored(ground: Ground) -> None:
    result = ground.run("hostile.py", "odd_text")
    assert result.outcome is Outcome.CRASHED
    assert result.reason.isprintable()
    assert result.ranks[0].error is not None
    result.ranks[0].error.message.encode()
    assert "\0" not in result.ranks[0].error.message


@EITHER
def test_an_observation_that_is_no_number_is_a_difference(ground: Ground) -> None:
    result = ground.run("hostile.py", "odd_observation")
    assert result.outcome is Outcome.INVALID
    assert "num_workers" in result.reason and result.reason.isprintable()


@EITHER
def test_a_log_that_was_replaced_is_not_read(ground: Ground) -> None:
    result = ground.run("hostile.py", "log_is_zeros")
    assert result.outcome is Outcome.OK
    assert result.log_tail == ""


@EITHER
def test_how_the_command_ended_cannot_be_forged(ground: Ground) -> None:
    result = ground.run("hostile.py", "forged_ending")
    assert result.outcome is Outcome.OK
    assert result.exit_code == 0 and result.signal is None


@EITHER
def test_text_that_the_script_prints_can_be_stored(ground: Ground) -> None:
    (ground.user / "obeys.py").write_text(
        "import os, pretend\nos.write(1, b'a\\x00b\\xff\\xed\\xa0\\x80')\npretend.report()\n"
    )
    ground.cover()
    result = ground.run("obeys.py")
    result.log_tail.encode()
    assert result.log_tail.startswith("ab") and "\0" not in result.log_tail
