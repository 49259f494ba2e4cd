"""Estimates the memory of a script from one probe, for this device and for others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune.errors import UsageError
from autotune.measure.memory_estimate import ROOM_RATIO, MemoryParts
from autotune.model.cards import CARDS
from autotune.model.events import OnEvent
from autotune.model.facts import ScriptFacts
from autotune.runner.open_runner import RunnerFactory, open_runner
from autotune.runner.opened_workspace import open_workspace
from autotune.spec import SearchSpec
from autotune.study.probing import probe
from autotune.study.protection_record import wish_of
from autotune.study.stop import StopRequest
from autotune.study.target import FREE_SHARE_OF_DEVICE, OUTSIDE_ALLOCATOR_BYTES, open_target
from autotune.units import parse_memory_cap


@dataclass(frozen=True, kw_only=True, slots=True)
class Room:
    """The largest micro-batch on one device."""

    card: str
    cap_bytes: int
    batch_size: int | None
    """0 without room for a single sample; None if the memory does not grow with the batch."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """The memory of a script's training on one rank."""

    script: str
    parts: MemoryParts
    outside_bytes: int
    """Memory of a process outside the allocator; 0 on a CPU."""
    rooms: tuple[Room, ...]

    @property
    def process_bytes(self) -> int:
        """Peak of a whole process at the script's own micro-batch."""
        return round(ROOM_RATIO * self.parts.peak_at(self.parts.batch_size)) + self.outside_bytes

    def document(self) -> dict[str, Any]:
        """Plain values for `--json`."""
        parts = self.parts
        return {
            "schema": 1,
            "script": self.script,
            "parameter_bytes": parts.parameter_bytes,
            "gradient_bytes": parts.gradient_bytes,
            "optimizer_bytes": parts.optimizer_bytes,
            "activation_bytes_per_sample": round(parts.activation_bytes),
            "batch_size": parts.batch_size,
            "peak_allocated_bytes": parts.peak_at(parts.batch_size),
            "measured_allocated_bytes": parts.peak_bytes,
            "outside_allocator_bytes": self.outside_bytes,
            "process_bytes": self.process_bytes,
            "cards": [
                {"card": room.card, "cap_bytes": room.cap_bytes, "batch_size": room.batch_size} for room in self.rooms
            ],
        }


def estimate(
    spec: SearchSpec,
    cards: Sequence[str] = (),
    *,
    on_event: OnEvent,
    stop: StopRequest | None = None,
    open_runner: RunnerFactory = open_runner,
) -> Estimate:
    """Probes the script once, and estimates its memory. Stores nothing.

    Args:
        spec: The script, the device and the memory cap.
        cards: Further devices, by name of a card or by memory, such as `a100` or `24GiB`.
        on_event: Receives the events of the probe.
        stop: Ends the probe early.
        open_runner: Builds the runner.

    Raises:
        UsageError: A card is unknown, or the script shows too little of the memory.
        AutotuneError: The errors of a probe.
    """
    caps = {card: card_cap_bytes(card) for card in cards}
    target = open_target(spec)
    workspace = open_workspace(cwd=Path(spec.cwd), command=spec.command, wish=wish_of(spec))
    try:
        runner = open_runner(workspace, target.device)
        probed = probe(spec, target, workspace, runner, stop or StopRequest(), on_event, learns_reduction=False)
    finally:
        workspace.remove()
    parts = memory_parts(probed.facts)
    is_cpu = probed.target.device.is_cpu
    outside = 0 if is_cpu else probed.target.outside_allocator_bytes
    rooms = [_room("this one", probed.target.cap_bytes, parts, outside)]
    rooms += [_room(card, cap, parts, outside or OUTSIDE_ALLOCATOR_BYTES) for card, cap in caps.items()]
    return Estimate(script=spec.script, parts=parts, outside_bytes=outside, rooms=tuple(rooms))


def _room(card: str, cap_bytes: int, parts: MemoryParts, outside_bytes: int) -> Room:
    return Room(card=card, cap_bytes=cap_bytes, batch_size=parts.largest_batch(max(0, cap_bytes - outside_bytes)))


def card_cap_bytes(card: str) -> int:
    """The usual memory cap on a card, by name or by memory.

    Raises:
        UsageError: The card is unknown.
    """
    name = card.lower().replace(" ", "").replace("_", "-")
    known = {each.name: each.memory_bytes for each in CARDS}
    if name in known:
        return int(FREE_SHARE_OF_DEVICE * known[name])
    if card[:1].isdigit() and not card.endswith("%"):
        return int(FREE_SHARE_OF_DEVICE * parse_memory_cap(card, 0))
    raise UsageError(f"--card {card!r} is not known.", f"Give its memory, such as 24GiB, or one of {', '.join(known)}.")


def memory_parts(facts: ScriptFacts) -> MemoryParts:
    """The parts of a script's memory.

    Raises:
        UsageError: The script compiles the model, or the samples of batches are unknown.
    """
    batch_size = facts.loader.batch_size if facts.loader is not None else None
    batch_size = batch_size or facts.leading_size
    if not facts.saved_bytes or not batch_size or facts.parameter_bytes is None:
        raise UsageError(
            "The script shows neither its activations nor the samples of its batches.",
            "A script with a compiled model, or without a torch DataLoader, cannot be estimated; try a search.",
        )
    return _parts(facts, batch_size=batch_size)


def fixed_bytes(facts: ScriptFacts, outside_bytes: int) -> float | None:
    """Estimate of the device memory that does not grow with the micro-batch; None on a CPU and for unknown parts.

    Args:
        facts: Facts of the probe.
        outside_bytes: Memory of a process outside the allocator.
    """
    if facts.device == "cpu" or facts.parameter_bytes is None:
        return None
    return ROOM_RATIO * _parts(facts, batch_size=1).fixed_bytes + outside_bytes


def _parts(facts: ScriptFacts, *, batch_size: int) -> MemoryParts:
    """The parts seen by the probe; unknown parts are 0."""
    return MemoryParts(
        parameter_bytes=facts.parameter_bytes or 0,
        gradient_bytes=facts.gradient_bytes or 0,
        optimizer_bytes=facts.optimizer_state_bytes or 0,
        saved_bytes=facts.saved_bytes or 0,
        batch_size=batch_size,
        peak_bytes=facts.peak_allocated_bytes,
        other_bytes=_other_bytes(facts),
        benchmarks_kernels=facts.own_cudnn_benchmark,
        keeps_gradients=facts.num_micro_batches_per_step > 1,
    )


def _other_bytes(facts: ScriptFacts) -> int:
    """Memory beside the parts of training; the first batch counts as data of the device."""
    before = max(0, (facts.allocated_before_bytes or 0) - (facts.parameter_bytes or 0))
    return before + (facts.workspace_bytes or 0)
