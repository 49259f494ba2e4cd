"""A forked trial is a cold one that started sooner: what the script sees, how it ends, what it leaves and computes."""

from __future__ import annotations

import ctypes
import json
import math
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy
import psutil
import pytest
import torch

from autotune.model.outcome import Outcome
from autotune.model.result import ProbeResult, TrialResult
from autotune.process_memory import held_memory_bytes
from autotune.protocol.job import Mode
from autotune.runner.cold_runner import ColdRunner
from autotune.runner.fork_runner import ForkRunner
from autotune.sandbox.tree_removal import remove_tree
from autotune.settings import Settings
from autotune.space.script_settings import script_settings_of
from autotune.trial.start.fork_hazards import mapped_libraries
from autotune.trial.start.forked_environment import OPENBLAS_END
from tests.integration.runner.ground import (
    REDIRECTED,
    SLOWLY_REDIRECTED,
    Ground,
    digest,
    processes_of,
    protection_of,
)
from tests.integration.runner.test_tuner_death import start_tuner_in, wait_until_nothing_is_left
from tests.jobs import changed
from tests.unit.facts import script_facts

KEEPS_NAMES = """
import os
from builtins import open
from os import mkdir, path, remove

open(path.expanduser("~/cached.txt"), "w").write("made by an import")


def write():
    assert not path.exists("made") and path.exists("removed.txt")
    mkdir("made")
    open("made/new.txt", "w").write("new")
    remove("removed.txt")
    assert os.listdir("made") == ["new.txt"] and not path.exists("removed.txt")
"""
"""A module that writes when it is imported, and has functions by their own names that the script calls through it."""
STARTS_A_NATIVE_THREAD = """
import _thread
import ctypes
import mmap
import time
from pathlib import Path


def sleep_as_a_library_would():
    ctypes.CDLL(None).prctl(15, b"NAME")  # PR_SET_NAME
    started.release()
    time.sleep(600)


started = _thread.allocate_lock()
started.acquire()
_thread.start_new_thread(sleep_as_a_library_would, ())
started.acquire()
library = Path(__file__).with_name("LIBRARY")
library.write_bytes(bytes(mmap.PAGESIZE))
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long)
with library.open("rb") as file:
    libc.mmap(None, mmap.PAGESIZE, mmap.PROT_READ, mmap.MAP_PRIVATE, file.fileno(), 0)
"""
"""A module that starts a thread past Python's own, and maps a file as one does with a library."""
FACTS = script_facts(imports=("torch._dynamo", "torch.utils.data", "there_is.no_such_module"))


@pytest.fixture(scope="module", params=["layers"])
def ground(request: pytest.FixtureRequest, are_layers_permitted: bool) -> Iterator[Ground]:
    """A user's project whose trials are forked, all from one server; under layers unless a test says otherwise."""
    protection = protection_of(request.param, are_layers_permitted=are_layers_permitted)
    root = Path(tempfile.mkdtemp(prefix="ground-")).resolve()
    home = os.environ.get("HOME", "/")
    made = Ground(root, protection)
    assert isinstance(made.runner, ColdRunner)
    with ForkRunner(made.runner, FACTS, least_preparation_s=math.inf) as runner:
        made.runner = runner
        yield made
    os.environ["HOME"] = home
    remove_tree(root)


def check(ground: Ground, fault: str) -> None:
    """As the ground's own check, for trials whose server stays."""
    assert ground.folders_left() == [server_of(ground).folder]
    following = ground.run("obeys.py")
    assert following.outcome is Outcome.OK and following.start == "forked", (fault, following)


def server_of(ground: Ground) -> Any:
    (server,) = ground.runner._servers.values()
    return server


def told(result: TrialResult | ProbeResult) -> dict[str, Any]:
    line = next(line for line in result.log_tail.splitlines() if line.startswith("{"))
    return dict(json.loads(line))


def can_end_blas_threads() -> bool:
    """Whether numpy's OpenBLAS exports the call; other builds keep idle threads after a lower limit."""
    return all(hasattr(ctypes.CDLL(path), OPENBLAS_END) for path in mapped_libraries("openblas"))


