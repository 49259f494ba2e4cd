"""Applies all rules to a diagnosis. Pure."""

from __future__ import annotations

from autotune.diagnose.advice import keras_advice, loading_advice, storage_advice, training_advice
from autotune.model.diagnosis import Advice, Diagnosis

RULES = (
    loading_advice.more_workers,
    loading_advice.more_threads,
    loading_advice.pack_small_files,
    loading_advice.decode_elsewhere,
    storage_advice.pack_files,
    storage_advice.decode_faster,
    storage_advice.cache_repeated_work,
    storage_advice.fetch_batches_at_once,
    storage_advice.let_fast_samples_pass,
    storage_advice.give_workers_shards,
    loading_advice.keep_workers,
    loading_advice.share_processors,
    loading_advice.copy_while_training,
    training_advice.leave_values_on_device,
    training_advice.do_less_between_steps,
    training_advice.larger_batch,
    training_advice.fused_optimizer,
    training_advice.fewer_launches,
    training_advice.faster_format,
    training_advice.one_process_per_device,
)
KERAS_RULES = (keras_advice.feed_keras,)
"""Rules for scripts that train by Keras: the parts of a compiled step do not show."""


def advise(diagnosis: Diagnosis) -> tuple[Advice, ...]:
    """All advice on a diagnosis, the largest expected gain first and advice without a figure last."""
    rules = RULES if diagnosis.facts.keras is None else KERAS_RULES
    found = [advice for advice in (rule(diagnosis) for rule in rules) if advice is not None]
    return tuple(sorted(found, key=lambda advice: advice.expected_gain, reverse=True))
