"""The command line as a process: its streams, signals, locale, and what it loads."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import autotune
from autotune.cli.interrupts import stops_on_signal
from autotune.study.stop import StopRequest

from ..unit.report.examples import NATURAL, TUNED, measured, search_result
from .conftest import trial_record

ROOT = Path(autotune.__file__).parents[1]
COMMAND = [sys.executable, "-m", "autotune"]
TRIALS = (trial_record(0, NATURAL, measured(1000.0)), trial_record(1, TUNED, measured(2410.0)))


def environment(**changes):
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return {**kept, "PYTHONPATH": str(ROOT), **changes}


def process(*words, **options):
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "env": environment(), **options}
    return subprocess.run([*COMMAND, *words], timeout=60, check=False, **options)


@pytest.mark.parametrize(
    "variables",
    [{"LC_ALL": "C"}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, {"PYTHONIOENCODING": "ascii"}],
)
def test_a_locale_without_unicode_is_no_obstacle(stored, variables):
    stored("\N{SNOWMAN}", trials=TRIALS, result=search_result())
    done = process("studies", env=environment(**variables))
    assert (done.returncode, done.stderr) == (0, b"")
    done = process("best", "\N{SNOWMAN}man", env=environment(**variables))
    assert done.returncode == 2 and b"Traceback" not in done.stderr


def test_a_closed_standard_input_counts_as_no(stored):
    stored()
    done = process("studies", "delete", "train", preexec_fn=lambda: os.close(0))
    assert done.returncode == 2
    assert b"was not deleted" in done.stderr and b"Traceback" not in done.stderr


def test_closed_outputs_are_no_obstacle_and_their_descriptors_are_not_given_to_the_database(stored, folder):
    stored(trials=TRIALS)

    def close():
        os.closerange(0, 3)

    done = subprocess.run([*COMMAND, "studies"], preexec_fn=close, env=environment(), timeout=60, check=False)
    assert done.returncode == 0
    assert (folder / "studies" / "autotune.db").read_bytes()[:15] == b"SQLite format 3"


@pytest.mark.parametrize("words", [["studies"], ["studies", "--json"], ["search", "--help"], ["--version"]])
def test_a_reader_who_has_left_is_no_error(stored, words):
    stored(trials=TRIALS)
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = process(*words, stdout=write_end)
    os.close(write_end)
    assert (done.returncode, done.stderr) == (0, b"")


def test_an_error_that_nobody_reads_keeps_its_exit_code():
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = process("best", "train", stderr=write_end)
    os.close(write_end)
    assert (done.returncode, done.stdout) == (5, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_result_that_cannot_be_written_is_an_error(stored):
    stored(trials=TRIALS)
    with open("/dev/full", "wb") as full:
        done = process("studies", stdout=full)
    assert done.returncode == 6
    assert b"The result cannot be written: No space left" in done.stderr and b"Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("words", "forbidden"),
    [
        (["--help"], {"torch", "optuna", "sqlalchemy", "yaml"}),
        (["search", "--help"], {"torch", "optuna", "sqlalchemy", "yaml"}),
        (["best", "train", "--json"], {"torch", "optuna"}),
        (["studies", "list"], {"torch", "optuna"}),
        (["studies", "show", "train"], {"torch", "optuna"}),
        (["export", "train"], {"torch", "optuna"}),
    ],
)
def test_a_verb_loads_no_more_than_it_needs(stored, words, forbidden):
    stored(trials=TRIALS, result=search_result(config=None))
    code = (
        "import json, sys\n"
        "from autotune.cli.main import main\n"
        f"main({words!r})\n"
        "print(json.dumps(sorted(sys.modules)), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, timeout=60, check=True)
    loaded = set(json.loads(done.stderr.splitlines()[-1]))
    assert "autotune.cli.main" in loaded
    assert not loaded & forbidden


def test_a_signal_that_is_ignored_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    stop = StopRequest()
    try:
        with stops_on_signal(stop):
            os.kill(os.getpid(), signal.SIGHUP)
        assert stop.level == 0
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("heard")
def test_a_stop_that_is_shown_elsewhere_is_not_told_on_top_of_it(capfd):
    stop = StopRequest()
    with stops_on_signal(stop, is_shown=True):
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.level == 1
    assert capfd.readouterr().err == ""


@pytest.mark.usefixtures("heard")
def test_the_first_signal_ends_what_would_save_nothing(capfd):
    stop = StopRequest(saves=False)
    with stops_on_signal(stop):
        os.kill(os.getpid(), signal.SIGINT)
    assert stop.level == 2
    assert capfd.readouterr().err == "\nEnding what is running.\n"


@pytest.mark.usefixtures("heard")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_asks_once_the_second_twice_and_the_third_leaves(capfd, number):
    stop = StopRequest()
    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt), stops_on_signal(stop):
        os.kill(os.getpid(), number)
        assert stop.level == 1
        assert b"Ending after the running trial" in capfd.readouterr().err.encode()
        os.kill(os.getpid(), number)
        assert stop.level == 2
        assert b"Ending what is running" in capfd.readouterr().err.encode()
        os.kill(os.getpid(), number)
    assert signal.getsignal(number) == before


def test_an_interrupt_while_the_command_is_loaded_is_no_traceback(folder):
    program = (
        "import os, signal, sys\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job of a shell ignores interrupts\n"
        "class Interrupts:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'typer':\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupts())\n"
        "from autotune.cli.entry import main\n"
        "sys.exit(main())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, env=environment(), timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (130, b"autotune: error: Interrupted.\n")


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2])
def test_a_schedulers_warning_asks_once_however_often_it_comes(number):
    stop = StopRequest()
    with stops_on_signal(stop, is_shown=True):
        for _ in range(3):
            signal.raise_signal(number)
        assert stop.level == 1
        signal.raise_signal(signal.SIGTERM)
        assert stop.level == 2
        signal.raise_signal(number)
        assert stop.level == 2


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2])
def test_a_schedulers_warning_during_the_imports_ends_no_command_and_asks_a_search_to_stop(number):
    program = (
        "import os, signal, sys\n"
        "class Warns:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'autotune.cli.main':\n"
        f"            os.kill(os.getpid(), {int(number)})\n"
        "sys.meta_path.insert(0, Warns())\n"
        "sys.argv = ['autotune', '--version']\n"
        "from autotune.cli.entry import main\n"
        "code = main()\n"
        "from autotune.cli.interrupts import stops_on_signal\n"
        "from autotune.study.stop import StopRequest\n"
        "levels = []\n"
        "for stop in (StopRequest(), StopRequest()):\n"
        "    with stops_on_signal(stop, is_shown=True):\n"
        "        levels.append(stop.level)\n"
        "sys.exit(f'{code} {levels}')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment(), timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (1, "0 [1, 0]\n")


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere file names are text")
def test_a_working_directory_whose_name_is_no_text_is_refused_in_words(folder):
    place = os.fsencode(folder) + b"/caf\xe9"
    os.mkdir(place)
    done = process("search", "train.py", cwd=place)
    assert done.returncode == 2 and b"not UTF-8" in done.stderr and b"Traceback" not in done.stderr