def test_a_script_sees_what_it_sees_in_a_fresh_interpreter(ground: Ground) -> None:
    forked = ground.run("-u", "says.py", "two words", "--flag")
    cold = ground.runner._cold.start(ground.job("-u", "says.py", "two words", "--flag")).result()
    assert (forked.start, cold.start) == ("forked", "cold"), forked.start_reason
    assert forked.outcome is cold.outcome is Outcome.OK, f"{forked.reason} {forked.log_tail}"
    assert told(forked) == told(cold)
    assert told(forked)["name"] == "__main__" and told(forked)["spawned"] == [49]
    assert "at exit" in forked.log_tail


@pytest.mark.parametrize(
    "arguments",
    [
        ("-u", "sees.py", "word"),
        ("-m", "sees"),
        ("-m", "pkg.train", "a", "b"),
        ("-m", "pkg"),
        ("returns.py",),
        ("concurs.py",),
        ("interrupts.py",),
    ],
)
def test_a_script_behaves_as_it_does_in_a_fresh_interpreter(
    ground: Ground, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    # The scripts report, and go on: on a busy machine an interpreter's end takes longer than a last word may.
    monkeypatch.setattr("autotune.runner.handle.LAST_WORD_S", 60.0)
    limits = {"start_limit_s": 120.0, "total_limit_s": 120.0}
    forked = ground.run(*arguments, **limits)
    cold = ground.runner._cold.start(ground.job(*arguments, **limits)).result()
    assert (forked.start, cold.start) == ("forked", "cold"), forked.start_reason
    assert forked.log_tail == cold.log_tail
    assert (forked.outcome, forked.exit_code, forked.signal) == (cold.outcome, cold.exit_code, cold.signal)


def test_a_safe_path_has_no_folder_of_the_script(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONSAFEPATH", "1")
    with ForkRunner(ground.runner._cold, FACTS, least_preparation_s=math.inf) as runner:
        forked = runner.start(ground.job("obeys.py")).result()
    cold = ground.runner._cold.start(ground.job("obeys.py")).result()
    assert (forked.start, cold.start) == ("forked", "cold")
    assert forked.log_tail == cold.log_tail and "ModuleNotFoundError: No module named 'pretend'" in cold.log_tail


def test_a_script_that_hides_an_installed_module_by_its_own_gets_a_cold_start(ground: Ground) -> None:
    facts = replace(FACTS, imports=(*FACTS.imports, "mpmath"))
    with ForkRunner(ground.runner._cold, facts, least_preparation_s=math.inf) as runner:
        result = runner.start(ground.job("shadows/names.py")).result()
    assert result.start == "cold" and "mpmath" in result.start_reason
    assert result.outcome is Outcome.OK and "the script's" in result.log_tail


def test_variables_that_are_read_at_import_reach_the_script_by_a_server_of_their_own(ground: Ground) -> None:
    result = ground.run("says.py", environment=(("OMP_WAIT_POLICY", "PASSIVE"),))
    assert result.start == "forked" and told(result)["wait_policy"] == "PASSIVE"
    assert told(ground.run("says.py"))["wait_policy"] == ""
    assert len(ground.runner._servers) == 2
    ground.runner.close()


def test_threads_are_limited_by_call_so_that_one_server_does_for_all(ground: Ground) -> None:
    settings = Settings(batch_size=64, intra_op_threads=1)
    script_settings = Settings(batch_size=64, intra_op_threads=2)
    changes = {"settings": settings, "script_settings": script_settings, "environment": (("OMP_NUM_THREADS", "1"),)}
    forked = ground.run("says.py", **changes)
    cold = ground.runner._cold.start(ground.job("says.py", **changes)).result()
    seen, expected = told(forked), told(cold)
    if not can_end_blas_threads():
        seen["tasks"] = expected["tasks"]
    assert forked.start == "forked" and seen == expected
    assert told(forked)["torch_threads"] == 1 and told(forked)["blas_threads"] in (1, None)
    ground.run("says.py")
    assert len(ground.runner._servers) == 1


@pytest.mark.parametrize(
    ("script", "how", "outcome", "reason"),
    [
        ("ends.py", "raises", Outcome.CRASHED, "ValueError: no such column"),
        ("ends.py", "exits_hard", Outcome.CRASHED, "exit code 3"),
        ("ends.py", "segfaults", Outcome.CRASHED, "SIGSEGV"),
        ("ends.py", "kills_itself", Outcome.INTERRUPTED, "SIGKILL"),
        ("ends.py", "prints_much_then_ends", Outcome.OK, ""),
        ("ends.py", "closes_its_output", Outcome.OK, ""),
        ("nowhere.py", "", Outcome.CRASHED, "nowhere.py"),
        ("writes.py", "", Outcome.OK, ""),
    ],
)
def test_an_ending_has_its_outcome(ground: Ground, script: str, how: str, outcome: Outcome, reason: str) -> None:
    result = ground.run(script, *([how] if how else []))
    assert result.start == "forked"
    assert result.outcome is outcome, f"{result.reason} {result.log_tail}"
    assert reason in result.reason and "autotune" not in result.log_tail
    parts = {name: seconds for name, seconds in result.durations_s.items() if name != "server"}
    assert ("start" in parts) == ("ending" in parts) == ("unreported" not in parts)
    assert sum(parts.values()) == pytest.approx(result.wall_s, abs=0.001)
    check(ground, how)


def test_the_first_process_of_the_namespace_gives_the_servers_memory_back(ground: Ground) -> None:
    result = ground.run("looks_at_the_first.py")
    assert result.start == "forked"
    assert result.outcome is Outcome.OK, f"{result.reason} {result.log_tail}"
    assert "a fresh interpreter is the first process" in result.log_tail


def test_a_script_that_exits_with_a_sentence_says_it_and_fails(ground: Ground) -> None:
    result = ground.run("says.py", "says goodbye")
    assert result.exit_code == 1 and result.log_tail.splitlines()[-2:] == ["goodbye", "at exit"]


@REDIRECTED
def test_the_users_files_stay_as_they_were(ground: Ground) -> None:
    result = ground.run("writes.py")
    assert (result.start, result.outcome) == ("forked", Outcome.OK), f"{result.start_reason} {result.log_tail}"
    assert digest(ground.user, ground.home) == ground.before
    assert ground.processes_left() == [] and ground.folders_left() == [server_of(ground).folder]


def test_a_relative_python_path_is_that_of_the_scripts_folder(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    (ground.user / "lib").mkdir(exist_ok=True)
    (ground.user / "lib" / "near_by.py").write_text("")
    (ground.user / "imports_near_by.py").write_text("import near_by, pretend\npretend.report()\n")
    monkeypatch.setenv("PYTHONPATH", "lib")
    with ForkRunner(ground.runner._cold, FACTS, least_preparation_s=math.inf) as runner:
        result = runner.start(ground.job("imports_near_by.py")).result()
    assert (result.start, result.outcome) == ("forked", Outcome.OK), f"{result.start_reason} {result.log_tail}"


@SLOWLY_REDIRECTED
def test_an_import_writes_to_the_servers_layer_and_what_it_has_kept_by_name_to_the_trials(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages = ground.root / "packages"
    packages.mkdir(exist_ok=True)
    (packages / "keeps_names.py").write_text(KEEPS_NAMES)
    (ground.user / "borrows.py").write_text("import keeps_names, pretend\nkeeps_names.write()\npretend.report()\n")
    monkeypatch.setenv("PYTHONPATH", str(packages))
    before = digest(ground.user, ground.home)
    with ForkRunner(
        ground.runner._cold, replace(FACTS, imports=("keeps_names",)), least_preparation_s=math.inf
    ) as runner:
        results = [runner.start(ground.job("borrows.py")).result() for _ in range(2)]
    for result in results:
        assert (result.start, result.outcome) == ("forked", Outcome.OK), f"{result.start_reason} {result.log_tail}"
    assert digest(ground.user, ground.home) == before


def test_a_killed_supervisor_takes_the_trial_and_the_server_and_the_next_trial_gets_a_new_one(ground: Ground) -> None:
    handle = ground.runner.start(ground.job("strays.py", "waits"))
    ground.wait_for_line(b"ready")
    first = server_of(ground).pid
    os.kill(handle.supervisor_pid, signal.SIGKILL)
    handle.wait()
    result = handle.result()
    assert result.outcome is Outcome.INTERRUPTED
    following = ground.run("obeys.py")
    assert following.start == "forked" and server_of(ground).pid != first
    assert ground.processes_left() == []


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2])
def test_a_schedulers_warning_ends_neither_the_server_nor_the_forked_trial(ground: Ground, number: int) -> None:
    assert ground.run("obeys.py").start == "forked"
    server = server_of(ground).pid
    os.kill(server, number)
    handle = ground.runner.start(ground.job("ends.py", "waits_and_reports"))
    os.kill(handle.supervisor_pid, number)
    ground.wait_for_line(b"waiting")
    for pid in (server, *processes_of(ground.workspace.folder)):
        with suppress(ProcessLookupError):
            os.kill(pid, number)
    handle.wait()
    result = handle.result()
    assert result.outcome is Outcome.OK and result.start == "forked", f"{result.reason} {result.log_tail}"
    assert ground.run("obeys.py").start == "forked" and server_of(ground).pid == server


@SLOWLY_REDIRECTED
def test_a_killed_tuner_leaves_no_process_and_no_folder(ground: Ground) -> None:
    ground.runner.close()
    tuner = start_tuner_in(ground, "forked", "strays.py", "waits")
    ground.wait_for_line(b"ready")
    tuner.send_signal(signal.SIGKILL)
    tuner.wait()
    wait_until_nothing_is_left(ground)


@pytest.mark.parametrize(
    ("arguments", "facts", "reason"),
    [
        (("-X", "dev", "obeys.py"), FACTS, "-X"),
        (("obeys.py",), replace(FACTS, early_environment=("OMP_NUM_THREADS",)), "OMP_NUM_THREADS"),
        (("obeys.py",), replace(FACTS, imported_after_freeze="torch"), "freezes its heap before it imports torch"),
        (("obeys.py",), replace(FACTS, imports=("starts_a_thread",)), "the thread"),
        (("obeys.py",), replace(FACTS, imports=("keeps_a_file_open",)), "open"),
    ],
)
def test_what_cannot_be_forked_soundly_gets_a_cold_start_and_the_reason(
    ground: Ground, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], facts: Any, reason: str
) -> None:
    packages = ground.root / "packages"
    packages.mkdir(exist_ok=True)
    (packages / "starts_a_thread.py").write_text(
        "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
    )
    (packages / "keeps_a_file_open.py").write_text("file = open(__file__)\n")
    monkeypatch.setenv("PYTHONPATH", str(packages))
    with ForkRunner(ground.runner._cold, facts, least_preparation_s=math.inf) as runner:
        handle = runner.start(ground.job(*arguments))
        result = handle.result()
    assert result.start == "cold" and reason in result.start_reason
    if arguments == ("obeys.py",):
        assert result.outcome is Outcome.OK


@pytest.mark.parametrize(
    ("name", "library", "start"),
    [
        ("jemalloc_bg_thd", "libarrow.so.2600", "forked"),
        ("jemalloc_bg_thd", "libown.so", "cold"),
        ("own-pool", "libarrow.so.2600", "cold"),
    ],
)
def test_a_native_thread_forbids_a_fork_unless_its_library_prepares_for_forks(
    ground: Ground, monkeypatch: pytest.MonkeyPatch, name: str, library: str, start: str
) -> None:
    packages = ground.root / "native" / name / library
    packages.mkdir(parents=True)
    text = STARTS_A_NATIVE_THREAD.replace("NAME", name).replace("LIBRARY", library)
    (packages / "starts_natively.py").write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(packages))
    facts = replace(FACTS, imports=("starts_natively",))
    with ForkRunner(ground.runner._cold, facts, least_preparation_s=math.inf) as runner:
        result = runner.start(ground.job("obeys.py")).result()
    assert result.outcome is Outcome.OK, result.reason + result.log_tail
    assert result.start == start, result.start_reason
    assert start == "forked" or f"1 thread ({name}) outside of Python" in result.start_reason


