"""Applies a tuned config to an unedited script for real training."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from autotune.emit.tuned_config import TunedConfig
from autotune.errors import ConfigError, HostError, UsageError
from autotune.host import DeviceInfo
from autotune.measure.window_stopping import SCREENING_HALF_WIDTH_RATIO, WindowRule
from autotune.model.maps import mapped_arguments, mapped_settings
from autotune.protocol.codec import encode
from autotune.protocol.environment import JOB, PYTHONPATH, VISIBLE_DEVICES, with_engine
from autotune.protocol.job import MeasurementRequest, Mode, RunWatch, TrialJob
from autotune.runner.devices import choose_device, choose_devices, cuda_devices
from autotune.runner.python_path import with_inject
from autotune.settings import GROUP_OF_FIELD, Settings, own_lines, variables_of
from autotune.settings.unused_blocks import UnusedBlocks
from autotune.space.refusals import why_not_unedited
from autotune.spec import DEFAULT_CONFIG, without_ours


def run_command(
    config: TunedConfig,
    command: tuple[str, ...],
    cwd: Path,
    *,
    share: bool,
    path: str = DEFAULT_CONFIG,
    device: str = "auto",
    watch_log: str = "",
) -> tuple[tuple[str, ...], dict[str, str]]:
    """Arguments and environment for the user's script under the tuned settings.

    The run is real training: the script writes for real, and autotune never ends the run.

    Args:
        config: The tuned config.
        command: The command of the script.
        cwd: Working directory of the script.
        share: Leave the rest of the device's memory to other processes.
        path: Path of the config, for lines in a script.
        watch_log: File for the log of a watch over the training; empty without a watch.
        device: Training device, in the words of `autotune search --device`; inert for a script on the CPU.

    Raises:
        HostError: This machine lacks the devices of the config.
        UsageError: The text names no device.
        ConfigError: The config has no facts of an unedited script, or has a setting unsound for this script.
    """
    facts, script_settings = config.script.facts, config.script.natural
    if facts is None:
        raise ConfigError(
            "The config was not measured on an unedited script, so it cannot be applied to one.",
            "Load it in the script with autotune.load.",
        )
    shown = _devices(config, device) if facts.device == "cuda" else ()
    _check_can_be_applied(config, path)
    settings = _with_share(config, share=share)
    window = WindowRule(half_width_ratio=SCREENING_HALF_WIDTH_RATIO)
    job = TrialJob(
        request=MeasurementRequest(settings=settings, window=window),
        mode=Mode.RUN,
        command=(*command, *mapped_arguments(config.settings, script_settings, config.script.maps.items())),
        cwd=str(cwd),
        script_settings=script_settings,
        facts=facts,
        mapped=tuple(sorted(mapped_settings(config.script.maps.items()))),
        device=facts.device,
        world_size=config.provenance.world_size,
        cap_bytes=config.memory_cap_bytes,
        cap_fraction=_fraction(config, shown, share=share) if facts.device == "cuda" else 1.0,
        config=path,
        watch=_watch(config, cwd, path, watch_log) if watch_log else None,
        start_limit_s=1.0,
        total_limit_s=1.0,
    )
    environment = without_ours(os.environ, GROUP_OF_FIELD)
    environment.update(with_engine(variables_of(settings, environment, script_settings)))
    if 0 < len(shown) < len(cuda_devices()):
        environment[VISIBLE_DEVICES] = ",".join(each.uuid for each in shown)
    environment[JOB] = encode(job)
    environment[PYTHONPATH] = with_inject(os.environ.get(PYTHONPATH, ""), str(cwd))
    return job.command, environment


def _check_can_be_applied(config: TunedConfig, path: str) -> None:
    """Refuses the settings refused by a search: any program may have changed the file.

    Raises:
        ConfigError: A setting cannot be applied soundly from outside; the hint has the lines to add to the script.
    """
    script = config.script
    assert script.facts is not None
    is_cpu = script.facts.device == "cpu"
    settings = config.settings.canonical(device_is_cpu=is_cpu)
    reasons = why_not_unedited(
        settings,
        script.natural.canonical(device_is_cpu=is_cpu),
        script.facts,
        mapped=frozenset(mapped_settings(script.maps.items())),
        splits_batch_norm=script.splits_batch_norm,
    )
    if reasons:
        refused = "; ".join(f"{name} {getattr(settings, name)}: {reason}" for name, reason in reasons.items())
        lines = "\n  ".join(own_lines(reasons, path))
        raise ConfigError(
            f"{path} cannot be applied to {script.path} as it is: {refused}.",
            f"Let the script do it, with these lines where they belong, and start it without autotune:\n  {lines}",
        )


def _devices(config: TunedConfig, asked: str) -> tuple[DeviceInfo, ...]:
    """The training devices, as many as in a trial and chosen as in a search; empty for all devices.

    Raises:
        HostError: The machine has too few devices for the script's processes, or lacks the named device.
        UsageError: The text names no device, or another device than the config's.
    """
    num_devices, visible = config.provenance.host.num_devices, cuda_devices()
    if asked != "auto" and (num_devices > 1 or choose_device(asked).is_cpu):
        measured = f"{num_devices} GPUs" if num_devices > 1 else "a GPU"
        raise UsageError(
            f"--device {asked}: the config was measured on {measured}.", "Search again for another device."
        )
    if num_devices <= len(visible):
        return choose_devices(asked, num_devices)
    if visible and config.script.num_processes_per_node == 1:
        raise HostError(
            f"The script starts {config.provenance.world_size} processes by itself, for {num_devices} GPUs, and this "
            f"machine shows {len(visible)}.",
            "Search again on this machine.",
        )
    return ()


def _watch(config: TunedConfig, cwd: Path, path: str, log: str) -> RunWatch:
    """The figures for a watch over the training."""
    per_rank = config.settings.effective_batch() if config.samples_unit == "samples" else None
    return RunWatch(
        log=str((cwd / log).resolve()),
        config=str((cwd / path).resolve()),
        samples_per_step=float(per_rank * config.provenance.world_size) if per_rank is not None else 1.0,
        samples_per_second=config.samples_per_second if per_rank or config.samples_unit == "steps" else None,
        samples_unit="samples" if per_rank is not None else "steps",
    )


def _with_share(config: TunedConfig, *, share: bool) -> Settings:
    """Settings of the run, with the options of the allocator if a shared run then needs less memory."""
    if share and config.memory.expandable_memory_bytes is not None:
        return replace(config.settings, expandable_segments=True)
    if share and config.memory.blocks_memory_bytes is not None:
        return replace(config.settings, unused_blocks=UnusedBlocks(config.memory.unused_blocks))
    return config.settings


def _fraction(config: TunedConfig, devices: Sequence[DeviceInfo], *, share: bool) -> float:
    """The allocator's share of the training device, 0 to 1."""
    devices = devices or cuda_devices()
    total_bytes = devices[0].total_bytes if devices else 0
    if total_bytes == 0:
        return config.memory.fraction or 1.0
    return config.memory.in_force(
        config.settings.memory_fraction, total_bytes=total_bytes, share=share, has_options=share
    )
