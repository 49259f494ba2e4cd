"""CUDA streams for tests without a device: copies happen at once, and a list says in which order things were asked."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace

import pytest
import torch


class FakeStreams:
    """A computing and a side stream, and what happens on them in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.said: list[str] = []
        self.current = SimpleNamespace(wait_event=self._waits_for_copy)
        self.num_copies = 0
        monkeypatch.setattr(torch.cuda, "Stream", self._side)
        monkeypatch.setattr(torch.cuda, "current_stream", lambda _: self.current)
        monkeypatch.setattr(torch.cuda, "stream", self._entered)
        monkeypatch.setattr(torch.Tensor, "record_stream", lambda *_: self.said.append("memory waits for side"))

    def _side(self, _: object) -> SimpleNamespace:
        return SimpleNamespace(
            wait_stream=lambda _: self.said.append("side waits for steps"), record_event=self._recorded
        )

    def _entered(self, _: object) -> AbstractContextManager[None]:
        return nullcontext()

    def _recorded(self) -> SimpleNamespace:
        self.num_copies += 1
        self.said.append(f"copy {self.num_copies}")
        return SimpleNamespace(number=self.num_copies, query=lambda: True)

    def _waits_for_copy(self, event: SimpleNamespace) -> None:
        self.said.append(f"step waits for copy {event.number}")