def held_alone(script: Path, folder: Path, num_workers: int) -> int:
    """Nearly the most that a script held while its loader's workers were there, nothing of ours attached."""
    with subprocess.Popen([sys.executable, str(script)], cwd=folder, start_new_session=True) as child:
        seen: list[int] = []
        try:
            while len(seen) < 60 and child.poll() is None:
                processes = [child.pid, *(worker.pid for worker in psutil.Process(child.pid).children())]
                if len(processes) == num_workers + 1:
                    seen.append(held_memory_bytes(processes))
                time.sleep(0.05)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)  # its workers, too
    assert seen, child.returncode
    return sorted(seen)[-len(seen) // 10]  # The very most may hold pages of a worker that ended while they were read.


@SLOWLY_REDIRECTED
def test_forked_and_cold_trials_compute_the_same_losses_and_hold_what_the_script_alone_holds(
    ground: Ground, tmp_path: Path
) -> None:
    cold = ground.runner._cold
    limits = {"start_limit_s": 120.0, "total_limit_s": 120.0}
    job = ground.job("trains.py", mode=Mode.PROBE, settings=None, script_settings=None, facts=None, **limits)
    probed = cold.start(job).probe_result()
    ground.workspace.probe_is_through()
    assert probed.facts is not None and "torch._dynamo" in probed.facts.imports, probed.reason
    assert not any(name.startswith(("autotune", "tests")) for name in probed.facts.imports)
    script_settings = script_settings_of(probed.facts)
    job = ground.job(
        "trains.py", settings=script_settings, script_settings=script_settings, facts=probed.facts, **limits
    )
    with ForkRunner(cold, probed.facts, least_preparation_s=math.inf) as runner:
        forked = [runner.start(job).result() for _ in range(2)]
    results = [cold.start(job).result(), *forked]
    again = cold.start(job).result()
    assert [result.start for result in results] == ["cold", "forked", "forked"], forked[0].start_reason
    assert [result.outcome for result in results] == [Outcome.OK] * 3, forked[0].log_tail
    for result in results:
        parts = dict(result.durations_s)
        assert ("server" in parts) == (result is forked[0])
        parts.pop("server", None)
        assert {"start", "imports", "preparation", "warm_up", "compute", "ramp", "window", "ending"} <= set(parts)
        assert sum(parts.values()) == pytest.approx(result.wall_s, abs=0.001) and parts["ending"] > 0
    assert results[0].durations_s["imports"] > forked[1].durations_s["imports"]
    losses = [result.ranks[0].first_losses for result in results]
    assert len(losses[0]) > 1 and losses[0] == losses[1] == losses[2]
    peaks = [result.peak_memory_bytes or 0 for result in results]
    alone = held_alone(ground.user / "trains.py", tmp_path, num_workers=2)
    peaks_cold = [peaks[0], again.peak_memory_bytes or 0]
    # A peak depends on how many workers begin at once; what a trial holds too much, two trials of its kind hold.
    held = (min(peaks_cold), min(peaks[1:]), alone)
    assert max(held) < 1.2 * min(held), (peaks_cold, peaks[1:], alone)


@pytest.mark.parametrize(("arguments", "expected"), [(("itself",), 7), ((), 5)])
def test_random_numbers_are_the_scripts_own_or_follow_from_the_studys_seed_in_every_kind_of_start(
    ground: Ground, arguments: tuple[str, ...], expected: int
) -> None:
    job = ground.job("seeds.py", *arguments, seed=5)
    probe = changed(job, mode=Mode.PROBE, settings=None, script_settings=None, facts=None)
    forked, cold = (runner.start(job).result() for runner in (ground.runner, ground.runner._cold))
    probed = ground.runner._cold.start(probe).probe_result()
    assert (forked.start, cold.start) == ("forked", "cold"), forked.start_reason
    assert [told(result)["drawn"] for result in (forked, cold, probed)] == [drawn_from(expected)] * 3


def drawn_from(seed: int) -> list[float]:
    """What a script draws from generators with that seed."""
    own, theirs = random.Random(seed), numpy.random.RandomState(seed)
    tensor = torch.rand((), generator=torch.Generator().manual_seed(seed))
    return [own.random(), float(theirs.random()), own.random(), float(theirs.random()), float(tensor)]


@pytest.mark.parametrize("num_trials", [30, pytest.param(300, marks=pytest.mark.slow)])
def test_trials_in_a_row_leave_the_server_and_the_machine_as_they_were(ground: Ground, num_trials: int) -> None:
    def run() -> None:
        result = ground.run("leaves.py")
        assert (result.start, result.outcome) == ("forked", Outcome.OK), result.start_reason or result.log_tail

    run()
    ground.check_growth(server_of(ground).pid, num_trials, run)
