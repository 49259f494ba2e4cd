"""The `Config` in a training script: settings, and methods to apply them."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from autotune.api import fit
from autotune.api.micro_batching import note_fed
from autotune.api.own_knobs import Knob, value_of
from autotune.errors import ConfigError
from autotune.settings import (
    BY_NAME,
    GROUP_OF_FIELD,
    INERT_WITHOUT_WORKERS,
    SETTINGS,
    Group,
    Settings,
    stored_kind,
    text_of,
)
from autotune.settings.compile_mode import sizes_vary
from autotune.settings.ddp_group import ARGUMENTS, arguments_of
from autotune.settings.fit_arrays import batch_size_in
from autotune.settings.loader_group import put_in_loader
from autotune.settings.optimizer_form import forms_of
from autotune.trial.start import active_session

if TYPE_CHECKING:
    import torch

    from autotune.api.device_batches import DeviceBatches
    from autotune.api.own_accumulation import Accumulation, Scheduler
    from autotune.api.own_autocast import ForwardFormat
    from autotune.emit.tuned_config import TunedConfig

Batch = TypeVar("Batch")
Model = TypeVar("Model", bound="torch.nn.Module")
Stepper = TypeVar("Stepper", bound="torch.optim.Optimizer")


class Config:
    """Settings and methods to apply them; made by `load`.

    Each method applies one part, and tells a running trial so. The trial then reads back for itself whether the part is
    in force. Outside a search a part without a call of its method is not applied.
    """

    def __init__(
        self,
        settings: Settings,
        knobs: Mapping[str, Knob],
        *,
        applied: frozenset[str] = frozenset(GROUP_OF_FIELD),
        tuned: TunedConfig | None = None,
        share: bool = False,
    ) -> None:
        self._settings = settings
        self._knobs = dict(knobs)
        self._applied = applied
        """Fields to apply: all of a trial or a tuned config, otherwise the fields named in the call of `load`."""
        self._tuned = tuned
        self._share = share
        self._session = active_session.session
        self._claimed: set[Group] = set()
        self._in_force: dict[str, Any] = {}
        self._model: weakref.ref[torch.nn.Module] | None = None
        self._format: ForwardFormat | None = None
        """Format of the autocast regions; None before the first region."""
        self._accumulation: Accumulation | None = None

    @property
    def settings(self) -> Settings:
        """The settings to train with."""
        return self._settings

    def in_force(self) -> dict[str, Any]:
        """Settings applied so far, by name, as plain values; knobs as `knobs.NAME`."""
        return dict(self._in_force)

    def __getitem__(self, knob: str) -> Any:
        """The value of a knob declared in the call of `load`, in the type of the knob's default.

        Raises:
            ConfigError: The knob is not declared, or the value does not fit the type.
        """
        if knob not in self._knobs:
            raise ConfigError(
                f"{knob!r} is not a knob of this config.",
                f"Declare it with its default: autotune.load(..., {knob}=...); settings are under cfg.settings.",
            )
        value = value_of(knob, dict(self._settings.knobs).get(knob, ""), self._knobs[knob])
        self._in_force[f"knobs.{knob}"] = text_of(value)
        if self._session is not None:
            self._session.observe(f"knobs.{knob}", text_of(value))
        return value

    def loader_kwargs(self) -> dict[str, Any]:
        """Keyword arguments of the training DataLoader: workers, prefetch, pinning, and the micro-batch if known.

        A tuned micro-batch needs `backward`, which accumulates micro-batches to the effective batch.
        """
        self._claim(Group.LOADER, Group.BATCH)
        settings = self._settings
        kwargs: dict[str, Any] = {"num_workers": settings.num_workers}
        if settings.batch_size is not None:
            kwargs["batch_size"] = settings.batch_size
        if settings.num_workers > 0:
            changes = {
                name: getattr(settings, name)
                for name, default in INERT_WITHOUT_WORKERS.items()
                if BY_NAME[name].put_in_loader is None or getattr(settings, name) != default
            }
            self._in_force.update(changes)
            put_in_loader(changes, kwargs)
        if settings.pin_memory and fit.has_accelerator():
            kwargs["pin_memory"] = True
        given = {name: value for name, value in kwargs.items() if name in GROUP_OF_FIELD}
        self._in_force.update({"pin_memory": False, **given})
        return kwargs

    def on_device(self, batches: Iterable[Batch], device: torch.device | str) -> DeviceBatches[Batch]:
        """The batches of the training loader on the device, copied as tuned, with the loader's own attributes.

        Under `stream_prefetch` the next batch is copied while the device computes on the present batch: the loader is
        asked one batch early, and the device holds one batch more.

        Args:
            batches: The loader.
            device: Device of the model.
        """
        import torch

        from autotune.api.device_batches import DeviceBatches

        self._claim(Group.TRANSFER)
        device = torch.device(device)
        is_ahead = self._settings.stream_prefetch and device.type == "cuda"
        in_force = {"stream_prefetch": is_ahead}
        if not is_ahead:
            in_force["non_blocking"] = self._settings.non_blocking and device.type == "cuda"
        self._in_force.update(in_force)
        if self._session is not None:
            for name, value in in_force.items():
                self._session.observe(name, value)
        return DeviceBatches(batches, device, non_blocking=self._settings.non_blocking, stream_prefetch=is_ahead)

    def hand_over(self, *groups: Group) -> frozenset[str]:
        """Fields of the groups for the caller to put in force, by a framework's arguments for instance.

        All further fields of the groups are the script's own and stay. In a search the trial no longer overrides the
        groups, and only observes them.
        """
        self._claim(*groups)
        fields = frozenset(name for name in self._applied if GROUP_OF_FIELD[name] in groups)
        if "precision" in fields:
            from autotune.api.own_autocast import use_tf32

            use_tf32(self._settings.precision)
        plain = self._settings.to_dict()
        self._in_force.update({name: plain[name] for name in fields})
        return fields

    def check_loader(self, loader: Any) -> None:
        """Refuses a training loader with a wrong batch size; for frameworks that accumulate instead of `backward`.

        Raises:
            ConfigError: The loader's batch size differs from the config's, or cannot be seen; or, in a probe, the
                loader was not built from `loader_kwargs`, so no trial could change the batch size.
        """
        hint = "Build it with DataLoader(data, **cfg.loader_kwargs())."
        if self._session is not None and self._session.settings is None and Group.LOADER not in self._claimed:
            raise ConfigError("The training loader is not built from the config that accumulates.", hint)
        asked = self._settings.batch_size if "batch_size" in self._applied else None
        size = fit.batch_size_of(loader)
        if asked is not None and size != asked:
            raise ConfigError(f"The training loader has batch_size {size}, and the config says {asked}.", hint)

    def prepare(self, model: Model) -> Model:
        """The same model, in the memory format and compiled as tuned; sets threads, kernels and the memory limit too.

        The model is compiled in place, so the names in the state_dict stay. Prepare the model before the first step and
        before wrapping for distributed training.
        """
        from autotune.api.own_autocast import use_tf32
        from autotune.trial.apply.model_seams import MODEL_SEAMS
        from autotune.trial.torch import torch_names

        self._claim(Group.KERNELS, Group.THREADS)
        settings = self._settings
        for setting in SETTINGS:
            if setting.group in (Group.KERNELS, Group.THREADS) and setting.name in self._applied:
                if setting.write is not None and setting.name not in settings.inert:
                    setting.write(getattr(settings, setting.name))
                if setting.read is not None:
                    self._in_force[setting.name] = setting.read()
        torch_names.tag_stored_graphs(stored_kind(settings, Settings()))
        plain = settings.to_dict()
        for name, seam in MODEL_SEAMS.items():
            if getattr(settings, name):
                sizes = {"is_dynamic": True} if seam.has_graph and self._sizes_vary() else {}
                seam.action(settings)(model, **sizes)
            elif name in self._applied and seam.undo is not None:
                seam.undo(model)
            details = seam.details if getattr(settings, name) else ()
            for each in (name, *details):
                if each in self._applied:
                    self._in_force[each] = plain[each]
        use_tf32(settings.precision)
        self._model = weakref.ref(model)
        if self._session is None:
            self._limit_memory()
        return model

    def ddp_kwargs(self) -> dict[str, Any]:
        """Keyword arguments of DistributedDataParallel, as tuned."""
        self._claim(Group.RANKS)
        names = tuple(name for name in ARGUMENTS if name in self._applied)
        self._in_force.update({name: getattr(self._settings, name) for name in names})
        return arguments_of(self._settings, names)

    def prepare_keras(self) -> None:
        """Sets Keras' dtype policy, the engine's threads and its memory as tuned; call before the model is built.

        The engine itself is chosen before the import of Keras, by the variable KERAS_BACKEND.
        """
        self._claim(Group.PRECISION, Group.THREADS)
        for setting in self._of_keras("at_import"):
            value = getattr(self._settings, setting.name)
            setting.keras.at_import(value)
            self._in_force[setting.name] = text_of(value)

    def compile_kwargs(self, optimizer: Any) -> dict[str, Any]:
        """Keyword arguments of `keras.Model.compile`: the optimizer, accumulating as tuned, and how a step is compiled.

        Args:
            optimizer: A Keras optimizer, or its name.
        """
        self._claim(Group.KERNELS, Group.BATCH)
        return self._keras_arguments("at_compile", {"optimizer": optimizer})

    def fit_kwargs(self, x: Any, **arguments: Any) -> dict[str, Any]:
        """Keyword arguments of `keras.Model.fit`: the data with its options, and the micro-batch of arrays.

        A tuned micro-batch needs `compile_kwargs`, whose optimizer accumulates micro-batches to the effective batch.

        Args:
            x: The training data, as for `fit`.
            arguments: Further arguments of `fit` that the settings may change, such as `steps_per_epoch`.
        """
        self._claim(Group.DATA, Group.BATCH)
        given = {"x": x, **arguments}
        without = ("batch_size",) if batch_size_in(given) is None else ()
        return self._keras_arguments("at_fit", given, without)

    def _keras_arguments(self, seam: str, arguments: dict[str, Any], without: tuple[str, ...] = ()) -> dict[str, Any]:
        for setting in self._of_keras(seam):
            if setting.name in without:
                continue
            value = getattr(self._settings, setting.name)
            if value is not None:
                getattr(setting.keras, seam)(value, arguments)
                self._in_force[setting.name] = text_of(value)
        return arguments

    def _of_keras(self, seam: str) -> list[Any]:
        """Settings to put in force at a seam of Keras."""
        inert = self._settings.inert
        return [
            setting
            for setting in SETTINGS
            if getattr(setting.keras, seam, None) is not None
            and setting.name in self._applied
            and setting.name not in inert
        ]

    def optimizer(self, optimizer: Stepper) -> Stepper:
        """The same optimizer, in the tuned form; call before the first step.

        Raises:
            ConfigError: The optimizer is not torch's own, or has no form of this name.
        """
        self._claim(Group.OPTIMIZER)
        for setting in SETTINGS:
            write, read, name = setting.write_to_optimizer, setting.read_of_optimizer, setting.name
            if write is None or read is None or name not in self._applied:
                continue
            value = text_of(getattr(self._settings, name))
            if read(optimizer) != value:
                if value not in forms_of(optimizer):
                    raise ConfigError(
                        f"{type(optimizer).__name__} cannot take {name} {value}.",
                        f"Give cfg.optimizer one of torch's own optimizers, or search with --fix {name}=default.",
                    )
                write(optimizer, value)
            self._in_force[name] = value
        return optimizer

    def autocast(self) -> AbstractContextManager[Any]:
        """A region in the tuned precision for one forward pass with the loss; every micro-batch takes a new region.

        A region never left keeps old casts of the weights, and the model stops learning. Under fp16 use `backward`,
        which scales the loss.
        """
        from autotune.api.own_autocast import ForwardFormat

        self._claim(Group.PRECISION)
        if self._format is None:
            self._format = ForwardFormat(self._settings.precision, self._device_type)
            if "precision" in self._applied:
                self._in_force["precision"] = self._format.in_force().value
        return self._format.region(is_scaled=self._accumulation is not None)

    def backward(
        self,
        loss: torch.Tensor,
        optimizer: torch.optim.Optimizer,
        *,
        clip_norm: float | None = None,
        scheduler: Scheduler | None = None,
        reduction: Literal["mean", "sum"] = "mean",
    ) -> bool:
        """Adds one micro-batch's gradients, and steps after the last micro-batch of a step; True if parameters changed.

        A step unscales, clips, steps, moves the scheduler and zeroes the gradients; leave all of this to `backward`.

        Args:
            loss: Loss of one micro-batch, a scalar, not scaled yet.
            optimizer: The only optimizer of this config.
            clip_norm: Greatest norm of the whole step's gradient; None = no clipping.
            scheduler: Moved once per optimizer step; a step skipped by fp16 moves nothing.
            reduction: `mean` or `sum`: how the loss joins the samples of the micro-batch.

        Raises:
            ConfigError: The optimizer is not the first call's, or the script zeroed gradients before the step.
        """
        from autotune.api.own_accumulation import Accumulation, StepPlan

        self._claim(Group.BATCH)
        if self._accumulation is None:
            is_scaled = self._format is not None and self._format.needs_scaling
            self._accumulation = Accumulation(
                self._settings.grad_accum_steps, is_scaled=is_scaled, on_step=self._note_step
            )
        note_fed(self._accumulation)
        plan = StepPlan(optimizer=optimizer, clip_norm=clip_norm, scheduler=scheduler, is_mean=reduction == "mean")
        return self._accumulation.backward(loss, plan)

    def _note_step(self, num_micro_batches: int) -> None:
        if num_micro_batches == self._settings.grad_accum_steps:
            self._in_force["grad_accum_steps"] = num_micro_batches

    def _claim(self, *groups: Group) -> None:
        for group in groups:
            if group not in self._claimed:
                self._claimed.add(group)
                if self._session is not None:
                    self._session.claim(group)

    def _parameter(self) -> torch.nn.Parameter | None:
        """A parameter of the prepared model, for the model's device; None without a prepared model."""
        model = self._model() if self._model is not None else None
        return next(model.parameters(), None) if model is not None else None

    def _device_type(self) -> str:
        """Type of the training device: the prepared model's, otherwise `cuda` if available."""
        import torch

        parameter = self._parameter()
        if parameter is not None:
            return parameter.device.type
        return "cuda" if torch.cuda.is_available() else "cpu"

    def _sizes_vary(self) -> bool:
        """Whether the search saw batches of differing sizes, beyond a smaller last batch."""
        facts = self._tuned.script.facts if self._tuned is not None else None
        return facts is not None and sizes_vary(facts)

    def _limit_memory(self) -> None:
        """Sets the allocator's limit on CUDA, and warns of settings out of reach; a trial sets the limit itself."""
        import torch

        parameter = self._parameter()
        is_on_cuda = parameter is not None and parameter.device.type == "cuda"
        facts = self._tuned.script.facts if self._tuned is not None else None
        if not torch.cuda.is_available() or not (is_on_cuda or (facts is not None and facts.device == "cuda")):
            return
        # torch takes None for the current device here, and no torch.device without an index.
        device = parameter.device if parameter is not None and is_on_cuda else None
        properties = torch.cuda.get_device_properties(device)
        fraction = self._settings.memory_fraction
        if self._tuned is not None:
            fraction = self._tuned.memory.in_force(fraction, total_bytes=properties.total_memory, share=self._share)
        if "memory_fraction" in self._applied:
            torch.cuda.set_per_process_memory_fraction(float(fraction), device)
            self._in_force["memory_fraction"] = fraction
        for doubt in fit.cuda_doubts(self._settings, self._tuned, properties.name):
            warnings.warn(doubt, UserWarning, stacklevel=3)
