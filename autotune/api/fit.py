"""Whether a tuned config fits the loading process: refuses certain faults, and warns of doubts."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from autotune import host
from autotune.errors import ConfigError
from autotune.model.maps import mapped_settings
from autotune.settings import SETTINGS, Group, OmpWaitPolicy, Settings
from autotune.settings.expandable_segments import is_on_in
from autotune.settings.omp_wait_policy import wait_policy_in_force
from autotune.settings.setting import OwnLine
from autotune.settings.unused_blocks import UnusedBlocks, blocks_in

if TYPE_CHECKING:
    from autotune.emit.tuned_config import TunedConfig

IN_ENVIRONMENT = "Start the script by `autotune run`, or with the variables of `autotune export --to env`."


def check_world_size(config: TunedConfig, path: str) -> None:
    """Refuses a number of processes different from the tuned number: the effective batch would change.

    Raises:
        ConfigError: The world size differs, or WORLD_SIZE is no number.
    """
    tuned, here = config.provenance.world_size, _world_size()
    if here != tuned:
        raise ConfigError(
            f"{path} was tuned for {tuned} process(es) and this job has {here}: "
            f"the effective batch would be {here / tuned:g} times the tuned one.",
            f"Search again with --nproc-per-node {here}; call autotune.load in the processes that train.",
        )


def _world_size() -> int:
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_world_size())
    text = os.environ.get("WORLD_SIZE", "1")
    if not text.isdecimal() or int(text) < 1:
        raise ConfigError(f"WORLD_SIZE is {text!r}, not a number of processes.", "Unset it, or let torchrun set it.")
    return int(text)


def doubts(config: TunedConfig, call: Settings, *, path: str, share: bool) -> Iterator[str]:
    """Warnings about a usable config: figures and settings with doubtful effect on this machine.

    Args:
        config: The tuned config.
        call: The defaults in the script's call.
        path: The config's file, as the script names it.
        share: The script wants to leave device memory to programs beside it.
    """
    differences = config.mismatches(_this_host())
    if differences:
        yield f"{path} may not hold here. {' '.join(differences)} Run `autotune search` on this machine."
    asked = config.settings.omp_wait_policy
    if asked is OmpWaitPolicy.PASSIVE and wait_policy_in_force() is not asked:
        yield f"omp_wait_policy passive of {path} can only be set before Python starts. {IN_ENVIRONMENT}"
    for setting in SETTINGS:
        value = getattr(config.settings, setting.name)
        if OwnLine.KERAS_VARIABLES not in setting.own_lines or value == getattr(config.script.natural, setting.name):
            continue
        needed = setting.environment(value, os.environ) if setting.environment is not None else {}
        if not needed.items() <= os.environ.items():
            yield f"{setting.name} {value} of {path} can only be set before Python starts. {IN_ENVIRONMENT}"
    script_settings = config.script.natural.batch_size
    if call.batch_size is not None and script_settings is not None and call.batch_size != script_settings:
        yield (
            f"The call of autotune.load says batch_size={call.batch_size}; {path} was tuned when it said "
            f"{script_settings}, and the file holds. Run `autotune search` again for another batch size."
        )
    known = {*dict(call.knobs), *mapped_settings(config.script.maps.items())}
    for name, value in config.settings.knobs:
        if name not in known and value:
            yield f"{path} has the knob {name}={value}, which autotune.load was not told of, so it is ignored."
    shares = config.memory
    if share and shares.fraction and not (shares.shared_memory_bytes or shares.shared_memory_fraction):
        yield f"{path} does not say how little memory suffices, so share=True leaves no more to others than the cap."


def _this_host() -> host.HostFingerprint:
    """This machine without the device, which needs torch: `Config.prepare` compares the device."""
    return host.HostFingerprint(
        cpu=host.cpu_model(),
        usable_cpus=host.usable_cpus(),
        memory_bytes=host.total_memory_bytes(),
        system=platform.system().lower(),
        device="",
        num_devices=0,
        torch=_torch_version(),
    )


def _torch_version() -> str:
    torch = sys.modules.get("torch")
    if torch is not None:
        return str(torch.__version__)
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("torch")
    except PackageNotFoundError:
        return ""


def cuda_doubts(settings: Settings, config: TunedConfig | None, device: str) -> Iterator[str]:
    """Warnings for CUDA alone: a device of another name, and settings left to the script.

    Args:
        settings: The settings to train with.
        config: Source of the settings; None without a file.
        device: Name of the training device.
    """
    if config is not None and config.provenance.host.device not in ("", device):
        yield f"The settings were measured on {config.provenance.host.device}, and this device is {device}."
    if settings.expandable_segments and not is_on_in(os.environ):
        yield f"expandable_segments must be set before CUDA starts. {IN_ENVIRONMENT}"
    if settings.unused_blocks is not UnusedBlocks.KEEP and blocks_in(os.environ) is not settings.unused_blocks:
        yield f"unused_blocks must be set before CUDA starts. {IN_ENVIRONMENT}"
    facts = config.script.facts if config is not None else None
    asked = [name for name in ("non_blocking", "stream_prefetch") if getattr(settings, name)]
    if asked and (facts is None or Group.TRANSFER not in facts.claims):
        yield (
            f"{' and '.join(asked)} cannot be applied from here, where the script copies to the device itself: write "
            "`loader = cfg.on_device(loader, device)`, or start the script by `autotune run`."
        )


def has_accelerator() -> bool:
    """Whether pinned memory speeds up copies to a device of this machine."""
    import torch

    accelerator = getattr(torch, "accelerator", None)  # torch 2.6 and later
    return bool(accelerator.is_available()) if accelerator is not None else torch.cuda.is_available()


def batch_size_of(loader: object) -> int | None:
    """Batch size of a loader, by an attribute of the loader or of the batch sampler; None without such an attribute."""
    for holder in (loader, getattr(loader, "batch_sampler", None)):
        size = getattr(holder, "batch_size", None)
        if isinstance(size, int):
            return size
    return None
