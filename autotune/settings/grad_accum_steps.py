"""`grad_accum_steps`: micro-batches per optimizer step."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from autotune.settings.batch_size import why_no_split
from autotune.settings.setting import Arguments, Features, Group, KerasSeams, OwnLine, Setting


def _at_compile(value: Any, arguments: dict[str, Any]) -> None:
    """Has the optimizer accumulate; its state is built at the first step."""
    import keras

    optimizer = keras.optimizers.get(arguments.get("optimizer", "rmsprop"))
    optimizer.gradient_accumulation_steps = None if value == 1 else value
    arguments["optimizer"] = optimizer


def _read(model: Any, _: Mapping[str, Any]) -> int:
    optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
    return int(getattr(optimizer, "gradient_accumulation_steps", None) or 1)


SETTING = Setting(
    name="grad_accum_steps",
    group=Group.BATCH,
    default=1,
    frameworks_of_scripts=("torch", "keras"),
    keras=KerasSeams(at_compile=_at_compile, read=_read),
    takes_effect="loss, clipping, optimizer, scheduler; the product with `batch_size` is held fixed",
    left_alone="as `batch_size`",
    bounds=(1, 10**8),
    most_searched=1 << 20,
    own=lambda facts: int(facts.num_micro_batches_per_step),
    refused=why_no_split,
    decides_training=True,
    features=Features(compute=lambda own: (0.5 * math.log2(own.grad_accum_steps),)),
    arguments=Arguments(
        numbers=(
            "grad_accum_steps",
            "grad_accum",
            "accum_iter",
            "accumulation_steps",
            "gradient_accumulation_steps",
            "accumulate_grad_batches",
        ),
        of_trainer="gradient_accumulation_steps",
    ),
    frameworks={
        "hf": lambda own, _: {"gradient_accumulation_steps": own.grad_accum_steps},
        "lightning": lambda own, _: {"trainer": {"accumulate_grad_batches": own.grad_accum_steps}},
        "accelerate": lambda own, _: {"accelerator": {"gradient_accumulation_steps": own.grad_accum_steps}},
        "deepspeed": lambda own, _: {"gradient_accumulation_steps": own.grad_accum_steps},
    },
    own_lines=(OwnLine.LOADER, OwnLine.MICRO_BATCHES, OwnLine.BACKWARD),
    by_hand="accumulate in the training loop",
)
