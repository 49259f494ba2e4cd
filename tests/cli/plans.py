"""The plan that a dry run prints."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from autotune.units import GIB

from ..unit.report.examples import NATURAL, PROBED, TUNED


def plan(spec: Any, *, run_probe: bool) -> Any:
    """As `autotune.study.preview.Preview`, whose module the tests do not load."""
    return SimpleNamespace(
        spec=spec,
        machine="AMD EPYC, 8 usable cores, torch 2.13.0",
        device="NVIDIA H200",
        memory_cap_bytes=16 * GIB,
        storage="sqlite:///studies/autotune.db",
        probe=PROBED if run_probe else None,
        searched=(("num_workers", (0, 1, 2)), ("split", (5, 6)), ("knobs.storage", ("", "npy"))) if run_probe else (),
        num_settings=12 if run_probe else None,
        first=((NATURAL, "baseline"), (TUNED, "workers")) if run_probe else (),
    )
