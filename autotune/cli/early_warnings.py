"""Warnings of a job scheduler that come while the command is still being imported. Imports nothing but `signal`."""

import signal
from types import FrameType

WARNINGS = (signal.SIGUSR1, signal.SIGUSR2)
"""From a job scheduler some time before the end, perhaps repeatedly."""
_noted: list[int] = []


def note_from_now_on() -> None:
    """Notes warnings, which would end this process otherwise; an ignored signal stays ignored."""
    for number in WARNINGS:
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _note)


def take() -> bool:
    """Whether a warning was noted since the last call."""
    has_come = bool(_noted)
    _noted.clear()
    return has_come


def _note(number: int, _frame: FrameType | None) -> None:
    _noted.append(number)
