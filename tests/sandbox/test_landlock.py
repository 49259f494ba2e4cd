"""Hostile and careless scripts where Landlock protects the user's files: nothing outside the trial's folder changes."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from autotune.model.outcome import Outcome
from autotune.protocol.job import Mode
from autotune.protocol.protection import Protection
from autotune.runner.fork_runner import ForkRunner
from autotune.sandbox import landlock
from autotune.sandbox.tree_removal import remove_tree
from autotune.sandbox.workspace import Workspace
from tests.integration.runner.ground import Ground, digest, escaped_of
from tests.unit.facts import script_facts

pytestmark = pytest.mark.skipif(landlock.version() == 0, reason="this kernel has no Landlock, or it is not enabled")

BEGIN = """
import ctypes, io, os, shutil, signal, socket, sqlite3, subprocess, sys, time
from contextlib import suppress
libc = ctypes.CDLL(None, use_errno=True)
outside = sys.argv[1]
def sh(text, **more):
    return subprocess.run(["sh", "-c", text], stderr=subprocess.DEVNULL, **more).returncode
def refused(call, *arguments):
    assert libc[call](*arguments) == -1 and ctypes.get_errno() in (1, 13, 18), (call, ctypes.get_errno())
"""
PYTHON_WRITES = "import sys; open(sys.argv[1], 'w').write('lost')"
SITUATIONS = {
    "a shell removes a folder": "assert sh('rm -rf sub') != 0",
    "a shell overwrites and appends": "assert sh('echo lost > kept.txt') != 0 and sh('echo lost >> log.txt') != 0",
    "a shell moves a file away": "assert sh(f'mv moved.txt {outside}/moved') != 0",
    "a shell writes beside the working directory": "assert sh(f'echo lost > {outside}/kept.txt') != 0",
    "a shell writes at home": "assert sh('echo lost > ~/kept.txt') != 0",
    "FileIO": """
for name in ("kept.txt", os.path.expanduser("~/log.txt"), outside + "/kept.txt", "new.txt"):
    try:
        io.FileIO(name, "w")
    except PermissionError:
        continue
    raise AssertionError(name)
""",
    "a database by its URI": """
for name in ("file:new.db", f"file:{outside}/kept.db?mode=rwc"):
    try:
        sqlite3.connect(name, uri=True).execute("create table lost (x)")
    except sqlite3.OperationalError:
        continue
    raise AssertionError(name)
""",
    "a database by its class": """
try:
    sqlite3.Connection(outside + "/kept.db").execute("create table lost (x)")
    raise AssertionError
except sqlite3.OperationalError:
    pass
""",
    "a child with an empty environment": f"""
assert subprocess.run([sys.executable, "-c", {PYTHON_WRITES!r}, "kept.txt"], env={{}}, stderr=-3).returncode == 1
""",
    "a child that ignores the environment": f"""
for option in ("-E", "-I", "-S"):
    command = [sys.executable, option, "-c", {PYTHON_WRITES!r}, outside + "/kept.txt"]
    ended = subprocess.run(command, env={{}}, stderr=-3)
    assert ended.returncode == 1, option
""",
    "native calls by path": """
refused("truncate", b"kept.txt", ctypes.c_long(0))
refused("unlink", b"kept.txt")
refused("rename", b"kept.txt", b"renamed.txt")
refused("link", b"kept.txt", b"hard.txt")
refused("symlink", b"kept.txt", b"soft.txt")
refused("mkdir", b"folder", 0o777)
refused("mkfifo", b"pipe", 0o666)
refused("open", b"kept.txt", os.O_RDWR)
refused("open", b"kept.txt", os.O_RDONLY | os.O_TRUNC)
refused("open", b".", 0o20200000 | os.O_RDWR, 0o600)
""",
    "openat2": """
how = (ctypes.c_uint64 * 3)(os.O_WRONLY, 0, 0)
refused("syscall", 437, -100, b"kept.txt", how, ctypes.c_size_t(24))
""",
    "a hard link into its own folder": """
refused("link", os.path.abspath("kept.txt").encode(), os.environ["TMPDIR"].encode() + b"/hard")
""",
    "a link in its own folder": """
os.symlink(os.path.abspath("kept.txt"), os.environ["TMPDIR"] + "/soft")
assert sh("echo lost > $TMPDIR/soft") != 0
""",
    "an open descriptor, opened again for writing": """
kept = os.open(outside + "/kept.txt", os.O_RDONLY)
refused("open", f"/proc/self/fd/{kept}".encode(), os.O_WRONLY)
""",
    "a daemon that outlives the script": """
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execve("/bin/sh", ["sh", "-c", f"sleep 0.3; while :; do echo lost > {outside}/kept.txt; done"], {})
    os._exit(0)
""",
    "memory and signals of other processes": """
tuner = int(sys.argv[2])
refused("open", f"/proc/{tuner}/mem".encode(), os.O_RDWR)
assert libc.ptrace(16, tuner, 0, 0) == -1
for number in (signal.SIGSTOP, signal.SIGTERM, signal.SIGKILL) if LANDLOCK >= 6 else ():
    try:
        os.kill(tuner, number)
        raise AssertionError
    except PermissionError:
        pass
""",
    "a socket at home": """
