"""The calls of a training script: `load`, `micro_batches`, `step`, and the methods of the `Config` from `load`.

In a trial the same lines take the trial's settings, and tell the trial the groups applied by the script itself.
`import autotune` loads no torch: only calls that need torch import it.
"""

from autotune.api.load_config import load
from autotune.api.loaded_config import Config
from autotune.api.micro_batching import micro_batches
from autotune.api.own_steps import step

__all__ = ["Config", "load", "micro_batches", "step"]
