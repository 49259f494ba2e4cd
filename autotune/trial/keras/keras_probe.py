"""Watches a Keras script under its own settings, and makes facts for the search; measures nothing."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from autotune.model.facts import BatchSamplerKind, LoaderFacts, LossReduction, ScriptFacts
from autotune.model.keras_facts import DataKind, KerasFacts
from autotune.model.result import RankResult, RankStatus
from autotune.protocol.job import TrialJob
from autotune.protocol.paths import TrialPaths
from autotune.protocol.progress_marks import Mark
from autotune.settings import Group, Settings, Value
from autotune.settings.fit_arrays import batch_size_in, leaves, samples_in
from autotune.settings.jit_compile import as_value
from autotune.settings.omp_wait_policy import wait_policy_in_force
from autotune.settings.precision import keras_layers
from autotune.settings.tf_data_autotune import read_autotune
from autotune.settings.tf_data_cpu_budget import read_cpu_budget
from autotune.settings.tf_data_deterministic import read_deterministic
from autotune.settings.tf_data_ram_budget import read_ram_budget
from autotune.settings.tf_data_threads import read_threads
from autotune.trial.keras import engines
from autotune.trial.keras.fit_data import batches_in, kind_of
from autotune.trial.keras.fit_seams import Arguments, has_batch_callbacks
from autotune.trial.keras.keras_session import KerasSession
from autotune.trial.keras.keras_settings import readings
from autotune.trial.keras.script_engines import script_engines
from autotune.trial.keras.untrained import RawLoops
from autotune.trial.meter.rank_sync import Progress
from autotune.trial.probe.imports import early_environment, imported_modules, installed_modules
from autotune.trial.report import rank_report
from autotune.trial.report.failure import describe
from autotune.trial.start import active_session
from autotune.trial.torch.patching import wrap

NUM_CALLS = 8
"""Calls of the training function in a probe: the first two compile, the rest give the duration of a step."""
LONG_CALLS, LONG_S = 3, 20.0
"""Number of calls and duration that end the probe of a script with long steps."""
MEANS = ("sum_over_batch_size", "mean", "mean_with_sample_weight")
"""Reductions of Keras' losses by which the losses of micro-batches average to the loss of the batch."""


