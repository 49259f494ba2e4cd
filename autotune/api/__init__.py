"""What a training script calls: `load`, `micro_batches`, and the methods of the `Config` that `load` gives.

In a trial the same lines take the trial's settings, and tell the trial which groups the script applies itself. torch is
imported by what needs it, so by then the script has it anyway.
"""

from autotune.api.load_config import load
from autotune.api.loaded_config import Config
from autotune.api.micro_batching import micro_batches

__all__ = ["Config", "load", "micro_batches"]