try:
    os.chdir(os.path.expanduser("~")) or socket.socket(socket.AF_UNIX).bind("control.sock")
    raise AssertionError
except PermissionError:
    pass
""",
    "folders in shared memory": "assert sh('mkdir /dev/shm/lost') != 0",
    "ordinary writes from Python, wherever they go": """
for folder in (".", os.path.expanduser("~"), outside, outside + "/../beside"):
    os.makedirs(folder + "/runs/1", exist_ok=True)
    with open(folder + "/runs/1/log.txt", "a") as file:
        file.write("kept in the layer")
    os.replace(folder + "/runs/1/log.txt", folder + "/moved.txt")
    assert open(folder + "/moved.txt").read() == "kept in the layer"
    shutil.rmtree(folder + "/runs")
shutil.rmtree(outside)
assert not os.path.exists(outside)
""",
}


@pytest.fixture(scope="module")
def ground() -> Iterator[Ground]:
    """A user's project, home, and a folder beside them, under Landlock."""
    home = os.environ.get("HOME", "/")
    root = Path(tempfile.mkdtemp(prefix="ground-")).resolve()
    (root / "beside" / "deep").mkdir(parents=True)
    (root / "beside" / "kept.txt").write_text("kept")
    made = Ground(root, Protection.LANDLOCK)
    yield made
    os.environ["HOME"] = home
    remove_tree(root)


def write(ground: Ground, text: str, end: str = "import pretend; pretend.report()\n") -> None:
    """Makes the script of the trial."""
    (ground.user / "hostile_one.py").write_text(f"{BEGIN}\nLANDLOCK = {landlock.version()}\n{text}\n{end}")
    ground.cover()


@pytest.mark.parametrize("situation", SITUATIONS)
@pytest.mark.parametrize("mode", [Mode.PROBE, Mode.TRIAL])
def test_nothing_outside_of_the_trials_folder_changes(ground: Ground, situation: str, mode: Mode) -> None:
    write(ground, SITUATIONS[situation])
    outside, before = ground.root / "beside", digest(ground.root / "beside")
    result = ground.run("hostile_one.py", str(outside), str(os.getpid()), mode=mode)
    assert result.outcome is Outcome.OK, f"{result.reason} {result.log_tail}"
    assert digest(outside) == before
    assert escaped_of(result) == ()
    assert result.protection == Protection.LANDLOCK
    ground.workspace.forget_probe()
    ground.check(f"{situation}, {mode}", result)


def test_it_holds_in_forked_trials_too(ground: Ground) -> None:
    everything = [text for name, text in SITUATIONS.items() if "daemon" not in name and "home" not in name]
    write(ground, "\n".join(everything))
    outside, before = ground.root / "beside", digest(ground.root / "beside")
    with ForkRunner(ground.runner, script_facts(imports=("json",))) as runner:
        run = runner.start(ground.job("hostile_one.py", str(outside), str(os.getpid())))
        run.wait()
        result = run.result()
    assert result.start == "forked", result.start_reason
    assert result.outcome is Outcome.OK, f"{result.reason} {result.log_tail}"
    assert digest(outside) == before
    ground.check("everything, forked", result)


def test_a_script_that_fails_by_it_is_told_of_landlock_the_place_and_the_option(ground: Ground) -> None:
    write(ground, "subprocess.run(['touch', outside + '/new.txt'], check=True)")
    outside = ground.root / "beside"
    result = ground.run("hostile_one.py", str(outside))
    assert result.outcome is Outcome.CRASHED
    assert "Landlock" in result.reason and f"--writable {outside}/new.txt" in result.reason
    assert not (outside / "new.txt").exists()


def test_what_the_user_calls_writable_is_written_for_real(ground: Ground) -> None:
    given = ground.root / "given"
    given.mkdir(exist_ok=True)
    write(ground, "open(outside + '/python.txt', 'w').write('x')\nassert sh(f'echo x > {outside}/shell.txt') == 0")
    space = ground.workspace
    ground.runner.workspace = Workspace(space.folder, space.covered, protection=Protection.LANDLOCK, writable=(given,))
    try:
        result = ground.run("hostile_one.py", str(given))
    finally:
        ground.runner.workspace = space
    assert result.outcome is Outcome.OK, f"{result.reason} {result.log_tail}"
    assert sorted(path.name for path in given.iterdir()) == ["python.txt", "shell.txt"]
    shutil.rmtree(given)


def test_what_is_beyond_landlock_is_named(ground: Ground) -> None:
    write(ground, "assert sh('chmod 0 kept.txt; touch -t 200001010000 log.txt') == 0")
    result = ground.run("hostile_one.py", str(ground.root / "beside"))
    assert result.outcome is Outcome.OK, f"{result.reason} {result.log_tail}"
    assert escaped_of(result) == ("kept.txt", "log.txt")


def test_a_script_that_is_started_without_the_environment_changes_nothing(ground: Ground) -> None:
    write(ground, "open(outside + '/kept.txt', 'w').write('lost')")
    outside, before = ground.root / "beside", digest(ground.root / "beside")
    for option in ("-E", "-I"):
        command = (sys.executable, option, "hostile_one.py", str(outside))
        result = ground.run(command=command)
        assert result.outcome is Outcome.CRASHED
        assert digest(outside) == before
