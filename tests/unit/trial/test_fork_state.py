"""What a process hands on to those that are forked from it."""

from __future__ import annotations

import fcntl
import os
import random
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from autotune.trial.start import fork_state as kept
from autotune.trial.start.fork_state import ForkState, is_known, reopened, why_not_restorable


def test_a_file_is_opened_again_at_its_place_and_shares_it_with_nobody(tmp_path: Path) -> None:
    path = tmp_path / "words.txt"
    path.write_text("one two")
    number = os.open(path, os.O_RDWR | os.O_CREAT)
    os.read(number, 4)
    other = os.dup(number)
    file = reopened(number, str(path))
    assert file is not None and file.offset == 4
    file.open_again()
    try:
        assert os.read(number, 3) == b"two" and os.lseek(other, 0, os.SEEK_CUR) == 4
        assert path.read_text() == "one two"
    finally:
        os.close(number)
        os.close(other)


def test_what_was_truncated_when_it_was_opened_is_not_truncated_again(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    with path.open("w") as file:
        file.write("begun")
        file.flush()
        found = reopened(file.fileno(), str(path))
        assert found is not None
        found.open_again()
        assert path.read_text() == "begun"


@pytest.mark.parametrize("how", ["removed", "replaced", "pipe"])
def test_what_cannot_be_opened_by_its_name_is_not_known(tmp_path: Path, how: str) -> None:
    path = tmp_path / "file"
    path.write_text("")
    ends = (os.open(path, os.O_RDONLY),) if how != "pipe" else os.pipe()
    path.unlink()
    if how == "replaced":
        path.write_text("another")
    try:
        assert not is_known(ends[0], str(path))
    finally:
        for end in ends:
            os.close(end)


def test_devices_without_a_state_can_be_shared() -> None:
    with open(os.devnull) as file:
        assert is_known(file.fileno(), os.devnull)


def test_a_descriptor_that_is_opened_later_is_not_kept_open(tmp_path: Path) -> None:
    with (tmp_path / "words.txt").open("w") as words:
        kept = ForkState()
        with (tmp_path / "later.txt").open("w") as later:
            assert words.fileno() in kept.numbers and later.fileno() not in kept.numbers


def set_a_timer() -> Callable[[], object]:
    signal.setitimer(signal.ITIMER_VIRTUAL, 1000.0)
    return lambda: signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)


def wait_for_signals() -> Callable[[], object]:
    reading, writing = os.pipe2(os.O_NONBLOCK)
    signal.set_wakeup_fd(writing)
    return lambda: (signal.set_wakeup_fd(-1), os.close(reading), os.close(writing))


def lock_a_file() -> Callable[[], object]:
    locked = tempfile.TemporaryFile()  # noqa: SIM115  what stays open is the point
    fcntl.lockf(locked, fcntl.LOCK_EX)
    return locked.close


def lose_the_folder() -> Callable[[], object]:
    before, folder = Path.cwd(), tempfile.mkdtemp()
    os.chdir(folder)
    os.rmdir(folder)
    return lambda: os.chdir(before)


def _place_of(line: str) -> tuple[str, ...]:
    """What is locked, and by whom; the number in front changes."""
    return tuple(line.split()[1:])


@pytest.mark.parametrize(
    ("does", "reason"),
    [
        (set_a_timer, "has set a timer"),
        (wait_for_signals, "waits for signals in an event loop"),
        (lock_a_file, "holds a lock on a file"),
        (lose_the_folder, "is in a folder that was removed"),
    ],
)
def test_what_cannot_be_restored_is_told(
    monkeypatch: pytest.MonkeyPatch, does: Callable[[], Callable[[], object]], reason: str
) -> None:
    # Of the process that runs the tests: what another test has locked, a trial's process has not.
    locks, before = kept._locks, {_place_of(line) for line in kept._locks()}
    monkeypatch.setattr(kept, "_locks", lambda: [line for line in locks() if _place_of(line) not in before])
    assert why_not_restorable() == ""
    undo = does()
    try:
        assert why_not_restorable() == reason
    finally:
        undo()
    assert why_not_restorable() == ""


def test_a_signal_that_a_library_handles_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signal, "getsignal", lambda number: None)
    assert why_not_restorable() == "handles a signal outside of Python"


def test_numbers_handlers_and_the_folder_are_what_they_were(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def handler(*_: object) -> None: ...

    before = signal.signal(signal.SIGUSR2, handler)
    try:
        monkeypatch.chdir(tmp_path)
        kept = ForkState()
        drawn = random.random()
        random.seed(7)
        signal.signal(signal.SIGUSR2, signal.SIG_IGN)
        os.chdir("/")
        kept.restore()
        assert random.random() == drawn and signal.getsignal(signal.SIGUSR2) is handler and Path.cwd() == tmp_path
    finally:
        signal.signal(signal.SIGUSR2, before)
