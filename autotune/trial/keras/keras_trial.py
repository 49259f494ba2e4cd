"""Measures a script that trains by Keras or in its own loop, and ends the process."""

from __future__ import annotations

import math
from collections.abc import Mapping
from time import perf_counter
from typing import Any

from autotune.measure.block import Phase
from autotune.measure.window_stopping import StopReason
from autotune.model.keras_facts import DataKind
from autotune.model.result import RankResult, RankStatus
from autotune.protocol.job import Mode, TrialJob
from autotune.protocol.paths import TrialPaths
from autotune.protocol.progress_marks import Mark
from autotune.settings import Group, Settings, Value
from autotune.settings.dataset_workers import seen
from autotune.settings.fit_arrays import batch_size_in, samples_in
from autotune.trial.keras import engines
from autotune.trial.keras.fenced_clock import FencedClock
from autotune.trial.keras.fit_data import batches_in
from autotune.trial.keras.fit_seams import Arguments
from autotune.trial.keras.keras_session import KerasSession
from autotune.trial.keras.keras_settings import KerasSettings
from autotune.trial.keras.training_steps import TrainingSteps
from autotune.trial.keras.window_look import WindowLook
from autotune.trial.meter.counters import declared_samples
from autotune.trial.meter.durations import PartTimes
from autotune.trial.meter.host_memory import PassingWatch, held_bytes
from autotune.trial.meter.measuring_plan import Plan
from autotune.trial.meter.meter import Meter
from autotune.trial.meter.rank_sync import Agreement, Progress
from autotune.trial.observed_values import Observed
from autotune.trial.report import rank_report
from autotune.trial.report.failure import describe

MANY_EPOCHS = 1_000_000
"""Epochs of a trial's `fit`: more than any measurement needs, or the script would end first."""
QUEUED = 16
"""Assumed batches ready in a queue of tf.data or of a PyDataset; the ramp uses twice as many."""
QUEUES = (DataKind.TF_DATA, DataKind.PY_DATASET, DataKind.GENERATOR, DataKind.TORCH_LOADER)


