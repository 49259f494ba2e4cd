"""`intra_op_threads`: threads of one operation in the training process."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from autotune.settings.setting import Features, Group, OwnLine, Setting, at_most_per_core

if TYPE_CHECKING:
    from autotune.settings.cases import ScriptCase
    from autotune.settings.data_type import Settings


def _refused(case: ScriptCase) -> str:
    return "the script sets torch's number of threads by itself" if case.facts.own_threads else ""


def _environment(value: Any, _: Mapping[str, str]) -> Mapping[str, str]:
    return {"OMP_NUM_THREADS": str(value), "MKL_NUM_THREADS": str(value)}


def _write(value: Any) -> None:
    import torch

    torch.set_num_threads(value)


def _read() -> int:
    import torch

    return torch.get_num_threads()


def _features(own: Settings) -> tuple[float, ...]:
    return (math.log2(own.intra_op_threads),)


SETTING = Setting(
    name="intra_op_threads",
    group=Group.THREADS,
    default=1,
    takes_effect="the trial's environment, and torch",
    left_alone="the script sets its threads",
    domain=(1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64),
    bounds=(1, 4096),
    most_searched=4096,
    own=lambda facts: int(facts.intra_op_threads),
    refused=_refused,
    is_tried=at_most_per_core(1),
    helps_beside_load=lambda value, own: value < own,
    features=Features(compute=_features, loader=_features),
    environment=_environment,
    write=_write,
    read=_read,
    own_lines=(OwnLine.PREPARE,),
    by_hand="set OMP_NUM_THREADS before Python starts",
)
