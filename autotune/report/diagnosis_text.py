"""A diagnosis in words: the figures, the parts of a step's time, memory by kind, and the advice. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import PurePath

from autotune.measure.bottleneck import BottleneckKind
from autotune.model.diagnosis import Advice, Diagnosis
from autotune.model.observation import LoadingTimes
from autotune.report.words import bottleneck_text, clean
from autotune.units import format_bytes, format_interval, format_rate, format_seconds

WIDTH = 100
NAME_WIDTH = 12
NUM_STAGES = 3
"""Stages of a tf.data dataset to show."""
SICKNESS_WORDS = {
    "loader": "loader-bound",
    "small_files": "small files",
    "decoding": "decoding",
    "chunks": "HDF5 chunks",
    "repeated_work": "repeated work",
    "single_samples": "sample by sample",
    "slow_samples": "slow samples",
    "idle_workers": "idle workers",
    "epoch_start": "epoch starts",
    "host": "host-bound",
    "overhead": "overhead-bound",
    "copies": "copies",
    "contention": "contention",
    "compute": "compute-bound",
    "data_parallel": "DataParallel",
}


def diagnosis_text(diagnosis: Diagnosis) -> str:
    """The diagnosis for people, ending in a newline."""
    lines = [f"{clean(PurePath(diagnosis.script).name)} on {clean(diagnosis.machine)}", ""]
    for name, text in _figures(diagnosis):
        lines += textwrap.wrap(
            clean(text), WIDTH, initial_indent=f"  {name:<{NAME_WIDTH}}", subsequent_indent=" " * (NAME_WIDTH + 2)
        )
    lines += ["", *_advice_lines(diagnosis)]
    if diagnosis.profiles:
        lines += ["", "Profiles, for chrome://tracing or Perfetto, and for snakeviz or pstats:"]
        lines += [f"  {clean(path)}" for path in diagnosis.profiles]
    for note in diagnosis.notes:
        lines += textwrap.wrap(clean(f"note: {note}"), WIDTH, subsequent_indent="  ")
    return "\n".join(lines) + "\n"


def _figures(diagnosis: Diagnosis) -> Iterator[tuple[str, str]]:
    unit = diagnosis.samples_unit
    rate = f"{format_rate(diagnosis.samples_per_second)} {format_interval(*diagnosis.interval)} {unit} per second"
    yield "throughput", f"{rate}; a step takes {_milliseconds(diagnosis.step_s)}"
    ceiling = diagnosis.ceiling_samples_per_second
    if ceiling is not None:
        share = diagnosis.samples_per_second / ceiling
        yield "ceiling", f"{format_rate(ceiling)} {unit} per second without any loader; this is {share:.0%} of that"
    if diagnosis.bottleneck is not BottleneckKind.UNKNOWN:
        yield "bound by", bottleneck_text(diagnosis.bottleneck)
    yield "a step", _step_text(diagnosis)
    yield "waiting", _waiting_text(diagnosis)
    if diagnosis.observation.loading is not None:
        yield "a batch", _loading_text(diagnosis.observation.loading, diagnosis.facts.foreign_loader)
    if diagnosis.observation.dataset_stages:
        yield "tf.data", "; ".join(stage.text for stage in diagnosis.observation.dataset_stages[:NUM_STAGES])
    storage = _storage_text(diagnosis)
    if storage:
        yield "storage", storage
    yield "memory", _memory_text(diagnosis)
    trained = diagnosis.observation.num_trainable
    total = diagnosis.facts.num_parameters
    trains = "all of them trained" if trained >= total else f"{trained:,} of them trained"
    yield "parameters", f"{total:,} in {diagnosis.observation.parameter_dtype or 'an unknown format'}, {trains}"


def _step_text(diagnosis: Diagnosis) -> str:
    steps = diagnosis.observation.steps
    parts = {
        "data wait": steps.data_wait_s,
        "the training function": steps.forward_s,
        "the rest of the script": steps.rest_s,
    }
    if diagnosis.facts.keras is None:
        parts = {
            "data wait": steps.data_wait_s,
            "forward": steps.forward_s,
            "backward": steps.backward_s,
            "optimizer": steps.optimizer_s,
            "the rest of the script": steps.rest_s,
        }
    text = ", ".join(f"{name} {seconds / steps.wall_s:.0%}" for name, seconds in parts.items())
    return text if diagnosis.is_cpu else f"{text} (of the host's time)"


def _waiting_text(diagnosis: Diagnosis) -> str:
    parts = [f"data {diagnosis.data_wait_fraction:.0%}", f"host {diagnosis.host_share:.0%}"]
    if diagnosis.copy_share is not None:
        parts.append(f"copies {diagnosis.copy_share:.0%}")
    if diagnosis.device_share is not None:
        parts.append(f"the device works for {diagnosis.device_share:.0%}")
    if diagnosis.device_utilization is not None:
        parts.append(f"utilization by NVML {diagnosis.device_utilization:.0%}")
    return ", ".join(parts)


def _loading_text(loading: LoadingTimes, library: str) -> str:
    if library:
        processor_ms = _milliseconds(loading.cpu_s / loading.num_batches)
        return f"takes {processor_ms} of processor time in {loading.num_building} threads or processes of {library}"
    built = f"takes {_milliseconds(loading.busy_s / loading.num_batches)} to build in one process"
    if not loading.num_files and not loading.decode_s and not loading.read_s:
        return f"{built}; neither an opened file nor decoding was observed"
    parts = {
        "opening files": loading.open_s,
        "reading": loading.read_s,
        "decoding": loading.decode_s,
        "transforms and the rest": loading.rest_s,
    }
    split = ", ".join(f"{name} {seconds / loading.busy_s:.0%}" for name, seconds in parts.items())
    files = ""
    if loading.num_files:
        size = format_bytes(loading.read_bytes / loading.num_files)
        files = f"; {loading.num_files / loading.num_samples:.3g} opened per sample, {size} each"
    return f"{built}: {split}{files}"


def _storage_text(diagnosis: Diagnosis) -> str:
    """The file system with the dataset; empty when no file was read."""
    tried = diagnosis.observation.storage
    if tried is None or not tried.example:
        return ""
    parts = [diagnosis.mount or "an unknown file system"]
    parts.append(f"{tried.cold_share:.0%} of what is read next was outside the page cache")
    if tried.cold_read_bytes_per_s is not None:
        parts.append(f"files are read at {format_bytes(tried.cold_read_bytes_per_s)}/s from a cold cache")
    if diagnosis.disk_bytes_per_s is not None:
        parts.append(f"the run read {format_bytes(diagnosis.disk_bytes_per_s)}/s from storage")
    if diagnosis.io_pressure is not None:
        parts.append(f"some task waited for storage in {diagnosis.io_pressure:.0%} of the time")
    return "; ".join(parts)


def _memory_text(diagnosis: Diagnosis) -> str:
    parts = []
    if diagnosis.peak_memory_bytes is not None:
        cap = format_bytes(diagnosis.memory_cap_bytes)
        of = "of the processes" if diagnosis.is_cpu else "of the device"
        parts.append(f"peak {format_bytes(diagnosis.peak_memory_bytes)} {of}, cap {cap}")
    memory = diagnosis.observation.memory
    if memory is not None:
        kinds = {
            "parameters": memory.parameters_bytes,
            "buffers": memory.buffers_bytes,
            "gradients": memory.gradients_bytes,
            "optimizer state": memory.optimizer_state_bytes,
            "activations": memory.activations_bytes,
        }
        known = {name: size for name, size in kinds.items() if size}
        parts.append(", ".join(f"{name} {format_bytes(size)}" for name, size in known.items()))
        outside = diagnosis.outside_allocator_bytes
        if outside is None and diagnosis.is_cpu and diagnosis.peak_memory_bytes is not None:
            outside = max(0, diagnosis.peak_memory_bytes - sum(known.values()))
            parts.append(f"all else, as Python, libraries and data, {format_bytes(outside)}")
        elif outside is not None:
            parts.append(f"outside the allocator {format_bytes(outside)}")
    return "; ".join(parts)


def _advice_lines(diagnosis: Diagnosis) -> Iterator[str]:
    if not diagnosis.advice:
        yield "Nothing stands out in one run. autotune search tries settings together."
        return
    yield "What to do, by expected gain:"
    for number, advice in enumerate(diagnosis.advice, start=1):
        head = f"{number}. {_gain_text(advice)}  {SICKNESS_WORDS[advice.sickness]}: {clean(advice.action)}"
        yield from textwrap.wrap(head, WIDTH, initial_indent="  ", subsequent_indent="     ")
        yield from textwrap.wrap(
            f"where: {clean(advice.where)}", WIDTH, initial_indent="     ", subsequent_indent="       "
        )
        yield from textwrap.wrap(
            f"why: {clean(advice.source)}", WIDTH, initial_indent="     ", subsequent_indent="       "
        )


def _gain_text(advice: Advice) -> str:
    if advice.gain is None:
        return "gain unknown"
    return f"{'up to ' if advice.is_bound else ''}{advice.gain:.2f}x"


def _milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:.3g} ms" if seconds < 1 else format_seconds(seconds)