class KerasTrial(KerasSession):
    """A trial, or a counted run, of a script with a `facts.keras`.

    A counted run keeps the epochs and the validation of the script, and takes no cached batch.

    Args:
        job: Settings, facts and limits.
        paths: The trial's files.
        times: Times of the trial's parts so far.
    """

    def __init__(self, job: TrialJob, paths: TrialPaths, times: PartTimes) -> None:
        super().__init__()
        assert job.facts is not None and job.facts.keras is not None and job.request.settings is not None
        self._job, self._paths, self._times = job, paths, times
        self._facts, self._keras = job.facts, job.facts.keras
        self._asked = job.request.settings
        self._is_counted = job.mode is Mode.RUN
        self._settings = KerasSettings(job)
        self._steps = TrainingSteps(self._asked.grad_accum_steps * self._keras.accumulates)
        self._clock = FencedClock(None)
        self._meter: Meter | None = None
        self._set_by_script = Observed()
        self._passing: PassingWatch | None = None
        self._weights: list[Any] = []
        """Copies of small weights after the first update."""
        self._weights_of_epoch: list[Any] = []
        """Copies from the end of an epoch on: on JAX the validation takes the weights over."""
        self._outputs: Any = None
        self._ended_s = 0.0
        """End of the last training call, in seconds of `time.perf_counter`."""
        self._is_paused = False
        self._compute_s, self._compute_batches = 0.0, 0
        """Seconds and batches of the calls on the cached batch, for the wait inside a compiled step."""
        self._lag_s = 0.0
        """Seconds of real calls beyond the calls on the cached batch."""
        self._look = WindowLook()
        self._is_reported = False
        self._end_watch = rank_report.EndWatch(self._report_error, self._report_end)

    # For `autotune.load` ------------------------------------------------------------------------------------------

    @property
    def settings(self) -> Settings | None:
        """The settings of this run; None for the script's own."""
        return None if self._asked == self._job.script_settings else self._asked

    def claim(self, group: Group) -> None:
        """Notes that the script applies this group itself."""
        self._settings.claims.add(group)

    def declare_knobs(self, defaults: Mapping[str, str]) -> None:
        """Does nothing: the knobs are known from the probe."""

    def observe(self, field: str, value: Value) -> None:
        """Notes a setting put in force by the script."""
        self._set_by_script.note(field, value)

    # Seams --------------------------------------------------------------------------------------------------------

    def install(self) -> None:
        """Attaches to Keras, and to all ways of the script to end."""
        super().install()
        self.feed.uses_cache = self._uses_cache
        self.feed.keeps_iterator = self._job.diagnoses
        self.feed.steps_per_call = max(1, self._asked.steps_per_execution)
        loader = self._facts.loader
        self.feed.batch_samples = self._asked.batch_size or (loader.batch_size if loader is not None else None) or 0
        self._end_watch.install()

    def attached(self) -> None:
        """Puts the settings of the process in force."""
        if self._keras.version:
            self._settings.at_import()

    def before_compile(self, arguments: Arguments) -> None:
        """Puts settings in force in a model."""
        self._settings.at_compile(arguments)

    def before_fit(self, model: Any, arguments: Arguments) -> None:
        """Puts settings in force in the data; lets a trial's training go on without an end."""
        self._settings.at_fit(model, arguments)
        if not self._is_counted:
            first = int(arguments.get("initial_epoch") or 0)
            arguments["epochs"] = first + MANY_EPOCHS
            if arguments.get("validation_data") is not None or arguments.get("validation_split"):
                arguments["validation_steps"] = 1  # The validation belongs to no rate.
        self.feed.epoch_batches, self.feed.epoch_samples = batches_in(arguments), samples_in(arguments)
        self.feed.batch_samples = batch_size_in(arguments) or self.feed.batch_samples
        super().before_fit(model, arguments)

    def epoch_begins(self) -> None:
        """Ends a pause: from the last step of an epoch on, the script validates and saves."""
        if self._is_paused:
            self._is_paused = False
            self._clock.leave_out(perf_counter() - self._ended_s)

    def epoch_ends(self) -> None:
        """Begins a pause, after the last step's end."""
        super().epoch_ends()
        if not self._is_paused and self._steps.num_backwards:
            self._is_paused = True
            self._clock.finish()
            self._ended_s = perf_counter()
            self._weights_of_epoch = self._small_weights() if self._weights else []

    def arrives(self) -> None:
        """Ends the step before; may end the trial."""
        meter = self._meter
        if meter is not None:
            meter.arrive()
        elif self._steps.num_updates > 0:
            self._meter = self._start_meter()
        elif self._passing is None:
            self._passing = PassingWatch()

    def trained(self, outputs: Any, began: float) -> None:
        """Counts the batches of a call."""
        self._ended_s = perf_counter()
        self._outputs, self._weights_of_epoch = outputs, []
        self._clock.note(engines.logs_of(self.engine, outputs))
        taken, steps, meter = self.feed.taken, self._steps, self._meter
        steps.trained(taken.num_batches)
        if meter is None:
            if steps.num_updates and not self._weights:
                self._first_update()
            return
        wait_s = taken.wait_s or self._hidden_wait_s(meter, self._ended_s - began, taken.num_batches)
        # On torch the loop takes the batches before the call; on TensorFlow and JAX the call takes the batches.
        self._look.inside_s += self._ended_s - began - (0.0 if self.engine == "torch" else wait_s)
        per_batch, wait_s = taken.num_samples / taken.num_batches, wait_s / taken.num_batches
        for _ in range(taken.num_batches):
            meter.counters.delivered(per_batch, wait_s)

    def _hidden_wait_s(self, meter: Meter, elapsed_s: float, num_batches: int) -> float:
        """Seconds of a compiled step's wait for batches that Python does not see.

        The calls on the cached batch have shown the time without a wait. Single differences are noise; only growth of
        the sum counts.
        """
        if meter.uses_cached_batch:
            if meter.phase is Phase.COMPUTE:
                self._compute_s += elapsed_s
                self._compute_batches += num_batches
            return 0.0
        if not self._compute_batches or not self.feed.is_read_unseen:
            return 0.0
        self._lag_s += elapsed_s - num_batches * self._compute_s / self._compute_batches
        grown_s = min(elapsed_s, max(0.0, self._lag_s))
        self._lag_s -= grown_s
        return grown_s

    # The meter ----------------------------------------------------------------------------------------------------

    def _uses_cache(self) -> bool:
        if self._is_counted or not self._can_cache:
            return False
        return self._meter is None or self._meter.uses_cached_batch

    @property
    def _can_cache(self) -> bool:
        """Whether `fit` makes the batches: the cached batch can take the place of all.

        Keras waits at an epoch's end for the workers of a PyDataset, and the workers wait for room in the queue: the
        training has to take every batch.
        """
        if int(seen("workers", self.fit) or 1) > 1:
            return False
        return self.seams.depth == 1 and self._keras.data not in (DataKind.BATCHES, DataKind.OTHER)

    def _first_update(self) -> None:
        if self._keras.version:
            self._settings.note_model(self.model)
            self._weights = self._small_weights()
        device = engines.device_of(self.engine)
        waits = engines.waiter(self.engine, device)
        self._clock = FencedClock(waits)
        Progress(self._paths.progress).put(Mark.STEPS, 1)

    def _small_weights(self) -> list[Any]:
        """Copies of small weights; empty where the script has given JAX's arrays away meanwhile."""
        is_state = self.engine == "jax" and isinstance(self._outputs, tuple)
        try:
            return engines.small_weights(self.engine, self.model, self._outputs[1] if is_state else None)
        except RuntimeError:
            return []

    def _start_meter(self) -> Meter:
        rank, world_size = rank_report.identity()
        incumbent = self._job.request.incumbent_samples_per_second
        loader, accumulated = self._facts.loader, self._asked.grad_accum_steps * self._keras.accumulates
        has_queue = self._keras.data in QUEUES
        plan = Plan(
            rule=self._job.request.window,
            has_loader=True,
            num_workers=0,
            num_queued=QUEUED if has_queue else 0,
            micro_batches_per_step=math.lcm(accumulated, self.feed.steps_per_call),
            incumbent_samples_per_second=incumbent,
            samples_per_step=declared_samples(self._job.samples_per_step, counts_batches=True, world_size=world_size),
            can_cache=not self._is_counted and self._can_cache and self.feed.can_repeat,
            batches_vary=loader is not None and loader.batches_vary,
            script_steps=self._job.script_steps,
        )
        return Meter(
            plan,
            steps=self._steps,
            clock=self._clock,
            agreement=Agreement(Progress(self._paths.progress), rank, world_size),
            open_gate=lambda: self._open_gate(has_queue),
            finish=self._finish,
            at_phase=self._look.phase_began,
        )

    def _open_gate(self, has_queue: bool) -> bool:
        """Begins with real batches; returns whether no queue can be full."""
        self.feed.drop()
        return not has_queue

    # The end ------------------------------------------------------------------------------------------------------

    def _finish(self, reason: StopReason) -> None:
        status = RankStatus.RACED_OUT if reason is StopReason.RACED_OUT else RankStatus.MEASURED
        self._write(status, is_converged=reason is StopReason.CONVERGED)
        rank_report.end_process()

    def _report_end(self) -> None:
        if not self._is_reported and (self._steps.num_backwards or rank_report.is_main_process()):
            self._write(RankStatus.ENDED)

    def _report_error(self, error: BaseException) -> None:
        if not self._is_reported and (self._steps.num_backwards or rank_report.is_main_process()):
            self._write(RankStatus.RAISED, error=error)

    def _write(self, status: RankStatus, *, is_converged: bool = False, error: BaseException | None = None) -> None:
        self._is_reported = True
        rank, world_size = rank_report.identity()
        meter, observed = self._meter, self._settings.observed()
        observed.update(self._set_by_script)
        has_blocks = meter is not None and error is None
        result = RankResult(
            rank=rank,
            world_size=world_size,
            status=status,
            blocks=meter.blocks() if meter is not None and has_blocks else (),
            is_converged=is_converged,
            compute_samples_per_second=meter.compute_samples_per_second if meter is not None else None,
            observed=observed.values,
            observed_comments=observed.comments,
            held_host_bytes=held_bytes(),
            passing_host_bytes=self._passing.most_bytes() if self._passing is not None else None,
            durations_s=self._times.until_now(meter.entered_at if meter is not None else {}),
            is_loss_finite=error is not None or self._is_finite(),
            has_changed_parameters=error is not None or self._has_changed(),
            num_steps=self._steps.num_steps,
            error=describe(error) if error is not None else None,
            observation=self._look.observation(meter.blocks(), self._facts, self.feed.iterator)
            if self._job.diagnoses and meter is not None and has_blocks
            else None,
        )
        rank_report.write(self._paths, result, is_bystander=not self._steps.num_backwards)

    def _is_finite(self) -> bool:
        logs = engines.logs_of(self.engine, self._outputs)
        loss = logs.get("loss") if isinstance(logs, dict) else None
        return loss is None or math.isfinite(float(loss))

    def _has_changed(self) -> bool:
        if not self._weights or self._steps.num_updates < 2:
            return True
        return engines.has_changed(self._weights, self._weights_of_epoch or self._small_weights())
