"""`omp_wait_policy`: behaviour of idle threads in an OpenMP team."""

from __future__ import annotations

import os
from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from autotune.settings.setting import Features, Group, OwnLine, Setting, chosen

if TYPE_CHECKING:
    from autotune.settings.cases import SearchCase

VARIABLE = "OMP_WAIT_POLICY"


class OmpWaitPolicy(StrEnum):
    """Behaviour of idle threads in an OpenMP team."""

    DEFAULT = "default"
    """The runtime's default: idle threads spin for a while, then sleep."""
    PASSIVE = "passive"
    """Idle threads sleep at once and leave the core to the loader's workers."""


def _pointless(case: SearchCase) -> str:
    if not case.is_linux:
        return "it is for the OpenMP runtime of torch on Linux"
    if int(case.cpus) < 2:
        return "with one core there is no team of threads"
    if case.own.omp_wait_policy is OmpWaitPolicy.PASSIVE:
        return f"{VARIABLE} is set already"
    return ""


def _environment(value: Any, _: Mapping[str, str]) -> Mapping[str, str]:
    return {VARIABLE: "PASSIVE"} if value is OmpWaitPolicy.PASSIVE else {}


def wait_policy_in_force() -> OmpWaitPolicy:
    """The policy in force in this process, by the environment."""
    is_passive = os.environ.get(VARIABLE, "").lower() == OmpWaitPolicy.PASSIVE
    return OmpWaitPolicy.PASSIVE if is_passive else OmpWaitPolicy.DEFAULT


IS_PASSIVE = chosen("omp_wait_policy", OmpWaitPolicy.PASSIVE)

SETTING = Setting(
    name="omp_wait_policy",
    group=Group.THREADS,
    default=OmpWaitPolicy.DEFAULT,
    takes_effect="the trial's environment",
    left_alone="outside of Linux; with one core; set already",
    domain=tuple(member.value for member in OmpWaitPolicy),
    own=lambda facts: str(facts.omp_wait_policy),
    pointless=_pointless,
    helps_beside_load=lambda value, own: value is not own and value is OmpWaitPolicy.PASSIVE,
    features=Features(compute=IS_PASSIVE, loader=IS_PASSIVE),
    environment=_environment,
    is_set_before_start=True,
    not_live="the OpenMP runtime reads it at the start of the process",
    read=lambda: wait_policy_in_force().value,
    own_lines=(OwnLine.PREPARE,),
    by_hand=f"set {VARIABLE}=PASSIVE before Python starts",
)
