"""The first advice names what each script is sick of; what following it gives is `make bench-diagnose`'s to say."""

from __future__ import annotations

import pytest

from autotune.model.diagnosis import Sickness
from tests.benchmarks.diagnose.sick import SICK, diagnose
from tests.benchmarks.storage import __main__ as stored

QUICK = "host"
"""Runs with every commit; it has neither workers nor files of its own."""


def right_advice(sickness: Sickness) -> set[Sickness]:
    """What may come first: many small files are cured by one store too that keeps what follows the reading."""
    return {sickness, Sickness.REPEATED_WORK} if sickness is Sickness.SMALL_FILES else {sickness}


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
    assert first["sickness"] in right_advice(SICK[name]), document["advice"]
    assert f"{name}.py:" in first["where"] and first["gain"] > 1


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(stored.SICK))
def test_the_first_advice_names_the_fault_of_stored_samples(name, tmp_path):
    for package in ("h5py", "webdataset", "PIL"):
        pytest.importorskip(package)
    document = diagnose(name, tmp_path, scripts=stored.SCRIPTS)
    assert document["advice"], document
    assert document["advice"][0]["sickness"] in right_advice(stored.SICK[name]), document["advice"]
