"""The count of checkpoints."""

from __future__ import annotations

import io
import pickle

import torch

from autotune.trial.meter.saves import Saves
from autotune.trial.torch.patching import recorded, unwrap


def test_saves_are_counted_and_torch_save_can_still_be_sent_to_another_process() -> None:
    """A script may hand its checkpoints to a pool of processes."""
    saves, before = Saves(), torch.save
    with recorded() as seams:
        saves.install()
    try:
        torch.save({"step": 1}, io.BytesIO())
        assert pickle.loads(pickle.dumps(torch.save)) is torch.save
    finally:
        unwrap(seams)
    assert saves.num == 1 and torch.save is before
