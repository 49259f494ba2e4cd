"""Applies a tuned config to real training, with the seams of a trial and without a meter.

The session ends the training in a single case: when a setting is not in force after two steps.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch

from autotune.protocol.job import TrialJob
from autotune.settings import GROUP_OF_FIELD, Group, own_lines
from autotune.trial.apply.applied import AppliedSettings
from autotune.trial.loader.loaders import UNKNOWN_WORKERS, LoaderRecord, NextBatch
from autotune.trial.observed_values import Observed
from autotune.trial.report import rank_report
from autotune.trial.run_watch import Watch
from autotune.trial.run_words import EXIT_CODE, refusal_text
from autotune.verdict.in_force import missed_settings

CHECK_AFTER_STEPS = 2


class RunSession:
    """Applies the settings, reports once on stderr what is in force, and ends a training with a missed setting.

    A training with a missed setting would use another effective batch or number format than the config says. A later
    end, or an end by an exception, could make the script overwrite a better checkpoint.
    """

    def __init__(self, job: TrialJob) -> None:
        assert job.request.settings is not None and job.script_settings is not None
        self._job = job
        self._applied = AppliedSettings(job)
        # A config has the defaults of settings without effect on its device.
        is_cpu = job.device == "cpu"
        asked, own = (one.canonical(device_is_cpu=is_cpu) for one in (job.request.settings, job.script_settings))
        self._changed = tuple(name for name in asked.differences(own) if name in GROUP_OF_FIELD)
        self._has_fed = False
        is_first = rank_report.identity()[0] == 0
        self._watch = Watch(job.watch) if job.watch is not None and is_first else None

    def install(self) -> None:
        """Attaches to torch."""
        self._applied.install()
        self._applied.loaders.taker = self._taker
        self._applied.loaders.iterates = self._iterates
        self._applied.steps.on_step.append(self._stepped)
        if self._watch is not None:
            self._applied.steps.on_step.append(self._watched)

    def _watched(self, optimizer: torch.optim.Optimizer | None) -> None:
        if self._watch is not None and optimizer is self._applied.steps.primary:
            self._watch.stepped()

    def _taker(self, record: LoaderRecord) -> NextBatch | None:
        return self._applied.taking(self._next_batch) if self._applied.is_training(record.key) else None

    def _iterates(self, record: LoaderRecord, loader: Any) -> None:
        if self._applied.is_training(record.key):
            self._applied.note_loader(loader)
        elif self._applied.is_beside(record.key):
            self._applied.note_loader_beside(loader)

    def _next_batch(self, iterator: Any, original: Callable[[Any], Any]) -> Any:
        for action in self._applied.before_batch:
            action()
        began = time.monotonic() if self._watch is not None else 0.0
        try:
            batch = original(iterator)
        except StopIteration:
            self._applied.epoch_ends()
            raise
        self._has_fed = True
        if self._watch is not None:
            self._watch.waited(time.monotonic() - began)
        return batch

    def _stepped(self, _: torch.optim.Optimizer | None) -> None:
        if self._applied.steps.num_steps < CHECK_AFTER_STEPS or self._applied.is_learning:
            return
        self._applied.steps.forget(self._stepped)
        observed = self._observed()
        differences = missed_settings(self._job, observed.values).items()
        missed = {name: asked for name, (asked, _) in differences if name in observed.values}
        if missed:
            self._refuse(missed, observed)
        elif rank_report.identity()[0] == 0:
            in_force = ", ".join(f"{name} {observed.values[name]}" for name in self._changed if name in observed.values)
            sys.stderr.write(f"autotune: in force: {in_force or 'the settings of the script itself'}\n")

    def _observed(self) -> Observed:
        """Observable settings in force, by field."""
        # Accumulation comes from backward passes, since a script may take more batches than it trains on.
        observed = self._applied.counted()
        observed.update(self._applied.observed())
        facts, claims = self._job.facts, self._applied.claims
        of_loader = [n for n in self._changed if GROUP_OF_FIELD[n] in {Group.LOADER, Group.BATCH} - claims]
        if facts is not None and facts.loader is not None and not self._has_fed:
            for name in (name for name in of_loader if name not in self._job.mapped):
                observed.note(name, None, UNKNOWN_WORKERS)
        return observed

    def _refuse(self, missed: Mapping[str, object], observed: Observed) -> None:
        sys.stderr.write(refusal_text(missed, observed, own_lines(missed, self._job.config)))
        rank_report.end_process(EXIT_CODE)
