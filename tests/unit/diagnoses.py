"""Diagnoses of an ordinary script, to be changed by the tests one figure at a time."""

from __future__ import annotations

from typing import Any

from autotune.measure.bottleneck import BottleneckKind
from autotune.model.diagnosis import Diagnosis
from autotune.model.observation import LoadingTimes, MemoryKinds, Observation, StepTimes
from autotune.settings import Settings
from autotune.units import GIB, MIB

from .facts import script_facts

STEP_S = 0.100
"""64 samples a step, 640 samples per second."""


def step_times(**changes: Any) -> StepTimes:
    values: dict[str, Any] = {
        "num_steps": 10,
        "wall_s": 1.0,
        "data_wait_s": 0.1,
        "forward_s": 0.3,
        "backward_s": 0.4,
        "optimizer_s": 0.1,
    }
    return StepTimes(**{**values, **changes})


def loading_times(**changes: Any) -> LoadingTimes:
    values: dict[str, Any] = {
        "num_batches": 10,
        "num_samples": 640,
        "busy_s": 0.1,
        "cpu_s": 0.1,
        "open_s": 0.0,
        "read_s": 0.0,
        "decode_s": 0.0,
        "num_files": 0,
        "read_bytes": 0,
    }
    return LoadingTimes(**{**values, **changes})


def observation(**changes: Any) -> Observation:
    values: dict[str, Any] = {
        "steps": step_times(),
        "main_cpu_s": 1.0,
        "cpu_wall_s": 1.0,
        "is_sampled": True,
        "loading": loading_times(),
        "memory": MemoryKinds(
            parameters_bytes=4 * MIB,
            buffers_bytes=0,
            gradients_bytes=4 * MIB,
            optimizer_state_bytes=8 * MIB,
            activations_bytes=100 * MIB,
            batch_bytes=MIB,
        ),
        "parameter_dtype": "float32",
        "num_trainable": 1000,
        "step_place": "train.py:40",
        "forward_place": "train.py:37",
    }
    return Observation(**{**values, **changes})


def diagnosis(**changes: Any) -> Diagnosis:
    values: dict[str, Any] = {
        "script": "/home/u/train.py",
        "machine": "CPU, 8 usable cores, torch 2.13.0",
        "device": "cpu",
        "is_cpu": True,
        "usable_cpus": 8.0,
        "samples_unit": "samples",
        "samples_per_second": 640.0,
        "interval": (630.0, 650.0),
        "ceiling_samples_per_second": 700.0,
        "bottleneck": BottleneckKind.COMPUTE,
        "data_wait_fraction": 0.0,
        "samples_per_step": 64.0,
        "restart_s": None,
        "epoch_s": None,
        "device_utilization": None,
        "memory_cap_bytes": 8 * GIB,
        "peak_memory_bytes": GIB,
        "peak_allocated_bytes": None,
        "outside_allocator_bytes": None,
        "natural": Settings(batch_size=64),
        "facts": script_facts(),
        "observation": observation(),
    }
    return Diagnosis(**{**values, **changes})
