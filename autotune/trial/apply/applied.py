"""Puts settings in force at torch's seams, in a trial and in real training alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import torch

from autotune.protocol.job import Mode, TrialJob
from autotune.settings import (
    GROUP_OF_FIELD,
    INERT_ON_CPU,
    LOADER_FIELDS,
    SETTINGS,
    Group,
    Precision,
    Setting,
    Settings,
    Value,
    stored_kind,
)
from autotune.settings.compile_mode import CompileMode, sizes_vary
from autotune.settings.ddp_group import ARGUMENTS, arguments_of
from autotune.settings.precision import HALF
from autotune.trial.apply import environment_seams, observed
from autotune.trial.apply.environment_seams import CopyCount
from autotune.trial.apply.model_seams import MODEL_SEAMS
from autotune.trial.loader.copies_ahead import NOT_LEARNED, CopiesAhead
from autotune.trial.loader.loaders import Loaders, NextBatch, override_arguments
from autotune.trial.observed_values import Observed
from autotune.trial.step.autocast import AutocastRegion, use_tf32
from autotune.trial.step.gradients import Gradients
from autotune.trial.step.memory_format import align_state, align_states
from autotune.trial.step.operand_formats import OperandDetector
from autotune.trial.step.root_search import RootSearch
from autotune.trial.step.roots import Roots
from autotune.trial.step.script_autocast import OwnAutocast
from autotune.trial.step.script_compiler import ScriptCompiler
from autotune.trial.step.steps import Steps
from autotune.trial.torch import torch_names
from autotune.trial.torch.batch_structure import leading_size

UNSEEN_FORMAT = "unknown, since no layer of the model has shown it"
"""Comment on a number format put in force without a way to read it back."""
UNLIKE_LOADERS = "unknown, since the loaders that train side by side have different values"
CHANGED_GRADIENTS = "1, since the script clears or changes its gradients by hand"
"""Comment on an accumulation undone by the script."""


class AppliedSettings:
    """Installs the seams for one job, and reads back the settings in force.

    Left alone are the script's own values, the groups claimed by the script through `autotune.load`, and the fields
    mapped to arguments of the script.

    Args:
        job: A job with settings.
        steps: The watch over the optimizers, if the caller has installed the watch already.
        loaders: The watch over the loaders, if earlier settings of this process have used the watch already.
        is_later: Whether other settings were in force in this process before. A script may then hold a batch of an
            earlier size, and compiled models change after the next step only: the compiler would build a graph for the
            earlier size too.
    """

    def __init__(
        self, job: TrialJob, steps: Steps | None = None, loaders: Loaders | None = None, *, is_later: bool = False
    ) -> None:
        assert job.request.settings is not None and job.script_settings is not None and job.facts is not None
        self.loaders, self.roots = loaders if loaders is not None else Loaders(), Roots()
        self.steps = steps if steps is not None else Steps()
        self.claims: set[Group] = set(job.facts.claims)
        self._loader_settings: dict[str, Value] = {}
        self._settings_beside: list[dict[str, Value]] = []
        """Settings of the loaders beside the training loader, as read at each of their iterations."""
        self._copies: CopyCount | None = None
        self.copies_ahead: CopiesAhead | None = None
        """Copies of the training loader's batches on a side stream; None where not asked for."""
        self._job, self._facts, self._is_later = job, job.facts, is_later
        self._is_cpu = job.device == "cpu"
        self._script_settings = job.script_settings.canonical(device_is_cpu=self._is_cpu)
        asked = job.request.settings.canonical(device_is_cpu=self._is_cpu)
        self._stored_kind = stored_kind(asked, self._script_settings)
        self._asked = self._without_mapped(asked)
        self.steps.is_by_hand = job.facts.num_optimizers == 0
        if job.facts.counts_evaluations and job.samples_per_step is None:
            self.steps.counts_evaluations = lambda: True
        self._compiler = ScriptCompiler(is_used=self._script_settings.compile)
        self._search = RootSearch(
            self.roots, self.steps, may_repeat=lambda: not (self._asked.compile or self._compiler.is_used)
        )
        is_whole = self._asked.compile_mode is not CompileMode.REGIONAL
        self._operands = OperandDetector(
            lambda: (self._asked.compile and is_whole) or self._compiler.is_used,
            stays=job.serves,
        )
        self._changes_format = False
        self._input_size: int | None = None
        """Samples in the first call of the model, for a script without a loader."""
        self._region: AutocastRegion | None = None
        self._gradients: Gradients | None = None
        self._ways_back: list[Callable[[], object]] = []
        """Functions that take back settings of the process without an entry in the registry's `write`."""

    def install(self) -> None:
        """Attaches the seams of all settings that differ from the script's own."""
        self.loaders.override = self._override
        self.loaders.install()
        self.roots.around_first.append(self._operands.look)
        self.roots.compiles = lambda: self._compiler.is_used
        self._compiler.install()
        if self.has_argument_batch:
            self.roots.on_first_inputs = self._note_inputs
        waits = self._is_later and (self._asked.compile or self._compiler.is_used)
        self._search.attach(is_later=waits)
        for install in dict.fromkeys(SEAMS.values()):
            install(self)
        # Last, hence outermost: losses are noted as the script gave them, before scaling.
        self.steps.install()
        torch_names.tag_stored_graphs(self._stored_kind)
        if Group.THREADS not in self.claims:
            environment_seams.apply_threads(self._asked, self._script_settings)
        if Group.KERNELS not in self.claims:
            environment_seams.apply_kernels(
                self._asked,
                self._script_settings,
                self.roots,
                keeps_graphs=self._job.serves,
                sizes_vary=sizes_vary(self._facts),
            )
        if self._differs("channels_last", "optimizer_form"):
            self.steps.prepare.append(align_state)
        if self._of_optimizers:
            self.steps.prepare.append(lambda optimizer: self._write_to(optimizer, self._asked))
        if not waits:
            self._search.begin()

    def remove(self) -> list[str]:
        """Takes back all settings except wrapped functions of torch; returns roots that cannot be unwrapped."""
        if self._region is not None:
            self._region.close()
        self._operands.close()
        models = self.roots.modules
        left = self.roots.remove()
        torch_names.tag_stored_graphs("")
        if Group.KERNELS not in self.claims:
            environment_seams.take_back_kernels(self._asked, self._script_settings, models)
            align_states(self.steps.optimizers)  # Fused kernels refuse state in another format than the weights'.
        if Group.THREADS not in self.claims:
            environment_seams.take_back_threads(self._asked, self._script_settings)
        for optimizer in self.steps.stepping:
            self._write_to(optimizer, self._script_settings)
        for way_back in self._ways_back:
            way_back()
        return left

    def is_training(self, key: str) -> bool:
        """Whether a loader built at this place is the training loader."""
        loader = self._facts.loader
        return loader is not None and key in loader.keys

    def is_beside(self, key: str) -> bool:
        """Whether a loader built at this place trains side by side with the training loader, with its settings.

        False where the script's own `load`, or an argument, gives the settings: perhaps to a single loader.
        """
        loader = self._facts.loader
        is_ours = Group.LOADER not in self.claims and "num_workers" not in self._job.mapped
        return is_ours and loader is not None and any(key in keys for keys in loader.beside)

    def taking(self, next_batch: NextBatch) -> NextBatch:
        """The function that gives batches of the training loader to the script, under these settings."""
        return next_batch if self.copies_ahead is None else self.copies_ahead.taking(next_batch)

    @property
    def is_learning(self) -> bool:
        """Whether some settings come into force only after further batches."""
        return self.copies_ahead is not None and self.copies_ahead.in_force is None

    def note_loader(self, loader: Any) -> None:
        """Reads back the settings of the training loader, when the script begins to iterate."""
        self._loader_settings = observed.loader_settings(loader)

    def note_loader_beside(self, loader: Any) -> None:
        """Reads back the settings of a loader beside the training loader, when the script begins to iterate."""
        settings = observed.loader_settings(loader)
        if settings not in self._settings_beside:
            self._settings_beside.append(settings)

    @property
    def before_batch(self) -> tuple[Callable[[], None], ...]:
        """Actions between two micro-steps."""
        return (self._region.close,) if self._region is not None else ()

    def epoch_ends(self) -> None:
        """Steps the pending micro-batches, before the script goes on."""
        if self._gradients is not None:
            self._gradients.epoch_ends()

    def observed(self) -> Observed:
        """Settings in force."""
        seen = Observed(
            values=dict(
                observed.settings_in_force(
                    self._job.device, self.roots.modules, self._operands.precision, self.steps.stepping
                )
            )
        )
        seen.values.update(self._loader_settings)
        for name, value in self._loader_settings.items():
            is_ours = name in LOADER_FIELDS and name not in self._job.mapped
            if is_ours and any(other.get(name, value) != value for other in self._settings_beside):
                seen.note(name, None, UNLIKE_LOADERS)
        if self._changes_format and self._operands.dtype is None:
            seen.note("precision", None, UNSEEN_FORMAT)
        settings = self._job.request.settings
        if self._script_settings.compile and settings is not None and settings.compile:
            # The roots show nothing of parts or functions compiled by the script itself.
            seen.values.pop("compile", None)
        if self._copies is not None and self._copies.num_copies:
            seen.note("non_blocking", True)
        if self.copies_ahead is not None:
            is_ahead = bool(self.copies_ahead.in_force)
            seen.note("stream_prefetch", is_ahead, "" if is_ahead else NOT_LEARNED)
        if self._gradients is not None and self._gradients.are_changed_by_script:
            seen.note("grad_accum_steps", 1, CHANGED_GRADIENTS)
        return seen

    @property
    def has_argument_batch(self) -> bool:
        """Whether the script has no loader, and takes its batch from its arguments."""
        return self._facts.argument_batch is not None

    def counted(self) -> Observed:
        """Accumulation by backward passes per step, when autotune or an argument accumulates; empty otherwise."""
        seen = Observed()
        if self.has_argument_batch and self.steps.num_updates:
            seen.note("batch_size", self._input_size)
            seen.note("grad_accum_steps", max(1, round(self.steps.num_backwards / self.steps.num_updates)))
            return seen
        if not self.steps.num_updates or not self._differs("grad_accum_steps"):
            return seen
        num_micro_batches = (
            self.steps.num_backwards * self._script_settings.grad_accum_steps / self._facts.num_backwards_per_step
        )
        num_micro_batches += self._gradients.num_missing if self._gradients is not None else 0
        seen.note("grad_accum_steps", max(1, round(num_micro_batches / self.steps.num_updates)))
        return seen

    def _note_inputs(self, inputs: Any) -> None:
        self._input_size = leading_size(inputs)

    def _override(self, key: str, arguments: dict[str, Any]) -> dict[str, Any]:
        is_training = self.is_training(key)
        if not is_training and not self.is_beside(key):
            return arguments
        if is_training:
            self._accumulate_by_variable()
        changes: dict[str, Any] = {}
        if Group.LOADER not in self.claims and self._differs(*LOADER_FIELDS):
            changes = {name: getattr(self._asked, name) for name in LOADER_FIELDS if name not in self._job.mapped}
            changes = {name: value for name, value in changes.items() if not (self._is_cpu and name in INERT_ON_CPU)}
        if is_training and Group.BATCH not in self.claims and self._differs("batch_size"):
            changes["batch_size"] = self._asked.batch_size
        return override_arguments(arguments, changes) if changes else arguments

    @property
    def _takes_variable(self) -> bool:
        """Whether the script accumulates by a variable of its own."""
        is_free = Group.BATCH not in self.claims and "grad_accum_steps" not in self._job.mapped
        return is_free and bool(self._facts.accumulation_variable)

    def _accumulate_by_variable(self) -> None:
        """Gives the script's variable the value asked for, once the script has set the variable."""
        if self._takes_variable and self._differs("grad_accum_steps"):
            number, before = self._asked.grad_accum_steps, self._script_settings.grad_accum_steps
            if environment_seams.set_variable(self._facts.accumulation_variable, number):
                way_back = partial(environment_seams.set_variable, self._facts.accumulation_variable, before)
                self._ways_back.append(way_back)

    def _limit_memory(self) -> None:
        if not self._is_cpu:
            way_back = environment_seams.apply_memory(self._asked, self._job.cap_fraction)
            if way_back is not None:
                self._ways_back.append(way_back)

    def _copy_without_waiting(self) -> None:
        if not self._is_cpu and Group.TRANSFER not in self.claims:
            self._copies = environment_seams.apply_transfer(self._asked, self._script_settings)

    def _copy_ahead(self) -> None:
        if self._is_cpu or Group.TRANSFER in self.claims or not self._asked.stream_prefetch:
            return
        if self._differs("stream_prefetch"):
            is_real = self._job.mode is not Mode.TRIAL
            self.copies_ahead = CopiesAhead(lambda: self.steps.num_updates, looks_ahead=is_real)
            self.copies_ahead.install()
            self._ways_back.append(self.copies_ahead.close)

    def _wrap_model_for_ranks(self) -> None:
        names = tuple(name for name in ARGUMENTS if self._differs(name) and Group.RANKS not in self.claims)
        prepare = None
        if self._differs("channels_last") and Group.KERNELS not in self.claims:
            seam = MODEL_SEAMS["channels_last"]
            prepare = seam.apply if self._asked.channels_last else seam.undo
        if names or prepare is not None:
            environment_seams.apply_ranks(arguments_of(self._asked, names), prepare)

    def _install_precision_and_gradients(self) -> None:
        precision = self._asked.precision if self._differs("precision") else Precision.FP32
        if Group.PRECISION in self.claims:
            precision = Precision.FP32
        self._changes_format = precision is not Precision.FP32
        is_scaled = precision is Precision.FP16
        accumulation = self._asked.grad_accum_steps if self._differs("grad_accum_steps") else 1
        if Group.BATCH in self.claims or self._takes_variable:
            accumulation = 1
        self._accumulate_by_variable()
        if accumulation > 1 or is_scaled:
            self._gradients = Gradients(
                self.steps,
                grad_accum_steps=accumulation,
                reduction=self._facts.loss_reduction,
                scaled_on=self._job.device if is_scaled else None,
            )
            self._gradients.install()
        if precision is Precision.TF32:
            self._ways_back.append(use_tf32())
        elif precision in HALF and self._facts.own_autocast is not None:
            own = OwnAutocast(self._job.device, precision)
            own.install()
            self._ways_back.append(own.take_back)
        elif precision in HALF:
            self._region = AutocastRegion(self._job.device, precision)
            self._region.install(self.roots)

    @property
    def _of_optimizers(self) -> list[Setting]:
        """Settings of the optimizers to put in force."""
        able = [each for each in SETTINGS if each.write_to_optimizer and each.group not in self.claims]
        return [each for each in able if self._differs(each.name)]

    def _write_to(self, optimizer: torch.optim.Optimizer, settings: Settings) -> None:
        for setting in self._of_optimizers:
            assert setting.write_to_optimizer is not None
            setting.write_to_optimizer(optimizer, getattr(settings, setting.name))

    def _differs(self, *names: str) -> bool:
        return any(getattr(self._asked, name) != getattr(self._script_settings, name) for name in names)

    def _without_mapped(self, asked: Settings) -> Settings:
        """Settings for the seams: mapped fields keep the script's own values, since arguments carry the others."""
        plain, script_settings = asked.to_dict(), self._script_settings.to_dict()
        plain.update({name: script_settings[name] for name in self._job.mapped if name in GROUP_OF_FIELD})
        return Settings.from_dict(plain)


SEAMS: Mapping[str, Callable[[AppliedSettings], None]] = MappingProxyType(
    {
        "grad_accum_steps": AppliedSettings._install_precision_and_gradients,
        "precision": AppliedSettings._install_precision_and_gradients,
        "memory_fraction": AppliedSettings._limit_memory,
        "non_blocking": AppliedSettings._copy_without_waiting,
        "stream_prefetch": AppliedSettings._copy_ahead,
        **dict.fromkeys(ARGUMENTS, AppliedSettings._wrap_model_for_ranks),
    }
)
"""Seams of the settings without a loader's argument, a switch of the process, or an entry in `MODEL_SEAMS`."""
