"""What the script does by itself, as settings."""

from __future__ import annotations

from collections.abc import Iterable

from autotune.model.facts import ScriptFacts
from autotune.settings import GROUP_OF_FIELD, Settings
from autotune.space.space import SCRIPTS_OWN


def natural_settings(facts: ScriptFacts, mapped: Iterable[str] = ()) -> Settings:
    """What the script does by itself, as the probe saw it.

    Args:
        facts: What it saw.
        mapped: Settings and knobs that the script is given as arguments: knobs among them that it does not declare have
            a value of their own too, which nobody knows.
    """
    loader = facts.loader
    own_accumulation = facts.num_micro_batches_per_step
    values: dict[str, object] = {
        "precision": facts.precision,
        "intra_op_threads": facts.intra_op_threads,
        "omp_wait_policy": facts.omp_wait_policy,
        "cudnn_benchmark": facts.own_cudnn_benchmark,
        "channels_last": facts.own_channels_last,
        "compile": facts.own_compile,
        "grad_accum_steps": own_accumulation,
        "knobs": {**dict.fromkeys(set(mapped) - GROUP_OF_FIELD.keys(), SCRIPTS_OWN), **dict(facts.knobs)},
    }
    if loader is not None:
        values.update(
            num_workers=loader.num_workers,
            prefetch_factor=loader.prefetch_factor,
            pin_memory=loader.pin_memory,
            persistent_workers=loader.persistent_workers,
            batch_size=loader.batch_size,
        )
    return Settings.from_dict(values)
