"""What the script does by itself as settings, and settings as the arguments that it takes."""

from __future__ import annotations

from collections.abc import Mapping

from autotune.errors import SearchSpaceError
from autotune.model.facts import ScriptFacts
from autotune.settings import Settings
from autotune.space.space import SCRIPTS_OWN


def natural_settings(facts: ScriptFacts) -> Settings:
    """What the script does by itself, as the probe saw it."""
    loader = facts.loader
    own_accumulation = facts.num_micro_batches_per_step
    values: dict[str, object] = {
        "precision": facts.precision,
        "intra_op_threads": facts.intra_op_threads,
        "omp_wait_policy": facts.omp_wait_policy,
        "cudnn_benchmark": facts.own_cudnn_benchmark,
        "compile": facts.own_compile,
        "grad_accum_steps": own_accumulation,
        "knobs": dict(facts.knobs),
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


def mapped_arguments(settings: Settings, natural: Settings, maps: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    """Arguments that give the script its mapped settings; none for values that are the script's own.

    Raises:
        SearchSpaceError: A template has no `{}`.
    """
    plain: Mapping[str, object] = settings.to_dict()
    own: Mapping[str, object] = natural.to_dict()
    knobs = dict(settings.knobs)
    arguments = []
    for name, template in maps:
        if "{}" not in template:
            raise SearchSpaceError(f"--map {name}={template} has no place for the value.", "Put {} where it goes.")
        value = plain.get(name, knobs.get(name, SCRIPTS_OWN))
        if value == SCRIPTS_OWN or (name in own and value == own[name]):
            continue
        arguments.append(template.replace("{}", str(value)))
    return tuple(arguments)
