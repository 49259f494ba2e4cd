"""What hostile and careless scripts do, as a table: every mode of protection runs the same rows.

A script runs in `project` below a folder of the user's, beside `checkpoints`, `runs` and `shared`. It finds the process
id of the tuner as its first argument, and the user's folder as its second. What a row expects of a mode stands in
`Situation`; what holds everywhere (nothing outside is changed, no process is left) is no part of the table.
"""

from __future__ import annotations

from dataclasses import dataclass

BEGINNING = "import os, sys, pretend\ntuner, user = int(sys.argv[1]), sys.argv[2]\n"
ENDING = "\npretend.report()\n"


@dataclass(frozen=True, slots=True)
class Situation:
    """One thing that a script does, after which it reports as a trained one would."""

    name: str
    body: str
    """Python; an error of its own ends the script."""
    is_seen: bool = True
    """The script is to run to its end under layers: it sees its own writes, or the refusal that it expects."""
    needs_root: bool = False
    """Only root can do it, or be kept from it."""

    @property
    def script(self) -> str:
        """The whole file."""
        return f"{BEGINNING}{self.body}{ENDING}"


REFUSED = """
def refused(call, *arguments):
    try:
        call(*arguments)
    except (OSError, PermissionError, ProcessLookupError):
        return
    raise SystemExit(f"{call} was not refused")
"""

STAY = """
def stay():
    os.execve(sys.executable, [sys.executable, '-c', PROGRAM, 'by-a-trial'], {})

PROGRAM = 'import time; time.sleep(300)'
"""

