"""Processes that train where autotune cannot see it."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.runner.unseen_processes import UnseenProcesses, ignores_environment


@pytest.mark.parametrize(
    ("command", "option"),
    [
        (("python", "-E", "train.py"), "-E"),
        (("/usr/bin/python3.12", "-u", "-I", "train.py"), "-I"),
        (("python", "-uE", "-m", "pkg"), "-E"),
        (("python", "-S", "train.py"), "-S"),
        (("python", "train.py", "-E"), ""),
        (("python", "-m", "pkg", "-I"), ""),
        (("python", "-WE", "train.py"), ""),
        (("python", "-W", "ignore", "-E", "train.py"), "-E"),
        (("python", "-uX", "dev", "-I", "train.py"), "-I"),
        (("python", "-W", "-E", "train.py"), ""),
        (("python", "-W"), ""),
        (("python", "-Xfrozen_modules=off", "-O", "train.py"), ""),
        (("python", "--check-hash-based-pycs", "train.py"), ""),
        (("torchrun", "-E", "train.py"), ""),
        (("python",), ""),
    ],
)
def test_options_that_ignore_the_environment_are_known(command: tuple[str, ...], option: str) -> None:
    assert ignores_environment(command) == option


def process(proc: Path, pid: int, *, command: str, environ: str, maps: str) -> int:
    folder = proc / str(pid)
    folder.mkdir()
    for name, text in (("cmdline", command), ("environ", environ), ("maps", maps)):
        (folder / name).write_text(text.replace(" ", "\0") + "\0")
    return pid


def test_a_process_with_torch_and_without_the_variables_is_named(tmp_path: Path) -> None:
    maps = "/lib/libtorch_cpu.so"
    pids = [
        process(tmp_path, 1, command="python train.py", environ="AUTOTUNE_TRIAL=/x A=b", maps=maps),
        process(tmp_path, 2, command="tee log", environ="A=b", maps="/lib/libc.so"),
        process(tmp_path, 3, command="python inner.py", environ="A=b", maps=maps),
    ]
    looks = UnseenProcesses(tmp_path)
    looks.look([*pids[:2], 99])
    assert looks.sentence == ""
    looks = UnseenProcesses(tmp_path)
    looks.look(pids)
    assert "python inner.py ran with torch" in looks.sentence


def test_a_process_that_ignores_its_variables_is_named(tmp_path: Path) -> None:
    looks = UnseenProcesses(tmp_path)
    maps = "/lib/libtorch_cpu.so"
    looks.look([process(tmp_path, 1, command="python -E train.py", environ="AUTOTUNE_TRIAL=/x", maps=maps)])
    assert "python -E train.py" in looks.sentence
