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
from autotune.model.own_lines import own_lines
from autotune.plain import to_plain
from autotune.runner.cold import INJECT
from autotune.runner.device import cuda_devices
from autotune.settings import GROUP_OF_FIELD
from autotune.space.refusals import why_not_unedited
from autotune.spec import DEFAULT_CONFIG, without_ours
from autotune.tuner.jobs import environment_for


def run_command(
    config: TunedConfig, command: tuple[str, ...], cwd: Path, *, share: bool, path: str = DEFAULT_CONFIG
) -> tuple[tuple[str, ...], dict[str, str]]:
    """Arguments and environment that start the user's script under the tuned settings.

    It is real training: it writes where the script writes, and is never ended by us.

    Args:
        config: The tuned config.
        command: What starts the script.
        cwd: Where it is started.
        share: Leave the rest of the device's memory to others.
        path: The config's file, as it is to be named in a script.

    Raises:
        ConfigError: The config does not say how to apply itself to an unedited script, or has a setting that cannot be
            applied to this one soundly.
    """
    facts, natural = config.script.facts, config.script.natural
    if facts is None:
        raise ConfigError(
            "The config was not measured on an unedited script, so it cannot be applied to one.",
            "Load it in the script with autotune.load.",
        )
    device = facts.device
    _check_can_be_applied(config, path)
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
        config=path,
        start_limit_s=1.0,
        total_limit_s=1.0,
    )
    environment = without_ours(os.environ, GROUP_OF_FIELD)
    environment.update(environment_for(config.settings, natural))
    environment["AUTOTUNE_JOB"] = json.dumps(to_plain(job))
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(INJECT), os.environ.get("PYTHONPATH", "")]))
    return job.command, environment


def _check_can_be_applied(config: TunedConfig, path: str) -> None:
    """Refuses what a search would have refused: a file may have been written or changed by anybody.

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
        lines = "\n  ".join(own_lines((GROUP_OF_FIELD[name] for name in reasons), path))
        raise ConfigError(
            f"{path} cannot be applied to {script.path} as it is: {refused}.",
            f"Let the script do it, with these lines where they belong, and start it without autotune:\n  {lines}",
        )


def _fraction(config: TunedConfig, *, share: bool) -> float:
    """The allocator's share of the device that trains now."""
    devices = cuda_devices()
    total_bytes = devices[0].total_bytes if devices else 0
    if total_bytes == 0:
        return config.memory.fraction or 1.0
    return config.memory.in_force(config.settings.memory_fraction, total_bytes=total_bytes, share=share)