WRITES = (
    Situation(
        "overwrites a checkpoint beside the project",
        r"""
open('../checkpoints/best.pt', 'w').write('new')
assert open('../checkpoints/best.pt').read() == 'new'
""",
    ),
    Situation(
        "appends to a log by its absolute path",
        r"""
open(user + '/runs/1/log.txt', 'a').write('more')
""",
    ),
    Situation(
        "removes a folder of runs",
        r"""
import shutil
shutil.rmtree(user + '/runs')
assert not os.path.exists(user + '/runs')
os.makedirs(user + '/runs/1')
""",
    ),
    Situation(
        "removes a folder of runs by a shell",
        r"""
assert os.system('rm -rf ../runs ../checkpoints') == 0
""",
    ),
    Situation(
        "writes to the folder that a variable of its own names",
        r"""
os.makedirs(os.environ['OUTPUT_DIR'] + '/x', exist_ok=True)
open(os.environ['OUTPUT_DIR'] + '/best.pt', 'w').write('x')
""",
    ),
    Situation(
        "writes to a path from its config file",
        r"""
import json
open(json.load(open('config.json'))['out'] + '/best.pt', 'w').write('x')
""",
    ),
    Situation(
        "follows links two levels down",
        r"""
open('data/deep/link/best.pt', 'w').write('x')
""",
    ),
    Situation(
        "opens a database by an absolute URI",
        r"""
import sqlite3
base = sqlite3.connect('file://' + user + '/shared/kept.db', uri=True)
base.execute('create table if not exists t (x)')
base.execute('insert into t values (1)')
base.commit()
base.close()
""",
    ),
    Situation(
        "writes past Python's functions on paths",
        r"""
import io, posix
io.FileIO(user + '/checkpoints/best.pt', 'w').write(b'x')
posix.close(posix.open(user + '/checkpoints/new', os.O_CREAT | os.O_WRONLY))
""",
    ),
    Situation(
        "starts a program with an empty environment",
        r"""
import subprocess
program = f'open({user!r} + "/checkpoints/best.pt", "w")'
subprocess.run([sys.executable, '-I', '-c', program], env={}, check=True)
""",
    ),
    Situation(
        "maps a checkpoint and changes it",
        r"""
import mmap
with open('../checkpoints/best.pt', 'r+b') as file:
    mmap.mmap(file.fileno(), 0)[0:1] = b'X'
""",
    ),
    Situation(
        "changes a file by a hard link of its own",
        r"""
os.link('../checkpoints/best.pt', 'mine')
open('mine', 'w').write('x')
""",
    ),
    Situation(
        "changes a file that is linked twice outside",
        r"""
open('../shared/linked.bin', 'r+b').write(b'new')
""",
    ),
    Situation(
        "renames a folder of its user's",
        r"""
import shutil
shutil.move(user + '/runs', user + '/moved')
assert os.listdir(user + '/moved') == ['1']
""",
    ),
    Situation(
        "renames a folder of its user's in one call",
        r"""
if os.geteuid() != 0:
    from autotune.sandbox.redirection import folder_renames
    folder_renames.install()
os.rename(user + '/runs', user + '/moved')
os.replace(user + '/moved/1', user + '/checkpoints/1')
assert os.listdir(user + '/moved') == [] and os.listdir(user + '/checkpoints/1') == ['log.txt']
""",
    ),
    Situation(
        "renames a file across folders",
        r"""
os.rename('../checkpoints/best.pt', '../runs/best.pt')
""",
    ),
    Situation(
        "changes modes and times",
        r"""
os.chmod('../checkpoints', 0o700)
os.utime('../checkpoints/best.pt', (0, 0))
""",
    ),
    Situation(
        "truncates a file",
        r"""
os.truncate('../checkpoints/best.pt', 0)
""",
    ),
    Situation(
        "makes a sparse file of 1 TiB",
        r"""
os.truncate(os.open('../checkpoints/big', os.O_CREAT | os.O_RDWR), 1 << 40)
""",
    ),
    Situation(
        "writes into /tmp and over a file there",
        r"""
open(os.environ['IN_TMP'], 'w').write('x')
open(os.path.dirname(os.environ['IN_TMP']) + '/new-by-a-trial', 'w')
""",
    ),
    Situation(
        "reads its input from /tmp",
        r"""
assert open(os.environ['IN_TMP']).read() == 'input'
""",
    ),
    Situation(
        "overwrites and makes files in shared memory",
        r"""
name = os.environ['IN_MEMORY']
assert open(name).read() == 'shared'
open(name, 'w').write('x')
open(name + '-new-by-a-trial', 'w')
""",
    ),
    Situation(
        "writes by the way of /proc/self/root",
        r"""
open('/proc/self/root' + user + '/checkpoints/best.pt', 'w').write('x')
""",
    ),
    Situation(
        "writes by the way of /proc/self/cwd and an open folder",
        r"""
open('/proc/self/cwd/../checkpoints/best.pt', 'w').write('x')
folder = os.open('..', os.O_RDONLY)
os.unlink('runs/1/log.txt', dir_fd=folder)
""",
    ),
    Situation(
        "makes links that lead outside",
        r"""
os.symlink(user + '/checkpoints', 'way')
open('way/best.pt', 'w').write('x')
os.remove('../shared/link')
os.symlink('/etc/passwd', '../shared/link')
""",
    ),
    Situation(
        "makes ten thousand files",
        r"""
for i in range(10_000):
    open(f'../runs/file-{i}', 'w').close()
""",
    ),
    Situation(
        "shares memory between processes",
        r"""
import multiprocessing.shared_memory as memory
block = memory.SharedMemory(create=True, size=1 << 20)
block.buf[0] = 1
other = memory.SharedMemory(block.name)
assert other.buf[0] == 1
other.close()
block.unlink()
""",
    ),
)
"""Writes that are all for the layer, and that the script sees itself."""

