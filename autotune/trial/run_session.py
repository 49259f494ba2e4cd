"""Real training under a tuned config: the same seams as in a trial, no meter, and never an end of our making."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch

from autotune.model.job import TrialJob
from autotune.settings import Settings
from autotune.trial.applied import AppliedSettings
from autotune.trial.loaders import UNKNOWN_WORKERS, LoaderRecord

CHECK_AFTER_STEPS = 2


class RunSession:
    """Applies the settings, and says once on stderr what is in force."""

    def __init__(self, job: TrialJob) -> None:
        self._job = job
        self._applied = AppliedSettings(job)
        self._num_micro_batches = 0

    def install(self) -> None:
        """Attaches to torch."""
        self._applied.install()
        self._applied.loaders.taker = lambda record: self._next_batch if self._applied.is_training(record.key) else None
        self._applied.loaders.iterates = self._iterates
        self._applied.steps.on_step.append(self._stepped)

    def _iterates(self, record: LoaderRecord, loader: Any) -> None:
        if self._applied.is_training(record.key):
            self._applied.note_loader(loader)

    def _next_batch(self, iterator: Any, original: Callable[[Any], Any]) -> Any:
        for action in self._applied.before_batch:
            action()
        try:
            batch = original(iterator)
        except StopIteration:
            self._applied.epoch_ends()
            raise
        self._num_micro_batches += 1
        return batch

    def _stepped(self, _: torch.optim.Optimizer | None) -> None:
        if self._applied.steps.num_steps < CHECK_AFTER_STEPS:
            return
        self._applied.steps.forget(self._stepped)
        observed: dict[str, str] = {}
        if self._num_micro_batches:
            observed["grad_accum_steps"] = str(round(self._num_micro_batches / self._applied.steps.num_steps))
        observed.update(self._applied.observed())
        if self._job.facts is not None and self._job.facts.loader is not None and not self._num_micro_batches:
            observed["num_workers"] = UNKNOWN_WORKERS
        self._say(observed)

    def _say(self, observed: dict[str, str]) -> None:
        settings, natural = self._job.settings, self._job.natural
        assert isinstance(settings, Settings) and isinstance(natural, Settings)
        asked = {name: str(value) for name, value in settings.to_dict().items() if name in observed}
        missed = [f"{name} {observed[name]}, not {value}" for name, value in asked.items() if observed[name] != value]
        changed = [name for name in settings.differences(natural) if name in observed]
        in_force = ", ".join(f"{name} {observed[name]}" for name in changed) or "the script's own settings"
        sys.stderr.write(f"autotune: in force: {in_force}\n")
        if missed:
            sys.stderr.write(f"autotune: NOT in force: {'; '.join(missed)}\n")