class KerasProbe(KerasSession):
    """A probe, from the import of Keras, or from the first `autotune.step`, to the facts.

    Args:
        job: The job of the probe.
        paths: Files of the run.
        started_at: Time of the tuner's request, in seconds of `time.monotonic`.
    """

    def __init__(self, job: TrialJob, paths: TrialPaths, started_at: float) -> None:
        super().__init__()
        self._job, self._paths, self._started_at = job, paths, started_at
        self._progress = Progress(paths.progress)
        self._early_environment = early_environment()
        self._raw = RawLoops()
        self._claims: set[Group] = set()
        self._knobs: dict[str, str] = {}
        self._own_arguments: Arguments = {}
        """Arguments of `fit`, as given by the script."""
        self._sets_policy = False
        self._ends: list[float] = []
        self._num_samples: list[float] = []
        self._num_batches: list[int] = []
        self._first_loss: float | None = None
        self._batch_bytes = 0
        self._is_reported = False

    # For `autotune.load` ------------------------------------------------------------------------------------------

    @property
    def settings(self) -> Settings | None:
        """A probe runs under the defaults of the script's call."""
        return None

    def claim(self, group: Group) -> None:
        """Notes that the script applies this group itself."""
        self._claims.add(group)

    def declare_knobs(self, defaults: Mapping[str, str]) -> None:
        """Notes the script's knobs."""
        self._knobs.update(defaults)

    def observe(self, field: str, value: Value) -> None:
        """Does nothing: a probe compares no settings."""

    # Seams --------------------------------------------------------------------------------------------------------

    def install(self) -> None:
        """Attaches to Keras, and to all ways of the script to end."""
        super().install()
        self.feed.keeps_sizes = True
        rank_report.EndWatch(self._report_error, self._report_end).install()

    def imported(self, name: str) -> None:
        """Watches for training outside of Keras' own loops."""
        super().imported(name)
        self._raw.watch(name)

    def attached(self) -> None:
        """Watches for dtype policies of the script's own."""
        import keras

        def make(original: Any) -> Any:
            def set_policy(*args: Any, **kwargs: Any) -> Any:
                self._sets_policy = True
                return original(*args, **kwargs)

            return set_policy

        for owner, name in ((keras.config, "set_dtype_policy"), (keras.mixed_precision, "set_global_policy")):
            if hasattr(owner, name):
                wrap(owner, name, make)

    def before_fit(self, model: Any, arguments: Arguments) -> None:
        """Notes what the script asks for."""
        if not self._own_arguments:
            self._own_arguments = dict(arguments)
        self.feed.epoch_batches, self.feed.epoch_samples = batches_in(arguments), samples_in(arguments)
        super().before_fit(model, arguments)

    def arrives(self) -> None:
        """Takes the lead over the probe of torch, before the first call that trains."""
        if self._ends:
            return
        if active_session.session is not self:
            stand_down = getattr(active_session.session, "stand_down", None)
            if stand_down is not None:
                stand_down()
            active_session.session = self
        self.feed.steps_per_call = int(getattr(self.model, "steps_per_execution", 1) or 1)
        if self.model is not None and self.seams.depth:
            self.feed.uses_cache = lambda: not self._ends  # Keeps the first batch, to know the size.

    def trained(self, outputs: Any, began: float) -> None:
        """Notes a call of the training function; may end the process."""
        logs = engines.logs_of(self.engine, outputs)
        waits = engines.waiter(self.engine, engines.device_of(self.engine)) if not self._ends else self._waits
        self._waits = waits
        if waits is not None:
            waits(logs)
        self._ends.append(time.monotonic())
        taken = self.feed.taken
        self._num_samples.append(taken.num_samples)
        self._num_batches.append(taken.num_batches)
        if len(self._ends) == 1:
            loss = logs.get("loss") if isinstance(logs, dict) else None
            self._first_loss = float(loss) if loss is not None else None
            self._batch_bytes = engines.num_bytes(self.feed.cached)
            self.feed.drop()
        self._progress.put(Mark.STEPS, sum(self._num_batches))
        if self._has_seen_enough:
            self._report(RankStatus.PROBED)
            rank_report.end_process()

    _waits: Any = None

    @property
    def _has_seen_enough(self) -> bool:
        num = len(self._ends)
        is_long = num >= LONG_CALLS and self._ends[-1] - self._ends[0] > LONG_S
        return is_long or num >= NUM_CALLS

    # Facts --------------------------------------------------------------------------------------------------------

    def facts(self) -> ScriptFacts:
        """All facts of the script."""
        seen = readings(self.model, self.fit) if self.model is not None and "keras" in sys.modules else {}
        keras, layers = self._keras_facts(seen), keras_layers(self.model) if self.model is not None else []
        weights = list(self.model.trainable_variables) if self.model is not None and layers else []
        ends, per_call = self._ends, self._num_batches[-1] / keras.accumulates if self._num_batches else 1.0
        kinds = [type(layer).__name__ for layer in layers]
        sizes = [_size(weight) for weight in weights]
        optimizer = getattr(self.model, "optimizer", None)
        return ScriptFacts(
            device=engines.device_of(self.engine),
            world_size=rank_report.identity()[1],
            loader=self._loader(keras),
            num_micro_batches_per_step=keras.accumulates,
            num_backwards_per_step=keras.accumulates,
            num_optimizers=1,
            optimizer=type(optimizer).__name__ if optimizer is not None else "",
            uses_closure=False,
            num_batch_norms=sum("BatchNormalization" in kind for kind in kinds),
            num_convolutions=sum("Conv" in kind for kind in kinds),
            num_root_modules=1,
            own_autocast=None,
            own_grad_scaler=False,
            own_compile=False,
            own_threads=False,
            own_cudnn_benchmark=False,
            own_memory_fraction=False,
            loss_reduction=self._reduction(layers),
            first_loss=self._first_loss,
            first_grad_norm=None,
            intra_op_threads=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
            omp_wait_policy=wait_policy_in_force().value,
            precision=str(seen.get("precision", "fp32")),
            claims=tuple(sorted(self._claims)),
            knobs=tuple(sorted(self._knobs.items())),
            modules=imported_modules(),
            imports=installed_modules(),
            early_environment=self._early_environment,
            torch_version=engines.engine_version(self.engine),
            num_parameters=sum(sizes),
            parameter_bytes=4 * sum(sizes),
            first_step_s=ends[0] - self._started_at if ends else 0.0,
            step_s=_usual_gap(ends) / per_call if ends else 0.0,
            num_steps=sum(self._num_batches),
            leading_size=self._leading_size(),
            keras=keras,
        )

    def _keras_facts(self, seen: Mapping[str, Value | None]) -> KerasFacts:
        module, model = sys.modules.get("keras"), self.model
        if module is None or model is None:
            return KerasFacts(version="", engine=self.engine, data=DataKind.BATCHES, trains_on_batch=True)
        fit, own = self._own_arguments, self.seams.compile_arguments
        layers = [layer.dtype_policy.name for layer in keras_layers(model)]
        return KerasFacts(
            version=str(module.__version__),
            engine=self.engine,
            installed_engines=engines.installed_engines(),
            script_engines=script_engines(),
            data=kind_of(fit) if fit else DataKind.BATCHES,
            jit_compile=as_value(own.get("jit_compile", "auto")).value,
            runs_eagerly=bool(model.run_eagerly),
            steps_per_execution=int(model.steps_per_execution),
            sets_policy=self._sets_policy or any(name != "float32" for name in layers),
            has_batch_callbacks=has_batch_callbacks(fit.get("callbacks")),
            trains_on_batch=not fit,
            own_train_step=not type(model).train_step.__module__.startswith("keras."),
            accumulates=int(seen.get("grad_accum_steps") or 1),
            dataset_workers=int(seen.get("dataset_workers") or 1),
            dataset_multiprocessing=bool(seen.get("dataset_multiprocessing", False)),
            dataset_queue=int(seen.get("dataset_queue") or 10),
            tf_data_threads=read_threads(fit) or 0,
            tf_data_deterministic=read_deterministic(fit) is not False,
            tf_data_autotune=read_autotune(fit) is not False,
            tf_data_ram_budget=read_ram_budget(fit) or 0,
            tf_data_cpu_budget=read_cpu_budget(fit) or 0,
        )

    def _loader(self, keras: KerasFacts) -> LoaderFacts:
        """The training data in the form of a loader: the batches that Keras trains on."""
        fit, size = self._own_arguments, self._leading_size()
        makes_batches = keras.data is DataKind.ARRAYS
        return LoaderFacts(
            keys=(),
            dataset=keras.data.value,
            is_iterable=not makes_batches,
            num_workers=0,
            prefetch_factor=2,
            pin_memory=False,
            persistent_workers=False,
            batch_size=batch_size_in(fit) if makes_batches else size,
            drop_last=False,
            batch_sampler=BatchSamplerKind.DEFAULT if makes_batches else BatchSamplerKind.NONE,
            num_batches=batches_in(fit) if fit else None,
            num_samples=samples_in(fit) if fit else None,
            batch_bytes=self._batch_bytes,
            is_read_before_training=False,
            batches_vary=len(self.feed.sizes) > 1,
        )

    def _leading_size(self) -> int | None:
        """Samples of the first batch; None before any."""
        if not self._num_samples:
            return None
        return max(1, round(self._num_samples[0] / self._num_batches[0]))

    def _reduction(self, layers: list[Any]) -> LossReduction:
        """How the losses of micro-batches combine under the optimizer's mean of gradients."""
        if any(getattr(layer, "mask_zero", False) or type(layer).__name__ == "Masking" for layer in layers):
            return LossReduction.TOKEN_MEAN
        losses = list(leaves(getattr(self.model, "loss", None)))
        known = [isinstance(loss, str) or getattr(loss, "reduction", MEANS[0]) in MEANS for loss in losses]
        return LossReduction.MEAN if losses and all(known) else LossReduction.UNKNOWN

    # The end ------------------------------------------------------------------------------------------------------

    def _report(self, status: RankStatus) -> None:
        self._is_reported = True
        rank, world_size = rank_report.identity()
        result = RankResult(
            rank=rank,
            world_size=world_size,
            status=status,
            num_steps=sum(self._num_batches),
            facts=self.facts() if self._ends else None,
            first_losses=() if self._first_loss is None else (self._first_loss,),
            untrained=self._raw.advice() if not self._ends else "",
        )
        rank_report.write(self._paths, result, is_bystander=not self._ends)

    def _report_end(self) -> None:
        if self._leads_or_alone:
            self._report(RankStatus.PROBED if self._ends else RankStatus.ENDED)

    def _report_error(self, error: BaseException) -> None:
        if not self._leads_or_alone:
            return
        self._is_reported = True
        rank, world_size = rank_report.identity()
        result = RankResult(rank=rank, world_size=world_size, status=RankStatus.RAISED, error=describe(error))
        rank_report.write(self._paths, result, is_bystander=not self._ends)

    @property
    def _leads_or_alone(self) -> bool:
        """Whether the report is this session's: it trains, or no other session may."""
        if self._is_reported or not (self._ends or rank_report.is_main_process()):
            return False
        return bool(self._ends) or active_session.session in (None, self) or self._raw.has_trained


def _usual_gap(ends: list[float]) -> float:
    """Median seconds between two calls after the first two, which compile; 0 for a single call."""
    gaps = sorted(later - earlier for earlier, later in pairwise(ends))
    late = sorted(later - earlier for earlier, later in pairwise(ends[1:])) or gaps
    return late[len(late) // 2] if late else 0.0


def _size(weight: Any) -> int:
    size = 1
    for length in weight.shape:
        size *= int(length)
    return size
