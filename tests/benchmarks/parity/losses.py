"""Runs a script until it has trained for some optimizer steps, and writes the loss of each step.

Arguments are STEPS, OUT, SCRIPT and those of the script. Settings come by the environment, as in real training. With a
variable DETERMINISTIC torch takes kernels that sum in the same order in every run, where it has such. The text is given
to `python -c`, since a file would stand among the callers of the script's loader, whose places are known.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
from typing import Any

import torch  # attaches the seams of the settings in the environment
from torch.optim.optimizer import register_optimizer_step_post_hook

if os.environ.get("DETERMINISTIC"):
    torch.use_deterministic_algorithms(True, warn_only=True)
num_steps, out, script = int(sys.argv[1]), sys.argv[2], sys.argv[3]
pending: list[torch.Tensor] = []
losses: list[float] = []
backward = torch.autograd.backward


def noted(tensors: Any, *args: Any, **kwargs: Any) -> Any:
    pending.append(tensors.detach().clone())  # a CUDA graph of the model overwrites its loss in the next pass
    return backward(tensors, *args, **kwargs)


def num_graphs() -> int:
    """Graphs that torch's compiler has built in this process."""
    utils = sys.modules.get("torch._dynamo.utils")
    return utils.counters["stats"]["unique_graphs"] if utils is not None else 0


def stepped(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    """After a step of the optimizer, which accumulation leaves out for the first micro-batches."""
    losses.append(sum(float(loss) for loss in pending) / len(pending))
    pending.clear()
    if len(losses) >= num_steps:
        with open(out, "w") as file:
            json.dump({"losses": losses, "num_graphs": num_graphs()}, file)
        os._exit(0)


torch.autograd.backward = noted
register_optimizer_step_post_hook(stepped)
sys.argv = sys.argv[3:]
sys.path.insert(0, os.path.dirname(os.path.abspath(script)))
runpy.run_path(script, run_name="__main__")
