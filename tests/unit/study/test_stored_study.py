"""A stored study that goes on: its trials stay under the memory cap of the trials before."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from autotune.model.facts import ScriptFacts
from autotune.store.records import StudyRecord
from autotune.study import target as target_module
from autotune.study import trust_record
from autotune.study.fingerprint import study_fingerprint
from autotune.study.probing import Probed
from autotune.study.stored_study import StoredStudy
from autotune.study.target import Target, make_target
from autotune.units import GIB
from tests.unit.facts import cpu_machine, gpu_machine, script_facts, search_spec

SPEC = search_spec()
ON_CPU = script_facts(device="cpu")


class OneStudy:
    """A repository of one study."""

    def __init__(self, record: StudyRecord) -> None:
        self.record = record

    def study(self, name: str) -> StudyRecord:
        return self.record

    def save_probe(self, name: str, **values: Any) -> None:
        self.record = replace(self.record, **values)


def stored(target: Target, facts: ScriptFacts | None) -> StoredStudy:
    record = StudyRecord(
        name="train",
        spec=SPEC,
        fingerprint=study_fingerprint(SPEC, target),
        created_at=datetime.now(UTC),
        facts=facts,
        memory_cap_bytes=5 * GIB,
    )
    repository: Any = OneStudy(record)
    return StoredStudy(record, target, repository)


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target_module, "cpu_device", lambda: cpu_machine().device)
    monkeypatch.setattr(trust_record, "keep", lambda *records: None)


def test_a_script_on_the_cpu_of_a_machine_with_a_gpu_goes_on_under_the_cap_of_its_trials() -> None:
    study = stored(make_target(SPEC, gpu_machine().device), ON_CPU)
    study.go_on(ON_CPU, lambda event: None)
    assert study.target.device.is_cpu and study.target.cap_bytes == 5 * GIB


@pytest.mark.parametrize(("facts", "cap_bytes"), [(ON_CPU, 5 * GIB), (None, int(0.8 * 12 * GIB))])
def test_a_probe_run_again_keeps_the_cap_of_the_trials_and_a_first_probe_sets_it(
    facts: ScriptFacts | None, cap_bytes: int
) -> None:
    study = stored(make_target(SPEC, gpu_machine().device), facts)
    trained_on = make_target(SPEC, cpu_machine().device)
    probed = study.save_probe(Probed(spec=SPEC, target=trained_on, facts=ON_CPU, wall_s=1.0), "")
    assert probed.target.cap_bytes == study.target.cap_bytes == study.record.memory_cap_bytes == cap_bytes
