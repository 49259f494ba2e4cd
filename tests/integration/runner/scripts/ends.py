"""Ends in the way that its argument names."""

import ctypes
import os
import resource
import signal
import subprocess
import sys
import time

import pretend

MEMORY_V1, MEMORY_V2 = "/sys/fs/cgroup/memory", "/sys/fs/cgroup"


def raises():
    raise ValueError("no such column")


def hangs():
    print("waiting")
    time.sleep(600)


def waits_and_reports():
    print("waiting")
    time.sleep(2)
    pretend.report()


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
    time.sleep(1)
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


def reads_a_file_that_shrank():
    """SIGBUS, as from a full /dev/shm."""
    import mmap
    import tempfile

    with tempfile.TemporaryFile() as file:
        file.truncate(1 << 20)
        mapped = mmap.mmap(file.fileno(), 1 << 20)
        file.truncate(0)
        print(mapped[1 << 19])


def ends_when_asked():
    """Ends by itself, but only once it is being ended."""
    signal.signal(signal.SIGTERM, lambda *_: os._exit(7))
    pretend.stepped()
    time.sleep(600)


def leaves_orphans():
    """Many processes that lose their parents and end."""
    for _ in range(100):
        if os.fork() == 0:
            if os.fork() == 0:
                time.sleep(0.05)
            os._exit(0)
        os.wait()
    time.sleep(0.5)
    pretend.stepped()
    print("ready", flush=True)
    time.sleep(600)


def swallows_everything():
    """Goes on whatever is raised in it, its own end included."""
    pretend.stepped()
    while True:
        try:
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
            time.sleep(0.1)
        except BaseException as error:
            print("swallowed", type(error).__name__)


def is_killed_by_the_kernel():
    """Moves itself to a group with little memory, and takes more."""
    try:
        group = next(path for path in (MEMORY_V1, MEMORY_V2) if os.path.isdir(path))
        group = os.path.join(group, f"trial-{os.getpid()}")
        os.mkdir(group)
        limit = "memory.limit_in_bytes" if group.startswith(MEMORY_V1) else "memory.max"
        for name, text in ((limit, str(64 << 20)), ("cgroup.procs", str(os.getpid()))):
            with open(os.path.join(group, name), "w") as file:
                file.write(text)
    except (OSError, StopIteration) as error:
        sys.exit(f"no memory group can be made here: {error!r}")
    print(group, flush=True)
    held = [b"x" * (1 << 24) for _ in range(64)]
    print(len(held))


def leaves_shared_memory():
    from multiprocessing import resource_tracker, shared_memory

    block = shared_memory.SharedMemory(create=True, size=4096)
    resource_tracker.unregister(block._name, "shared_memory")
    with open(f"/dev/shm/torch_{os.getpid()}_7_0", "w", opener=lambda path, flags: os.open(path, flags, 0o600)):
        print(block.name, flush=True)
    pretend.stepped()
    time.sleep(600)


def leaves_semaphores(how):
    """Holds semaphores with names, as loader workers by spawn do, and a process that knows them."""
    import multiprocessing

    context = multiprocessing.get_context("spawn")
    locks = [context.Lock() for _ in range(3)]
    process = context.Process(target=time.sleep, args=(600,))
    process.start()
    print("semaphores", *(f"sem.{lock._semlock.name.removeprefix('/')}" for lock in locks), flush=True)
    if how == "reports":
        pretend.report()
        os._exit(0)
    pretend.stepped()
    time.sleep(600)


def stops_its_supervisor():
    pretend.stepped()
    os.kill(os.getppid(), signal.SIGSTOP)
    time.sleep(600)


def blocks_signals_are_free():
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, ())
    pretend.report()


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
