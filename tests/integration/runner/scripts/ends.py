"""Ends in the way that its argument names."""

import ctypes
import os
import resource
import signal
import subprocess
import sys
import time

import pretend


def raises():
    raise ValueError("no such column")


def hangs():
    print("waiting")
    time.sleep(600)


def ignores_sigterm():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    pretend.stepped()
    time.sleep(600)


def exits_hard():
    pretend.stepped()
    os._exit(3)


def segfaults():
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    ctypes.string_at(0)


def ends_without_a_step():
    print("nothing to do")


def prints_endlessly():
    pretend.stepped()
    print("FIRST LINE")
    while True:
        print("x" * 1000)


def prints_much_then_ends():
    print("FIRST LINE")
    for _ in range(3000):
        print("x" * 1000)
    print("LAST LINE")
    pretend.report()


def kills_itself():
    os.kill(os.getpid(), signal.SIGKILL)


def allocates(num_bytes):
    pretend.stepped()
    held = []
    for _ in range(int(num_bytes) >> 24):
        held.append(b"x" * (1 << 24))
        time.sleep(0.01)
    time.sleep(600)


def forks_that_share(num_bytes):
    """Several processes that all map the same pages: little memory, many times counted by resident size."""
    pretend.stepped()
    held = b"x" * int(num_bytes)
    for _ in range(4):
        if os.fork() == 0:
            time.sleep(600)
    time.sleep(2)
    print(len(held))
    pretend.report()


def removes_its_folder():
    import shutil

    pretend.report()
    shutil.rmtree(pretend.FOLDER)
    print("gone")


def replaces_its_folder_by_a_link_home():
    import shutil

    shutil.rmtree(pretend.FOLDER)
    os.symlink(os.environ["HOME"], pretend.FOLDER)


def reads_stdin():
    for _ in range(3):
        assert sys.stdin.read() == "", "the terminal gave input"
    inherited = subprocess.run([sys.executable, "-S", "-c", "import sys; print(repr(sys.stdin.read()))"], check=True)
    assert inherited.returncode == 0
    pretend.report()


def asks_on_the_terminal():
    try:
        os.open("/dev/tty", os.O_RDWR)
    except OSError:
        pretend.report()
        return
    time.sleep(600)


def reads_the_terminal_size():
    columns, lines = os.get_terminal_size()
    assert columns >= 80 and lines >= 24 and sys.stdout.isatty() and sys.stderr.isatty()
    pretend.report()


def closes_its_output():
    for descriptor in (0, 1, 2):
        os.close(descriptor)
    time.sleep(0.3)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 1)
    pretend.report()


def closes_its_output_and_opens_it_again():
    name = os.ttyname(1)
    for descriptor in (0, 1, 2):
        os.close(descriptor)
    time.sleep(0.3)
    again = os.open(name, os.O_WRONLY | os.O_NOCTTY)
    for _ in range(100):
        os.write(again, b"y" * 4096)
    os.write(again, b"LAST LINE\n")
    pretend.report()


def has_an_odd_name():
    """Process names are bytes that the script chooses; tools that read /proc must bear them."""
    ctypes.CDLL(None).prctl(15, b"\xff) Z 1 (\xfe", 0, 0, 0)
    pretend.stepped()
    time.sleep(1.0)
    pretend.report()


def stops_its_warden():
    pretend.stepped()
    os.kill(os.getppid(), signal.SIGSTOP)
    time.sleep(600)


def blocks_signals_are_free():
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, ())
    pretend.report()


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
