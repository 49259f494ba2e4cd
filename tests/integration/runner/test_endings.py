"""However the script ends: the right outcome, nothing left, the next trial unharmed."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from autotune.errors import HostError
from autotune.model.outcome import Outcome
from autotune.units import MIB
from tests.integration.runner.ground import EITHER, Ground, processes_of


@EITHER
@pytest.mark.parametrize(
    ("how", "outcome", "reason"),
    [
        ("raises", Outcome.CRASHED, "exit code 1"),
        ("exits_hard", Outcome.CRASHED, "exit code 3"),
        ("segfaults", Outcome.CRASHED, "SIGSEGV"),
        ("reads_a_file_that_shrank", Outcome.CRASHED, "SIGBUS"),
        ("ends_without_a_step", Outcome.CRASHED, "exit code 0"),
        ("kills_itself", Outcome.INTERRUPTED, "SIGKILL"),
        ("prints_much_then_ends", Outcome.OK, ""),
        ("reads_stdin", Outcome.OK, ""),
        ("asks_on_the_terminal", Outcome.OK, ""),
        ("reads_the_terminal_size", Outcome.OK, ""),
        ("closes_its_output", Outcome.OK, ""),
        ("closes_its_output_and_opens_it_again", Outcome.OK, ""),
        ("has_an_odd_name", Outcome.OK, ""),
        ("blocks_signals_are_free", Outcome.OK, ""),
        ("removes_its_folder", Outcome.CRASHED, "exit code"),
        ("replaces_its_folder_by_a_link_home", Outcome.CRASHED, "exit code"),
    ],
)
def test_an_ending_has_its_outcome(ground: Ground, how: str, outcome: Outcome, reason: str) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        result = ground.run("ends.py", how)
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    assert result.outcome is outcome, f"{result.reason} {result.log_tail}"
    assert reason in result.reason
    ground.check(how, result)


@EITHER
def test_no_step_within_the_start_limit_is_timed_out(ground: Ground) -> None:
    result = ground.run("ends.py", "hangs", start_limit_s=5.0)
    assert result.outcome is Outcome.TIMED_OUT
    assert "no optimizer step" in result.reason and "waiting" in result.log_tail
    ground.check("hangs before its first step", result)


@EITHER
def test_sigterm_that_is_ignored_is_followed_by_sigkill(ground: Ground) -> None:
    result = ground.run("ends.py", "ignores_sigterm", start_limit_s=5.0, total_limit_s=5.0)
    assert result.outcome is Outcome.TIMED_OUT
    assert "did not end within" in result.reason
    ground.check("ignores SIGTERM", result)


@EITHER
def test_a_command_that_ended_while_it_was_being_ended_keeps_its_exit_code(ground: Ground) -> None:
    result = ground.run("ends.py", "ends_when_asked", start_limit_s=5.0, total_limit_s=5.0)
    assert result.outcome is Outcome.TIMED_OUT
    assert result.exit_code == 7 and result.signal is None


@EITHER
@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2])
def test_a_schedulers_warning_to_every_process_ends_no_trial(ground: Ground, number: int) -> None:
    handle = ground.runner.start(ground.job("ends.py", "waits_and_reports"))
    os.kill(handle.supervisor_pid, number)  # The supervisor's interpreter has hardly started.
    ground.wait_for_line(b"waiting")
    for pid in processes_of(ground.workspace.folder):
        with suppress(ProcessLookupError):
            os.kill(pid, number)
    handle.wait()
    result = handle.result()
    assert result.outcome is Outcome.OK, f"{result.reason} {result.log_tail}"


@EITHER
def test_orphans_that_ended_do_not_pile_up(ground: Ground) -> None:
    handle = ground.runner.start(ground.job("ends.py", "leaves_orphans"))
    ground.wait_for_line(b"ready")
    children = Path(f"/proc/{handle.supervisor_pid}/task/{handle.supervisor_pid}/children").read_text().split()
    handle.cancel()
    handle.result()
    assert len(children) == 1


@EITHER
def test_a_script_that_swallows_its_end_is_ended(ground: Ground) -> None:
    result = ground.run("ends.py", "swallows_everything", start_limit_s=5.0, total_limit_s=5.0)
    assert result.outcome is Outcome.TIMED_OUT
    assert "swallowed SystemExit" in result.log_tail
    ground.check("swallows BaseException", result)


@EITHER
def test_a_process_that_the_kernel_killed_ran_out_of_memory(ground: Ground) -> None:
    result = ground.run("ends.py", "is_killed_by_the_kernel")
    group = result.log_tail.split("\n")[0]
    if group.startswith("no memory group"):
        pytest.skip(group)
    assert group.startswith("/sys/"), result
    assert result.outcome is Outcome.OUT_OF_MEMORY, result.reason
    assert result.signal == signal.SIGKILL
    os.rmdir(group)
    ground.check("killed by the kernel", result)


def test_shared_memory_of_an_ended_trial_is_given_back(ground: Ground) -> None:
    own = Path("/dev/shm/psm_of_another_program")
    with own.open("w"):
        own.chmod(0o600)
        before = {*own.parent.glob("psm_*")}
        handle = ground.runner.start(ground.job("ends.py", "leaves_shared_memory"))
        ground.wait_for_line(b"psm_")
        left = {*own.parent.glob("psm_*")} - before
        handle.cancel()
        result = handle.result()
    # With layers a trial has shared memory of its own. Otherwise files that Python opens there are redirected.
    assert bool(left) is not ground.has_layers
    assert not [path for path in left if path.exists()]
    assert own.exists()
    own.unlink()
    ground.check("leaves shared memory", result)


@EITHER
@pytest.mark.parametrize("how", ["reports", "is cancelled", "is killed with its supervisor"])
def test_semaphores_of_spawned_processes_are_given_back(ground: Ground, how: str) -> None:
    handle = ground.runner.start(ground.job("ends.py", "leaves_semaphores", how))
    ground.wait_for_line(b"semaphores")
    if how == "is cancelled":
        handle.cancel()
    elif how == "is killed with its supervisor":
        os.kill(handle.supervisor_pid, signal.SIGKILL)
    result = handle.result()
    assert "semaphores " in result.log_tail, result
    names = result.log_tail.split("semaphores ")[1].splitlines()[0].split()
    assert len(names) == 3
    assert result.outcome is (Outcome.OK if how == "reports" else Outcome.INTERRUPTED), result.reason
    assert [name for name in names if Path("/dev/shm", name).exists()] == []
    assert "leaked semaphore" not in result.log_tail
    ground.check(f"leaves semaphores, {how}", result)


@EITHER
def test_a_disk_that_fills_up_ends_the_run_and_is_not_blamed_on_it(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = iter([1000, 900])
    monkeypatch.setattr("autotune.runner.handle._free_bytes", lambda folder: next(free, 50))
    result = ground.run("ends.py", "hangs")
    assert result.outcome is Outcome.INTERRUPTED
    assert "nearly full" in result.reason
    monkeypatch.undo()
    ground.check("disk full", result)


@EITHER
def test_a_trial_that_finds_no_room_is_an_error_of_the_host(ground: Ground) -> None:
    (ground.workspace.folder / "trials").write_text("in the way")
    with pytest.raises(HostError, match="No trial can be started"):
        ground.run("obeys.py")


@EITHER
def test_endless_output_is_bounded_and_its_ends_are_kept(ground: Ground) -> None:
    handle = ground.runner.start(ground.job("ends.py", "prints_endlessly", total_limit_s=1.0, start_limit_s=1.0))
    handle.wait()
    log = next(ground.workspace.folder.glob("trials/*/output.log"))
    assert log.stat().st_size < 1.2 * MIB
    assert log.read_bytes().startswith(b"FIRST LINE")
    result = handle.result()
    assert result.outcome is Outcome.TIMED_OUT
    assert len(result.log_tail) <= 4000
    ground.check("prints endlessly", result)


@EITHER
def test_the_last_lines_of_a_long_output_are_shown(ground: Ground) -> None:
    assert ground.run("ends.py", "prints_much_then_ends").log_tail.rstrip().endswith("LAST LINE")


@EITHER
def test_more_memory_than_the_cap_ends_the_run(ground: Ground) -> None:
    handle = ground.runner.start(ground.job("ends.py", "allocates", str(300 * MIB), cap_bytes=100 * MIB))
    handle.wait()
    result = handle.result()
    assert result.outcome is Outcome.OVER_CAP
    assert result.peak_memory_bytes is not None and result.peak_memory_bytes > 100 * MIB
    ground.check("over the cap", result)


@EITHER
def test_pages_that_processes_share_count_once_against_the_cap(ground: Ground) -> None:
    result = ground.run("ends.py", "forks_that_share", str(60 * MIB), cap_bytes=140 * MIB)
    assert result.outcome is Outcome.OK, result.reason
    assert result.peak_memory_bytes is not None and 60 * MIB < result.peak_memory_bytes < 140 * MIB


@pytest.mark.parametrize("mode", ["", "breeds", "quick"])
def test_strays_end_with_the_script(ground: Ground, mode: str) -> None:
    result = ground.run("strays.py", mode)
    assert result.outcome is Outcome.OK, result.reason
    ground.check(f"50 strays {mode}".strip(), result)


def test_cancel_ends_everything(ground: Ground) -> None:
    handle = ground.runner.start(ground.job("strays.py", "waits"))
    ground.wait_for_line(b"ready")
    handle.cancel()
    handle.wait()
    result = handle.result()
    assert result.outcome is Outcome.INTERRUPTED
    ground.check("cancelled with 50 strays", result)


@EITHER
def test_a_run_that_was_over_before_the_cancel_keeps_its_result(ground: Ground) -> None:
    handle = ground.runner.start(ground.job("obeys.py"))
    handle.wait()
    handle.cancel()
    assert handle.result().outcome is Outcome.OK


def test_a_run_that_is_cancelled_before_its_command_runs_is_interrupted(ground: Ground) -> None:
    for _ in range(5):
        handle = ground.runner.start(ground.job("ends.py", "hangs"))
        handle.cancel()
        result = handle.result()
        assert result.outcome is Outcome.INTERRUPTED, result.reason
    ground.check("cancelled at once", result)


@EITHER
def test_a_missing_program_is_named(ground: Ground) -> None:
    result = ground.run(command=("no-such-program", "train.py"))
    assert result.outcome is Outcome.CRASHED
    assert "no-such-program" in result.reason and "could not be started" in result.reason
    ground.check("missing program", result)


@EITHER
def test_a_script_whose_interpreter_is_missing_is_named(ground: Ground) -> None:
    (ground.user / "run.sh").write_text("#!/no/such/shell\n")
    (ground.user / "run.sh").chmod(0o755)
    result = ground.run(command=("./run.sh",))
    assert "run.sh" in result.reason and "could not be started" in result.reason
    assert "there is no" not in result.reason


@EITHER
def test_a_missing_working_directory_is_named(ground: Ground) -> None:
    result = ground.run("obeys.py", cwd=str(ground.root / "nowhere"))
    assert result.outcome is Outcome.CRASHED
    assert "nowhere" in result.reason


def test_a_command_killed_from_outside_is_interrupted_and_not_blamed(ground: Ground) -> None:
    handle = ground.runner.start(ground.job("strays.py", "waits"))
    ground.wait_for_line(b"ready")
    os.kill(_main_process(ground), signal.SIGKILL)
    handle.wait()
    result = handle.result()
    assert result.outcome is Outcome.INTERRUPTED
    assert result.signal == signal.SIGKILL
    ground.check("killed from outside", result)


def test_a_killed_supervisor_leaves_nothing(ground: Ground) -> None:
    handle = ground.runner.start(ground.job("strays.py", "waits", "breeds"))
    ground.wait_for_line(b"ready")
    os.kill(handle.supervisor_pid, signal.SIGKILL)
    handle.cancel()
    handle.wait()
    result = handle.result()
    assert result.outcome is Outcome.INTERRUPTED
    ground.check("supervisor killed", result)


@EITHER
def test_a_stopped_supervisor_does_not_hold_up_the_search(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autotune.runner.handle.STOP_LIMIT_S", 0.5)
    result = ground.run("ends.py", "stops_its_supervisor", start_limit_s=5.0, total_limit_s=5.0)
    assert result.outcome is Outcome.TIMED_OUT
    ground.check("stops its supervisor", result)


@pytest.mark.parametrize("name", ["a b", 'it\'s "quoted"', "line\nbreak", "colon:comma,back\\slash", "ümlaut-\udcff"])
def test_odd_paths_are_taken_as_they_are(ground: Ground, name: str) -> None:
    ground.user = ground.user.rename(ground.root / name)
    script = f"tr ain '\n{name}.py"
    (ground.user / "writes.py").rename(ground.user / script)
    ground.cover()
    result = ground.run(script)
    assert result.outcome is Outcome.OK, f"{result.reason} {result.log_tail}"
    ground.check(f"a path named {name!a}", result)


def _main_process(ground: Ground) -> int:
    """The trial's command: of its processes the one whose parent is not one of them and that leads the oldest."""
    pids = processes_of(ground.workspace.folder)
    return min(
        pid
        for pid in pids
        if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(sys.executable.encode())
        and b"strays.py" in Path(f"/proc/{pid}/cmdline").read_bytes()
    )
