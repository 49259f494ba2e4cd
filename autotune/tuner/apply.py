"""A tuned config applied to an unedited script for real training."""

from __future__ import annotations

import json
import os
from pathlib import Path

from autotune.emit.config import TunedConfig
from autotune.errors import ConfigError
from autotune.measure.stopping import SCREENING_HALF_WIDTH_RATIO, WindowRule
from autotune.model.job import Mode, TrialJob
from autotune.model.maps import mapped_arguments, mapped_settings
from autotune.plain import to_plain
from autotune.runner.cold import INJECT
from autotune.runner.device import cuda_devices
from autotune.tuner.jobs import environment_for


def run_command(
    config: TunedConfig, command: tuple[str, ...], cwd: Path, *, share: bool
) -> tuple[tuple[str, ...], dict[str, str]]:
    """Arguments and environment that start the user's script under the tuned settings.

    It is real training: it writes where the script writes, and is never ended by us.

    Args:
        config: The tuned config.
        command: What starts the script.
        cwd: Where it is started.
        share: Leave the rest of the device's memory to others.

    Raises:
        ConfigError: The config does not say how to apply itself to an unedited script.
    """
    facts, natural = config.script.facts, config.script.natural
    if facts is None:
        raise ConfigError(
            "The config was not measured on an unedited script, so it cannot be applied to one.",
            "Load it in the script with autotune.load.",
        )
    device = facts.device
    job = TrialJob(
        mode=Mode.RUN,
        command=(*command, *mapped_arguments(config.settings, natural, config.script.maps.items())),
        cwd=str(cwd),
        settings=config.settings,
        natural=natural,
        facts=facts,
        mapped=tuple(sorted(mapped_settings(config.script.maps.items()))),
        device=device,
        world_size=config.provenance.world_size,
        cap_bytes=config.memory_cap_bytes,
        cap_fraction=_fraction(config, share=share) if device == "cuda" else 1.0,
        window=WindowRule(half_width_ratio=SCREENING_HALF_WIDTH_RATIO),
        start_limit_s=1.0,
        total_limit_s=1.0,
    )
    environment = dict(os.environ)
    environment.update(environment_for(config.settings, natural))
    environment["AUTOTUNE_JOB"] = json.dumps(to_plain(job))
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(INJECT), os.environ.get("PYTHONPATH", "")]))
    return job.command, environment


def _fraction(config: TunedConfig, *, share: bool) -> float:
    """The allocator's share of the device that trains now."""
    devices = cuda_devices()
    total_bytes = devices[0].total_bytes if devices else 0
    if total_bytes == 0:
        return config.memory.fraction or 1.0
    return config.memory.in_force(config.settings.memory_fraction, total_bytes=total_bytes, share=share)
