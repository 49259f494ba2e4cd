"""What is to be gone at the end of a trial: processes of every kind."""

from __future__ import annotations

from tests.sandbox.situations.situation import SIGNALS, Situation

PROCESSES = (
    Situation(
        "leaves a daemon behind that has killed its supervisor",
        r"""
import signal, time
if os.fork() == 0:
    os.setsid()
    pids = map(int, filter(str.isdigit, os.listdir('/proc')))
    for pid in (os.getppid(), *pids):
        try:
            words = open(f'/proc/{pid}/cmdline').read()
        except OSError:
            continue
        if 'autotune.sandbox.supervisor' in words:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
    if os.fork() == 0:
        stay()
    os._exit(0)
time.sleep(0.3)
""",
        modes=SIGNALS,
        is_quick=True,
    ),
    Situation(
        "leaves daemons behind that forget where they come from",
        r"""
for _ in range(5):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            stay()
        os._exit(0)
""",
        is_quick=True,
    ),
    Situation(
        "forks in a burst and ends",
        r"""
import time
for _ in range(50):
    if os.fork() == 0:
        time.sleep(300)
        os._exit(0)
""",
    ),
)

MORE_PROCESSES = (
    Situation(
        "goes on writing after its end",
        r"""
if os.fork() == 0:
    os.setsid()
    for _ in range(1000):
        with suppress(OSError):
            open('../checkpoints/best.pt', 'a').write('x')
        time.sleep(0.01)
    os._exit(0)
""",
        is_quick=True,
    ),
    Situation(
        "leaves two processes that start each other again",
        r"""
def guard(is_first):
    while True:
        pid = os.fork()
        if pid == 0:
            os.setsid()
            time.sleep(0.02)
            if not is_first:
                guard(True)
            time.sleep(300)
            os._exit(0)
        os.waitpid(pid, 0)
if os.fork() == 0:
    guard(False)
time.sleep(0.05)
""",
    ),
    Situation(
        "leaves a process that ignores all signals",
        r"""
if os.fork() == 0:
    signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
    for number in range(1, 65):
        with suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_IGN)
    stay()
""",
    ),
    Situation(
        "leaves stopped processes",
        r"""
for _ in range(3):
    pid = os.fork()
    if pid == 0:
        os.setsid()
        stay()
    os.kill(pid, signal.SIGSTOP)
""",
    ),
    Situation(
        "leaves a process that cannot be examined",
        r"""
if os.fork() == 0:
    os.setsid()
    libc.prctl(4, 0, 0, 0, 0)
    libc.prctl(1, 0, 0, 0, 0)
    libc.prctl(36, 1, 0, 0, 0)
    if os.fork() == 0:
        time.sleep(300)
    time.sleep(300)
    os._exit(0)
""",
    ),
    Situation(
        "leaves a process of another user",
        r"""
if os.fork() == 0:
    os.setsid()
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
    os.closerange(0, 64)
    time.sleep(300)
    os._exit(0)
""",
        needs_root=True,
    ),
    Situation(
        "leaves a process in namespaces of its own",
        r"""
subprocess.Popen(['unshare', '--user', '--map-root-user', '--pid', '--fork', sys.executable, '-c', PROGRAM,
                  'by-a-trial'], stderr=subprocess.DEVNULL)
time.sleep(0.2)
""",
    ),
    Situation(
        "starts programs that leave its session",
        r"""
sh('nohup sleep 300 & setsid -f sleep 300; (sleep 300 &) ; sleep 300 & disown')
""",
    ),
    Situation(
        "forks on and on while it is ended",
        r"""
if os.fork() == 0:
    os.setsid()
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        if os.fork():
            os._exit(0)
    os._exit(0)
""",
    ),
    Situation(
        "forks a bounded bomb",
        r"""
for _ in range(8):
    with suppress(OSError):
        os.fork()
if os.getpid() != LEADER:
    time.sleep(300)
    os._exit(0)
""".replace("for _", "LEADER = os.getpid()\nfor _", 1),
        is_quick=True,
    ),
    Situation(
        "leaves a hundred threads at work",
        r"""
import threading
for _ in range(100):
    threading.Thread(target=time.sleep, args=(300,)).start()
pretend.report()
os._exit(0)
""",
    ),
    Situation(
        "adopts the orphans of its tree and leaves them",
        r"""
if os.fork() == 0:
    libc.prctl(36, 1, 0, 0, 0)
    for _ in range(5):
        if os.fork() == 0:
            if os.fork() == 0:
                stay()
            os._exit(0)
    time.sleep(300)
    os._exit(0)
time.sleep(0.1)
""",
    ),
    Situation(
        "traces a process of its own",
        r"""
pid = os.fork()
if pid == 0:
    libc.ptrace(0, 0, 0, 0)
    os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(300)
    os._exit(0)
os.waitpid(pid, os.WUNTRACED)
""",
    ),
    Situation(
        "ends itself by a signal that no process can catch",
        r"""
if os.fork() == 0:
    stay()
pretend.stepped()
os.kill(os.getpid(), signal.SIGKILL)
""",
        outcome="interrupted",
    ),
    Situation(
        "replaces itself by another program",
        r"""
pretend.report()
os.execvp('sh', ['sh', '-c', 'sleep 300 & sleep 0.2'])
""",
    ),
)
"""More of these."""
