"""The first advice names what each script is sick of; what following it gives is `make bench-diagnose`'s to say."""

from __future__ import annotations

from typing import Any

import pytest

from autotune.model.diagnosis import Sickness
from tests.benchmarks.diagnose.sick import SICK, diagnose
from tests.benchmarks.storage import __main__ as stored

QUICK = "host"
"""Runs with every commit; it has neither workers nor files of its own."""


def assert_comes_first(sickness: Sickness, advice: list[dict[str, Any]]) -> None:
    """Fails unless the first advice names the sickness.

    Beside a busy neighbour, the first advice for small files may be to store what follows the reading, which spares the
    files too; the files are then named further down.
    """
    found = [each["sickness"] for each in advice]
    if sickness is Sickness.SMALL_FILES and found[0] == Sickness.REPEATED_WORK:
        assert sickness in found[1:], advice
        return
    assert found[0] == sickness, advice


def test_an_advice_names_what_a_script_is_sick_of_and_where(tmp_path):
    """Which advice comes first is a matter of measured times, and not for a machine that is busy with other tests."""
    document = diagnose(QUICK, tmp_path)
    right = [advice for advice in document["advice"] if advice["sickness"] == SICK[QUICK]]
    assert right and f"{QUICK}.py:" in right[0]["where"] and right[0]["gain"] > 1, document["advice"]


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(SICK))
def test_the_first_advice_names_what_any_of_the_scripts_is_sick_of(name, tmp_path):
    document = diagnose(name, tmp_path)
    assert document["advice"], document
    first = document["advice"][0]
    assert_comes_first(SICK[name], document["advice"])
    assert f"{name}.py:" in first["where"] and first["gain"] > 1


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(stored.SICK))
def test_the_first_advice_names_the_fault_of_stored_samples(name, tmp_path):
    for package in ("h5py", "webdataset", "PIL"):
        pytest.importorskip(package)
    document = diagnose(name, tmp_path, scripts=stored.SCRIPTS)
    assert document["advice"], document
    assert_comes_first(stored.SICK[name], document["advice"])
