"""Landlock as the kernel enforces it, under every version of its interface that can be asked for here."""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autotune.sandbox import landlock
from autotune.sandbox.landlock import ADD_RULE, ASK_VERSION, CREATE_RULESET, RESTRICT_SELF, syscall

needs_landlock = pytest.mark.skipif(landlock.version() == 0, reason="this kernel has no Landlock, or it is not enabled")


def as_of_version(version: int) -> landlock.Syscall:
    """The real system calls, of a kernel that claims to know this version of the interface and no later one."""

    def call(number: int, *arguments: Any) -> int:
        if number == CREATE_RULESET and arguments[0] is None:
            return version
        return syscall(number, *arguments)

    return call


def in_child(work: Callable[[], None]) -> int:
    """Exit status of a forked process that does this work: 0, the number of the error, or 255."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
            os._exit(0)
        except OSError as error:
            os._exit(error.errno or 255)
        except BaseException:
            os._exit(255)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    """A user's folder with a file, a link and a folder in it, and a folder that may be written to."""
    user, own = tmp_path / "user", tmp_path / "own"
    for folder in (user, own):
        (folder / "sub").mkdir(parents=True)
        (folder / "kept").write_text("kept")
    return user, own


CHANGES: dict[str, Callable[[Path], object]] = {
    "write": lambda folder: (folder / "kept").write_text("changed"),
    "append past every layer of Python": lambda folder: os.open(folder / "kept", os.O_WRONLY | os.O_APPEND),
    "make a file": lambda folder: (folder / "new").write_text("new"),
    "make a folder": lambda folder: (folder / "folder").mkdir(),
    "make a link": lambda folder: (folder / "link").symlink_to("kept"),
    "make a pipe": lambda folder: os.mkfifo(folder / "pipe"),
    "bind a socket": lambda folder: socket.socket(socket.AF_UNIX).bind(os.path.relpath(folder / "s")),
    "remove a file": lambda folder: (folder / "kept").unlink(),
    "remove a folder": lambda folder: (folder / "sub").rmdir(),
    "rename": lambda folder: (folder / "kept").rename(folder / "moved"),
    "make a hard link": lambda folder: (folder / "hard").hardlink_to(folder / "kept"),
}


