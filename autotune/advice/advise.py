"""All rules on one diagnosis, the most expected gain first. Pure."""

from __future__ import annotations

from autotune.advice import loading, training
from autotune.model.diagnosis import Advice, Diagnosis

RULES = (
    loading.more_workers,
    loading.pack_small_files,
    loading.decode_elsewhere,
    loading.keep_workers,
    loading.share_processors,
    loading.copy_while_training,
    training.leave_values_on_device,
    training.do_less_between_steps,
    training.larger_batch,
    training.fused_optimizer,
    training.fewer_launches,
    training.faster_format,
    training.one_process_per_device,
)


def advise(diagnosis: Diagnosis) -> tuple[Advice, ...]:
    """What to do, by expected gain; what nobody can put a figure on comes last."""
    found = [advice for advice in (rule(diagnosis) for rule in RULES) if advice is not None]
    return tuple(sorted(found, key=lambda advice: advice.expected_gain, reverse=True))
