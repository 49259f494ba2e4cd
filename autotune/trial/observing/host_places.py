"""Finds the statements that hold the training process up, from samples and counted calls; reads only source files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from autotune.model.observation import HostPlace
from autotune.trial.observing.user_code import Place, Stack, statement_around

LEAST_SHARE = 0.005
"""Smallest share of a step worth reporting."""
MAX_PLACES = 8
MAX_SOURCE_BYTES = 4 << 20

Span = tuple[str, int, int]
"""File, first and last line of a statement."""


@dataclass(slots=True)
class LoopSamples:
    """Samples and counted calls of a training loop."""

    training: Collection[Place]
    """Lines of the user's code on the stack of a training call."""
    loading: Collection[Place]
    """The training lines that asked a loader for a batch."""
    num_steps: int
    """Number of steps with counted calls."""
    wall_s: float
    """Seconds of these steps."""
    call_counts: Mapping[tuple[Stack, str], int]
    call_seconds: Mapping[tuple[Stack, str], float]
    sampled: Mapping[Stack, float] = field(default_factory=dict)
    """Seconds by stack; empty when sampling was impossible."""
    sampled_in_torch: Mapping[Stack, float] = field(default_factory=dict)


def host_places(loop: LoopSamples) -> tuple[HostPlace, ...]:
    """The statements outside training itself with the largest shares of a step, the largest first."""
    spans = _Spans(loop.training, loop.loading)
    with_calls = _places_with_calls(loop, spans)
    taken = {(place.file, place.first_line, place.last_line) for place in with_calls}
    others = [place for place in _places_without(loop, spans) if _span_of(place) not in taken]
    found = [place for place in (*with_calls, *others) if max(place.share, place.blocked_share) >= LEAST_SHARE]
    return tuple(sorted(found, key=lambda place: place.share, reverse=True)[:MAX_PLACES])


class _Spans:
    """Finds the statement responsible for the time of a stack."""

    def __init__(self, training: Collection[Place], loading: Collection[Place]) -> None:
        self._training, self._loading = training, loading
        self._sources: dict[str, str] = {}
        self._spans: dict[Place, Span] = {}

    def of(self, stack: Stack) -> Span | None:
        """The outermost statement outside training; None within loading, or without such a statement."""
        for place in reversed(stack):
            if place in self._loading:
                return None
            if place not in self._training:
                return self._span(place)
        return None

    def _span(self, place: Place) -> Span:
        if place not in self._spans:
            file, line = place
            lines = {other for name, other in self._training if name == file}
            self._spans[place] = (file, *statement_around(self._source(file), line, lines))
        return self._spans[place]

    def _source(self, file: str) -> str:
        if file not in self._sources:
            try:
                with Path(file).open("rb") as opened:
                    self._sources[file] = opened.read(MAX_SOURCE_BYTES).decode(errors="replace")
            except OSError:
                self._sources[file] = ""
        return self._sources[file]


def _span_of(place: HostPlace) -> Span:
    return place.file, place.first_line, place.last_line


def _places_with_calls(loop: LoopSamples, spans: _Spans) -> list[HostPlace]:
    by_span: dict[Span, list[tuple[Stack, str]]] = defaultdict(list)
    for key in loop.call_counts:
        span = spans.of(key[0])
        if span is not None:
            by_span[span].append(key)
    total_s = sum(loop.sampled.values())
    places = []
    for span, keys in by_span.items():
        blocked = min(1.0, sum(loop.call_seconds[key] for key in keys) / loop.wall_s)
        share = _within(loop.sampled, span) / total_s if total_s > 0 else blocked
        heaviest = max(keys, key=lambda key: loop.call_seconds[key])
        places.append(
            HostPlace(
                file=span[0],
                line=next((line for file, line in heaviest[0] if file == span[0]), span[1]),
                first_line=span[1],
                last_line=span[2],
                share=min(1.0, share),
                call=heaviest[1],
                calls_per_step=sum(loop.call_counts[key] for key in keys) / loop.num_steps,
                blocked_share=blocked,
            )
        )
    return places


def _places_without(loop: LoopSamples, spans: _Spans) -> list[HostPlace]:
    total_s = sum(loop.sampled.values())
    by_span: dict[Span, float] = defaultdict(float)
    for stack, seconds in loop.sampled.items():
        span = spans.of(stack)
        if span is not None:
            # Time inside torch is probably a loss: no more the script's own work than a layer of the model.
            by_span[span] += seconds - loop.sampled_in_torch.get(stack, 0.0)
    return [
        HostPlace(
            file=span[0],
            line=span[1],
            first_line=span[1],
            last_line=span[2],
            share=min(1.0, max(0.0, seconds / total_s)),
        )
        for span, seconds in by_span.items()
    ]


def _within(sampled: Mapping[Stack, float], span: Span) -> float:
    file, first, last = span
    return sum(
        seconds
        for stack, seconds in sampled.items()
        if any(name == file and first <= line <= last for name, line in stack)
    )