@needs_landlock
@pytest.mark.parametrize("version", range(1, landlock.version() + 1))
@pytest.mark.parametrize("change", CHANGES)
def test_a_restricted_process_changes_its_own_folder_and_no_other(
    places: tuple[Path, Path], version: int, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    user, own = places
    monkeypatch.chdir(user.parent)

    def attempt(folder: Path) -> int:
        def work() -> None:
            landlock.restrict([str(own)], as_of_version(version))
            CHANGES[change](folder)

        return in_child(work)

    assert attempt(own) == 0
    assert attempt(user) == errno.EACCES
    assert sorted(path.name for path in user.iterdir()) == ["kept", "sub"]
    assert (user / "kept").read_text() == "kept"


@needs_landlock
def test_reading_stays_as_it_was(places: tuple[Path, Path]) -> None:
    user, own = places

    def read() -> None:
        landlock.restrict([str(own)])
        assert (user / "kept").read_text() == "kept"
        assert sorted(os.listdir(user)) == ["kept", "sub"]
        os.execvp("true", ["true"])

    assert in_child(read) == 0


@needs_landlock
@pytest.mark.skipif(landlock.version() < 3, reason="truncating by path is withheld since version 3")
def test_truncating_by_path_is_withheld_where_the_kernel_can(places: tuple[Path, Path]) -> None:
    user, own = places
    libc = ctypes.CDLL(None, use_errno=True)

    def truncate() -> None:
        landlock.restrict([str(own)])
        if libc.truncate(os.fsencode(user / "kept"), ctypes.c_long(0)) != 0:
            raise OSError(ctypes.get_errno(), "truncate")

    assert in_child(truncate) == errno.EACCES
    assert (user / "kept").read_text() == "kept"


@needs_landlock
@pytest.mark.parametrize("version", range(1, landlock.version() + 1))
def test_files_move_between_folders_of_ones_own_where_the_kernel_permits_it(
    places: tuple[Path, Path], version: int
) -> None:
    _, own = places

    def move() -> None:
        landlock.restrict([str(own)], as_of_version(version))
        (own / "kept").rename(own / "sub" / "moved")

    assert in_child(move) == (errno.EXDEV if version < 2 else 0)


@needs_landlock
def test_what_is_given_up_cannot_be_taken_back(places: tuple[Path, Path]) -> None:
    user, own = places

    def widen() -> None:
        landlock.restrict([str(own)])
        landlock.restrict([str(own), str(user)])
        (user / "kept").write_text("changed")

    assert in_child(widen) == errno.EACCES


@needs_landlock
def test_devices_and_shared_memory_can_be_written_and_folders_there_cannot_be_made(places: tuple[Path, Path]) -> None:
    _, own = places
    name = f"/dev/shm/landlock-{os.getpid()}"

    def write() -> None:
        landlock.restrict([str(own)])
        Path("/dev/null").write_text("nothing")
        _, slave = os.openpty()
        os.write(slave, b"x")
        Path(name).write_text("shared")
        Path(name).unlink()
        try:
            Path(name).mkdir()
        except PermissionError:
            return
        raise AssertionError

    assert in_child(write) == 0


@needs_landlock
def test_what_is_forked_from_a_restricted_process_writes_to_its_own_folder_of_proc(places: tuple[Path, Path]) -> None:
    _, own = places

    def fork() -> None:
        landlock.restrict([str(own)], is_forked_from=True)

        def confined() -> None:
            landlock.restrict([str(own)])
            Path("/proc/self/oom_score_adj").write_text("500")

        os._exit(in_child(confined))

    assert in_child(fork) == 0


@needs_landlock
@pytest.mark.skipif(landlock.version() < 6, reason="signals are withheld since version 6")
def test_a_process_outside_cannot_be_signalled(places: tuple[Path, Path]) -> None:
    outside = os.getpid()

    def signal_it() -> None:
        landlock.restrict([])
        os.kill(outside, 0)

    assert in_child(signal_it) == errno.EPERM


@needs_landlock
def test_a_folder_that_is_not_there_is_passed_over(places: tuple[Path, Path]) -> None:
    _, own = places
    assert in_child(lambda: landlock.restrict([str(own / "missing"), str(own)])) == 0


class FakeKernel:
    """Notes what it is asked for, and enforces nothing."""

    def __init__(self, version: int) -> None:
        self.version = version
        self.handled: tuple[int, ...] = ()
        self.allowed: list[int] = []
        self.is_restricted = False

    def __call__(self, number: int, *arguments: Any) -> int:
        values = [getattr(argument, "value", argument) for argument in arguments]
        if number == CREATE_RULESET and values[2] == ASK_VERSION:
            if not self.version:
                raise OSError(errno.EOPNOTSUPP, "disabled")
            return self.version
        if number == CREATE_RULESET:
            assert len(values[0]) == values[1]
            self.handled = struct.unpack(f"={len(values[0]) // 8}Q", values[0])
            return os.open("/dev/null", os.O_RDONLY)
        if number == ADD_RULE:
            self.allowed.append(struct.unpack("=Qi", values[2])[0])
        self.is_restricted = self.is_restricted or number == RESTRICT_SELF
        return 0


@pytest.mark.parametrize(("version", "words"), [(1, 1), (2, 1), (3, 1), (4, 2), (5, 2), (6, 3), (7, 3), (9, 3)])
def test_a_kernel_is_asked_for_no_more_than_it_knows(
    tmp_path: Path, version: int, words: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ctypes.CDLL", lambda *_, **__: type("Libc", (), {"prctl": lambda *_: 0}))
    kernel = FakeKernel(version)
    landlock.restrict([str(tmp_path)], kernel)
    assert len(kernel.handled) == words
    assert kernel.handled[0].bit_length() == {1: 13, 2: 14, 3: 15, 4: 15}.get(version, 16)
    assert all(allowed and allowed & ~kernel.handled[0] == 0 for allowed in kernel.allowed)
    assert kernel.is_restricted


def test_a_kernel_without_landlock_has_version_0_and_restricts_nothing() -> None:
    kernel = FakeKernel(0)
    assert landlock.version(kernel) == 0
    with pytest.raises(OSError, match="no Landlock"):
        landlock.restrict([], kernel)
    assert not kernel.is_restricted