ESCAPES = (
    Situation(
        "looks for the tuner's files by its process id",
        REFUSED
        + r"""
refused(open, f'/proc/{tuner}/root{user}/checkpoints/best.pt', 'w')
""",
    ),
    Situation(
        "writes by the way of /proc/1/root",
        r"""
try:
    open('/proc/1/root' + user + '/checkpoints/best.pt', 'w').write('x')
except OSError:
    pass
""",
    ),
    Situation(
        "writes to the tuner's memory",
        REFUSED
        + r"""
refused(open, f'/proc/{tuner}/mem', 'r+b')
""",
    ),
    Situation(
        "attaches to the tuner",
        r"""
import ctypes
libc = ctypes.CDLL(None)
assert libc.ptrace(16, tuner, 0, 0) == -1 or tuner == os.getpid()
""",
    ),
    Situation(
        "kills the tuner",
        REFUSED
        + r"""
import signal
refused(os.kill, tuner, signal.SIGKILL)
""",
    ),
    Situation(
        "kills every process that it may",
        r"""
import signal
try:
    os.kill(-1, 0)
except OSError:
    pass
for pid in map(int, filter(str.isdigit, os.listdir('/proc'))):
    if pid not in (os.getpid(), os.getppid()):
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            pass
""",
    ),
    Situation(
        "mounts over a folder, and takes mounts off",
        r"""
import ctypes
libc = ctypes.CDLL(None)
assert libc.mount(b'none', user.encode(), b'tmpfs', 0, None) == -1
assert libc.mount(b'/', b'/mnt', None, 4096, None) == -1
assert libc.umount2(b'/', 2) == -1 and libc.umount2(user.encode(), 2) == -1
""",
    ),
    Situation(
        "makes a namespace of its own and takes mounts off there",
        r"""
import subprocess, shutil
if shutil.which('unshare'):
    subprocess.run(['unshare', '--user', '--map-root-user', '--mount', 'sh', '-c',
        f'umount -l /; umount -l {user}; mount --bind / /mnt; echo x > {user}/checkpoints/best.pt'], check=False)
""",
    ),
    Situation(
        "makes a device node of the disk",
        REFUSED
        + r"""
import stat
device = os.stat(user).st_dev
refused(os.mknod, 'disk', 0o600 | stat.S_IFBLK, os.makedev(254, 0))
""",
        needs_root=True,
    ),
    Situation(
        "opens a file by its handle",
        r"""
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
root = b'\x08\0\0\0\x01\0\0\0\x02\0\0\0\0\0\0\0'
handle = ctypes.create_string_buffer(root, 128)
folder = os.open(os.environ['AUTOTUNE_TRIAL'], os.O_RDONLY)
assert libc.open_by_handle_at(folder, handle, os.O_RDONLY) == -1
""",
        needs_root=True,
    ),
    Situation(
        "changes the machine by /proc/sys and /sys",
        REFUSED
        + r"""
refused(open, '/proc/sys/kernel/hostname', 'w')
refused(os.mkdir, '/sys/fs/cgroup/by-a-trial')
""",
        needs_root=True,
    ),
    Situation(
        "makes a file among the devices",
        REFUSED
        + r"""
refused(open, '/dev/by-a-trial', 'w')
""",
    ),
    Situation(
        "leaves a segment of System V",
        r"""
import ctypes
assert ctypes.CDLL(None).shmget(0x5EED, 4096, 0o1600) != -1
""",
    ),
)
"""Ways out, each refused or leading nowhere."""

PROCESSES = (
    Situation(
        "leaves a daemon behind that has killed its supervisor",
        STAY
        + r"""
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
    ),
    Situation(
        "leaves daemons behind that forget where they come from",
        STAY
        + r"""
for _ in range(5):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            stay()
        os._exit(0)
""",
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
"""What is to be gone when the trial is over."""

GROUPS = (
    Situation(
        "writes to a folder of its group",
        r"""
group = user + '/group'
open(group + '/kept.txt', 'a').write('more')
assert open(group + '/kept.txt').read() == 'keptmore'
open(group + '/new.txt', 'w').write('new')
os.makedirs(group + '/runs/1')
os.remove(group + '/removed.txt')
assert sorted(os.listdir(group)) == ['kept.txt', 'new.txt', 'runs']
""",
    ),
)
"""What a user does in the folder `group`, whose files are of another user and of a group that the user is in."""

SITUATIONS = (*WRITES, *ESCAPES, *PROCESSES)
