"""Holds a study as stored, with the target of its trials."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from autotune.model.events import OnEvent
from autotune.model.facts import ScriptFacts
from autotune.model.result import TrialResult
from autotune.space.derive import derive_space
from autotune.space.script_settings import with_readings
from autotune.space.search_space import SearchSpace
from autotune.spec import SearchSpec
from autotune.store.records import StudyRecord
from autotune.store.repository import Repository
from autotune.study import trust_record
from autotune.study.correction import Correction, correction_of
from autotune.study.fingerprint import check_unchanged, probed_fingerprint
from autotune.study.jobs import Jobs
from autotune.study.probing import Probed
from autotune.study.target import Target


class StoredStudy:
    """A study of the database, with the target of its trials; the probe completes both.

    Args:
        record: The study, present in the repository.
        target: Place in which the trials run.
        repository: Place in which the study is stored.
    """

    def __init__(self, record: StudyRecord, target: Target, repository: Repository) -> None:
        self.record, self.target, self.repository = record, target, repository

    @property
    def name(self) -> str:
        """Name of the study."""
        return self.record.name

    @property
    def spec(self) -> SearchSpec:
        """The user's wishes, with the whole command."""
        return self.record.spec

    def reopen(self, spec: SearchSpec) -> None:
        """Stores the limits of a request with the study, and marks the study as running; no other wish is stored."""
        before = self._stored()
        stored = replace(before.spec, budget_s=spec.budget_s, max_trials=spec.max_trials)
        trust_record.keep(before, replace(before, spec=stored))
        self.repository.reopen(self.name, stored)

    def go_on(self, facts: ScriptFacts, on_event: OnEvent) -> SearchSpace:
        """Takes up the facts and the memory cap of an earlier run, and returns the space.

        Raises:
            UsageError: The earlier probe saw a different script or space.
        """
        self.target = self._under_stored_cap(self.target.where_it_trains(facts, self.spec, on_event).as_probed(facts))
        space = derive_space(facts, self.target.machine, self.spec)
        self._fingerprint(facts, space)
        return space

    def save_probe(self, probed: Probed, layer_folder: str) -> Probed:
        """Stores a new probe, and returns the probe with the readings of an earlier baseline.

        The baseline is one of this study or of the study taken over.

        Args:
            probed: The new probe.
            layer_folder: Folder of the files written by the probe.

        Raises:
            UsageError: An earlier probe saw a different script or space.
        """
        before = self.record.facts
        if before is None and self.spec.take_over:
            before = self.repository.study(self.spec.take_over).facts
        if before is not None:
            probed = replace(probed, facts=with_readings(probed.facts, dict(before.baseline_readings)))
        if self.record.facts is not None:
            probed = replace(probed, target=self._under_stored_cap(probed.target))
        self.target, facts, space = probed.target, probed.facts, probed.space
        self._save(facts, space, self._fingerprint(facts, space), layer_folder)
        return probed

    def correct(self, result: TrialResult, jobs: Jobs) -> Correction | None:
        """Corrects the facts by the baseline's run, and stores the correction before any trial relies on it."""
        correction = correction_of(result, jobs)
        if correction is not None:
            facts, space = correction.facts, correction.space
            fingerprint = {**self.record.fingerprint, **probed_fingerprint(self.spec, facts, space)}
            self._save(facts, space, fingerprint, self.record.layer_folder)
        return correction

    def _under_stored_cap(self, target: Target) -> Target:
        """The target with the cap of the study's trials so far: other free memory gives another default cap."""
        cap_bytes = self.record.memory_cap_bytes
        return target if cap_bytes is None else replace(target, cap_bytes=cap_bytes)

    def _fingerprint(self, facts: ScriptFacts, space: SearchSpace) -> dict[str, Any]:
        """The study's fingerprint with the facts of the probe, checked against an earlier probe."""
        stored = self.record.fingerprint
        now = {**stored, **probed_fingerprint(self.spec, facts, space)}
        check_unchanged(self.name, stored, now)
        return now

    def _save(self, facts: ScriptFacts, space: SearchSpace, fingerprint: dict[str, Any], layer_folder: str) -> None:
        before = self._stored()
        trust_record.keep(before, replace(before, facts=facts))
        self.repository.save_probe(
            self.name,
            facts=facts,
            script_settings=space.script_settings,
            refused=space.refused,
            memory_cap_bytes=self.target.cap_bytes,
            layer_folder=layer_folder,
            fingerprint=fingerprint,
        )
        self.record = self._stored()

    def _stored(self) -> StudyRecord:
        """The study as the database has it, with the secrets of the command."""
        stored = self.repository.study(self.name)
        return replace(stored, spec=replace(stored.spec, command=self.spec.command))
