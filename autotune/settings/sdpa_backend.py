"""`sdpa_backend`: kernels behind scaled_dot_product_attention."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from autotune.settings.setting import Features, Group, Memory, OwnLine, Setting, Value, chosen

if TYPE_CHECKING:
    from autotune.settings.cases import SearchCase


class SdpaBackend(StrEnum):
    """Kernels permitted to scaled_dot_product_attention; inputs without such a kernel take torch's plain kernels."""

    DEFAULT = "default"
    """All: torch chooses for each call, by its own order of preference."""
    FLASH = "flash"
    EFFICIENT = "efficient"
    CUDNN = "cudnn"
    MATH = "math"
    """The plain kernels alone."""


FUSED = (SdpaBackend.FLASH, SdpaBackend.EFFICIENT, SdpaBackend.CUDNN)
LEAST_CAPABILITY = {SdpaBackend.FLASH: (8, 0), SdpaBackend.CUDNN: (8, 0)}
"""Least CUDA compute capability of each kernel."""
_SWITCHES = {SdpaBackend.EFFICIENT: "mem_efficient_sdp"}


def _switch(backend: SdpaBackend) -> str:
    return _SWITCHES.get(backend, f"{backend.value}_sdp")


def _pointless(case: SearchCase) -> str:
    if "attention" not in case.facts.notes:
        return "no call of scaled_dot_product_attention with fused kernels was seen"
    return "the script chooses its kernels by itself" if "own_attention" in case.facts.notes else ""


def _dropped(case: SearchCase) -> Iterator[tuple[Value, str]]:
    device = case.device
    for backend, least in LEAST_CAPABILITY.items():
        if device.capability is not None and device.capability < least:
            major, minor = device.capability
            yield backend.value, f"{device.name} has compute capability {major}.{minor}"


def _write(value: Any) -> None:
    """Switches kernels for the whole process; the plain kernels stay on as the last resort."""
    import torch

    for backend in (*FUSED, SdpaBackend.MATH):
        switch = getattr(torch.backends.cuda, f"enable_{_switch(backend)}", None)
        if switch is not None:
            switch(value in (SdpaBackend.DEFAULT, backend) or backend is SdpaBackend.MATH)


def _read() -> str | None:
    """The value in force; None for a choice of the script's own beyond these values."""
    import torch

    is_on = {each: getattr(torch.backends.cuda, f"{_switch(each)}_enabled", None) for each in FUSED}
    on = [each for each, read in is_on.items() if read is not None and read()]
    if not torch.backends.cuda.math_sdp_enabled():  # type: ignore[no-untyped-call]
        return None
    if len(on) == sum(read is not None for read in is_on.values()):
        return SdpaBackend.DEFAULT.value
    return {0: SdpaBackend.MATH.value, 1: on[0].value if on else ""}.get(len(on))


SETTING = Setting(
    name="sdpa_backend",
    group=Group.KERNELS,
    default=SdpaBackend.DEFAULT,
    takes_effect="once, before the first step",
    left_alone="on a CPU; no fused attention was seen; the script switches kernels; the device lacks the kernels",
    domain=tuple(member.value for member in SdpaBackend),
    needs_accelerator=True,
    pointless=_pointless,
    dropped=_dropped,
    memory=Memory.EITHER,
    changes_graph=True,
    features=Features(compute=chosen("sdpa_backend", *FUSED, SdpaBackend.MATH)),
    write=_write,
    is_written_again=True,
    not_live_in_own_graph="a graph of the script's own keeps the kernels that it was built with",
    read=_read,
    own_lines=(OwnLine.PREPARE,),
    by_hand="switch kernels off with torch.backends.cuda.enable_flash_sdp(False) and its siblings, and for a compiled "
    "model give torch.compiler.config.cache_key_tag a text of your own: torch's stored graphs do not know the choice",
    by_hand_off="leave all kernels of torch.backends.cuda on",
)
