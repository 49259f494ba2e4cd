"""What a diagnosis of a Keras script sees: data wait against compute in the window. Nothing is added to a step."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from autotune.measure.block import Block, Phase
from autotune.model.facts import ScriptFacts
from autotune.model.observation import Observation, StepTimes
from autotune.trial.keras.dataset_stages import stages_of


class WindowLook:
    """Processor time and time inside the training function since the beginning of the window."""

    def __init__(self) -> None:
        self.inside_s = 0.0
        """Seconds inside the training function, without the wait for batches."""
        self._cpu_s = self._began_s = 0.0

    def phase_began(self, phase: Phase) -> None:
        """Begins anew with the window."""
        if phase is Phase.WINDOW:
            self.inside_s = 0.0
            self._cpu_s, self._began_s = time.process_time(), time.monotonic()

    def observation(self, blocks: Sequence[Block], facts: ScriptFacts, iterator: Any) -> Observation | None:
        """The observation of the window; None without a window.

        The time inside the training function stands as `forward_s`: a compiled step does not show its parts.

        Args:
            blocks: Of the measurement.
            facts: Of the script.
            iterator: The iterator of a tf.data dataset that the training reads; None for all other data.
        """
        window = [block for block in blocks if block.phase is Phase.WINDOW]
        if not window:
            return None
        wall_s = sum(block.duration_s for block in window)
        wait_s = min(wall_s, sum(block.data_wait_s for block in window))
        steps = StepTimes(
            num_steps=sum(block.num_steps for block in window),
            wall_s=wall_s,
            data_wait_s=wait_s,
            forward_s=max(0.0, min(self.inside_s, wall_s - wait_s)),
            backward_s=0.0,
            optimizer_s=0.0,
        )
        return Observation(
            steps=steps,
            main_cpu_s=max(0.0, time.process_time() - self._cpu_s),
            cpu_wall_s=max(0.0, time.monotonic() - self._began_s),
            parameter_dtype="float32",
            num_trainable=facts.num_parameters,
            dataset_stages=stages_of(iterator) if iterator is not None else (),
        )
