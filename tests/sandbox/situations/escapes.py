"""Ways out of the sandbox: each is refused, or leads nowhere."""

from __future__ import annotations

from tests.sandbox.situations.situation import LAYERS, SIGNALS, Situation

ESCAPES = (
    Situation(
        "looks for the tuner's files by its process id",
        r"""
refused(open, f'/proc/{tuner}/root{user}/checkpoints/best.pt', 'w')
""",
        is_quick=True,
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
        r"""
refused(open, f'/proc/{tuner}/mem', 'r+b')
""",
        modes=SIGNALS,
    ),
    Situation(
        "attaches to the tuner",
        r"""
import ctypes
libc = ctypes.CDLL(None)
assert libc.ptrace(16, tuner, 0, 0) == -1 or tuner == os.getpid()
""",
        modes=SIGNALS,
    ),
    Situation(
        "kills the tuner",
        r"""
import signal
refused(os.kill, tuner, signal.SIGKILL)
""",
        modes=SIGNALS,
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
        modes=SIGNALS,
        is_quick=True,
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
        modes=SIGNALS,
        is_quick=True,
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
        r"""
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
        r"""
refused(open, '/proc/sys/kernel/hostname', 'w')
refused(os.mkdir, '/sys/fs/cgroup/by-a-trial')
""",
        needs_root=True,
        modes=SIGNALS,
    ),
    Situation(
        "makes a file among the devices",
        r"""
refused(open, '/dev/by-a-trial', 'w')
""",
        modes=SIGNALS,
    ),
    Situation(
        "leaves a segment of System V",
        r"""
import ctypes
assert ctypes.CDLL(None).shmget(0x5EED, 4096, 0o1600) != -1
""",
        modes=(LAYERS,),
    ),
)

PROCESSES_OF_OTHERS = (
    Situation(
        "writes to the tuner's memory by process_vm_writev",
        r"""
text = ctypes.create_string_buffer(b'x')
piece = (ctypes.c_uint64 * 2)(ctypes.addressof(text), 1)
there = (ctypes.c_uint64 * 2)(1 << 16, 1)
assert libc.process_vm_writev(tuner, piece, 1, there, 1, 0) == -1 and ctypes.get_errno() in (1, 3)
""",
        modes=SIGNALS,
    ),
    Situation(
        "takes a descriptor of the tuner's",
        r"""
number = libc.syscall(434, tuner, 0)
assert number == -1 or libc.syscall(438, number, 0, 0) == -1
refused(os.listdir, f'/proc/{tuner}/fd')
""",
        modes=SIGNALS,
    ),
    Situation(
        "enters the tuner's namespaces",
        r"""
number = libc.syscall(434, tuner, 0)
for kind in (0x20000, 0x8000000, 0x40000000, 0x20000000, 0x10000000):
    assert number == -1 or libc.setns(number, kind) == -1
    for pid in (1, tuner):
        with suppress(OSError):
            name = {0x20000: 'mnt', 0x8000000: 'ipc', 0x40000000: 'net', 0x20000000: 'pid', 0x10000000: 'user'}[kind]
            is_own = os.readlink(f'/proc/{pid}/ns/{name}') == os.readlink(f'/proc/self/ns/{name}')
            entered = libc.setns(os.open(f'/proc/{pid}/ns/{name}', os.O_RDONLY), kind)
            assert entered == -1 or is_own, name
""",
        modes=(LAYERS,),
    ),
    Situation(
        "reads the tuner's variables and changes its limits",
        r"""
refused(open, f'/proc/{tuner}/environ')
import resource
refused(resource.prlimit, tuner, resource.RLIMIT_NOFILE, (10, 10))
""",
        modes=(LAYERS,),
    ),
    *(
        Situation(
            f"sends {name} to the tuner",
            f"""
refused(os.kill, tuner, signal.{name})
""",
            modes=SIGNALS,
        )
        for name in ("SIGSTOP", "SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1", "SIGPIPE", "SIGALRM")
    ),
    Situation(
        "signals by descriptors of processes, by groups and by owners of files",
        r"""
number = libc.syscall(434, tuner, 0)
assert number == -1 or libc.syscall(424, number, 9, None, 0) == -1
import fcntl
one, other = socket.socketpair()
with suppress(OSError):
    fcntl.fcntl(one, fcntl.F_SETOWN, tuner)
    fcntl.fcntl(one, 10, 9)
    fcntl.fcntl(one, fcntl.F_SETFL, os.O_ASYNC)
    other.send(b'x')
with suppress(OSError):
    os.killpg(tuner, signal.SIGKILL)
libc.syscall(234, tuner, tuner, 9)
""",
        modes=SIGNALS,
    ),
    Situation(
        "kills the first process of its system",
        r"""
for number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM):
    with suppress(OSError):
        os.kill(1, number)
""",
        modes=(LAYERS,),
    ),
    Situation(
        "looks for descriptors that the tuner left open",
        r"""
for number in map(int, os.listdir('/proc/self/fd')):
    with suppress(OSError):
        target = os.readlink(f'/proc/self/fd/{number}')
        assert number < 3 or '/fd' in target or target.startswith(os.getcwd()), (number, target)
""",
    ),
)
"""Attacks on the tuner."""

KERNEL = (
    Situation(
        "moves mounts by the new calls",
        r"""
tree = libc.syscall(428, -100, user.encode(), 1)
assert tree == -1 or libc.syscall(429, tree, b'', -100, b'/mnt', 4) == -1
assert libc.syscall(430, b'tmpfs', 0) == -1
assert libc.syscall(442, -100, user.encode(), 0, (ctypes.c_uint64 * 4)(0, 1, 0, 0), 32) == -1
""",
        modes=SIGNALS,
    ),
    Situation(
        "bind-mounts a folder over another",
        r"""
sh(f"mount --bind '{user}/out' '{user}/runs'; mount -o remount,rw /; echo x > '{user}/runs/best.pt'")
assert libc.mount(f'{user}/out'.encode(), f'{user}/runs'.encode(), None, 4096, None) == -1
""",
        modes=SIGNALS,
        is_quick=True,
    ),
    Situation(
        "mounts a layer of its own below the user's folders, in a namespace of its own",
        r"""
sh(f"unshare --user --map-root-user --mount sh -c 'mkdir -p ../out/work; mount -t overlay none "
   f"-o lowerdir={user}/runs,upperdir={user}/checkpoints,workdir={user}/out/work /mnt; echo x > /mnt/by-a-trial'")
""",
    ),
    Situation(
        "serves a file system in user space",
        r"""
with suppress(OSError):
    number = os.open('/dev/fuse', os.O_RDWR)
    options = f'fd={number},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()}'
    assert libc.mount(b'fuse', f'{user}/runs'.encode(), b'fuse', 0, options.encode()) == -1
sh(f"fusermount3 -u '{user}/runs'; fusermount -u '{user}/runs'")
""",
        modes=SIGNALS,
    ),
    Situation(
        "changes its root, and climbs out of there",
        r"""
os.mkdir('jail')
try:
    os.chroot('jail')
except OSError:
    pass
else:
    raise SystemExit('chroot was not refused')
""",
        modes=(LAYERS,),
    ),
    Situation(
        "opens the disk's own device",
        r"""
for path in filter(lambda path: stat.S_ISBLK(os.stat(path).st_mode), map('/dev/'.__add__, os.listdir('/dev'))):
    refused(os.open, path, os.O_WRONLY)
    refused(os.open, path, os.O_RDWR)
for path in ('/dev/mem', '/dev/port', '/dev/kmem'):
    refused(os.open, path, os.O_WRONLY)
""",
        modes=SIGNALS,
        is_quick=True,
    ),
    Situation(
        "changes clock, names and modules of the machine",
        r"""
refused(time.clock_settime, time.CLOCK_REALTIME, time.time())
refused(socket.sethostname, socket.gethostname())
assert libc.syscall(313, 0, b'', 0) == -1 and libc.swapoff(b'/by-a-trial') == -1
assert libc.acct(b'/by-a-trial') == -1
""",
        modes=(LAYERS,),
    ),
    Situation(
        "starts programs in the kernel",
        r"""
assert libc.syscall(321, 5, ctypes.create_string_buffer(128), 128) == -1
refused(open, '/proc/sys/kernel/core_pattern', 'w')
refused(open, '/proc/sysrq-trigger', 'w')
refused(open, '/sys/kernel/uevent_helper', 'w')
""",
        modes=SIGNALS,
    ),
    Situation(
        "makes a group of processes of its own, to stay there",
        r"""
for place in ('/sys/fs/cgroup', '/sys/fs/cgroup/unified', '/sys/fs/cgroup/pids'):
    refused(os.mkdir, place + '/by-a-trial')
""",
        modes=SIGNALS,
    ),
    Situation(
        "writes to the folders of other users in /run and /proc",
        r"""
with suppress(OSError):
    open('/run/by-a-trial', 'w')
for pid in (1, tuner):
    with suppress(OSError):
        open(f'/proc/{pid}/cwd/by-a-trial', 'w')
    with suppress(OSError):
        open(f'/proc/{pid}/root{user}/checkpoints/best.pt', 'w').write('x')
    with suppress(OSError):
        open(f'/proc/{pid}/oom_score_adj', 'w').write('1000')
""",
    ),
)
"""Attacks on the machine."""

SERVICES = (
    Situation(
        "asks the message bus to start a program",
        r"""
for name in ('BUS', 'DOCKER'):
    client = socket.socket(socket.AF_UNIX)
    refused(client.connect, os.environ[name + '_SOCKET'])
sh('dbus-send --system --dest=org.freedesktop.systemd1 / org.freedesktop.systemd1.Manager.Reload')
""",
        modes=(LAYERS,),
        is_quick=True,
    ),
    Situation(
        "sends to an abstract socket",
        r"""
client = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
refused(client.sendto, b'by-a-trial', '\0' + os.environ['ABSTRACT_SOCKET'])
""",
        modes=SIGNALS,
        is_quick=True,
    ),
    Situation(
        "sends to a service on a port of this machine",
        r"""
client = socket.socket()
refused(client.connect, ('127.0.0.1', int(os.environ['TCP_PORT'])))
with suppress(OSError):
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'by-a-trial', ('127.0.0.1', int(os.environ['UDP_PORT'])))
""",
        modes=(LAYERS,),
        is_quick=True,
    ),
    Situation(
        "talks to itself over the loopback",
        r"""
server = socket.create_server(('127.0.0.1', 0))
client = socket.create_connection(server.getsockname())
accepted, _ = server.accept()
accepted.send(b'x')
assert client.recv(1) == b'x'
name = socket.create_server((socket.gethostbyname(socket.gethostname()), 0))
client = socket.create_connection(name.getsockname())
client.send(b'x')
""",
        is_quick=True,
    ),
    Situation(
        "takes a port that another program has",
        r"""
with suppress(OSError):
    socket.create_server(('127.0.0.1', int(os.environ['TCP_PORT'])))
with suppress(OSError):
    socket.create_server(('0.0.0.0', 80))
""",
    ),
    Situation(
        "changes the network of the machine",
        r"""
sh('ip link set lo down; ip link add by-a-trial type dummy; ip route flush table main')
with suppress(OSError):
    socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
""",
        modes=(LAYERS,),
    ),
    Situation(
        "changes a segment of System V of its user's",
        r"""
number = libc.shmget(int(os.environ['SEGMENT']), 16, 0)
libc.shmat.restype = ctypes.c_void_p
if number != -1:
    ctypes.memmove(libc.shmat(number, None, 0), b'changed', 7)
    libc.shmctl(number, 0, None)
""",
        modes=(LAYERS,),
        is_quick=True,
    ),
    Situation(
        "leaves semaphores and messages of System V",
        r"""
assert libc.semget(0x5EED, 1, 0o1600) != -1
assert libc.msgget(0x5EED, 0o1600) != -1
""",
        modes=(LAYERS,),
    ),
    Situation(
        "leaves a queue of messages",
        r"""
librt = ctypes.CDLL('librt.so.1', use_errno=True)
if hasattr(librt, 'mq_open'):
    librt.mq_open(b'/by-a-trial', os.O_CREAT | os.O_RDWR, 0o600, None)
""",
        modes=(LAYERS,),
    ),
    Situation(
        "leaves a named semaphore and shared memory with a name",
        r"""
librt = ctypes.CDLL('librt.so.1', use_errno=True)
librt.sem_open.restype = ctypes.c_void_p
librt.sem_open(b'/new-by-a-trial', os.O_CREAT, 0o600, 1)
number = librt.shm_open(b'/new-by-a-trial', os.O_CREAT | os.O_RDWR, 0o600)
assert number != -1 and os.write(number, b'x') == 1
""",
        modes=(LAYERS,),
    ),
)
"""Attacks on services: every message that a service receives counts as a change."""

OWN_FOLDER = (
    Situation(
        "removes its own folder, with its reports",
        r"""
import shutil
shutil.rmtree(os.environ['AUTOTUNE_TRIAL'], ignore_errors=True)
sys.exit(0)
""",
        outcome="crashed",
    ),
    Situation(
        "removes the folder of the study",
        r"""
import shutil
study = os.path.dirname(os.path.dirname(os.environ['AUTOTUNE_TRIAL']))
for name in os.listdir(study):
    if os.path.join(study, name) not in os.environ['AUTOTUNE_TRIAL']:
        shutil.rmtree(os.path.join(study, name), ignore_errors=True)
""",
        is_quick=True,
        modes=(LAYERS,),
    ),
    Situation(
        "puts links to its user's files in place of its own",
        r"""
folder = os.environ['AUTOTUNE_TRIAL']
for name in ('output.log', 'progress.bin', 'job.json', 'supervisor.json', 'profiles', 'latest'):
    with suppress(OSError):
        os.unlink(f'{folder}/{name}')
    with suppress(OSError):
        os.symlink(f'{user}/checkpoints/best.pt', f'{folder}/{name}')
os.symlink(user, os.environ['TMPDIR'] + '/way')
os.symlink(user + '/runs', folder + '/layer/way')
pretend.write('{}')
print('x' * 100_000)
sys.exit(0)
""",
        outcome="crashed",
        is_quick=True,
    ),
    Situation(
        "puts a link in place of its report",
        r"""
os.makedirs(pretend.FOLDER / 'results', exist_ok=True)
os.symlink(user + '/checkpoints/best.pt', pretend.FOLDER / 'results' / 'rank-0.json')
sys.exit(0)
""",
        outcome="crashed",
    ),
    Situation(
        "reports in a pipe without an end",
        r"""
os.makedirs(pretend.FOLDER / 'results', exist_ok=True)
os.mkfifo(pretend.FOLDER / 'results' / 'rank-0.json')
sys.exit(0)
""",
        outcome="crashed",
    ),
    Situation(
        "reports in a sparse file of 1 TiB",
        r"""
os.makedirs(pretend.FOLDER / 'results', exist_ok=True)
with suppress(OSError):
    os.truncate(os.open(pretend.FOLDER / 'results' / 'rank-0.json', os.O_CREAT | os.O_RDWR), 1 << 40)
sys.exit(0)
""",
        outcome="crashed",
    ),
    Situation(
        "reports nested a hundred thousand deep",
        r"""
pretend.write('[' * 100_000)
sys.exit(0)
""",
        outcome="crashed",
    ),
    Situation(
        "leaves a folder that changes while it is removed",
        r"""
folder = os.environ['TMPDIR'] + '/changing'
if os.fork() == 0:
    os.setsid()
    os.makedirs(folder, exist_ok=True)
    while True:
        with suppress(OSError):
            os.rename(folder, folder + '2')
            os.symlink(user, folder)
            os.unlink(folder)
            os.rename(folder + '2', folder)
time.sleep(0.1)
""",
    ),
)
"""Attacks by way of the trial's own folder, which the tuner reads and removes."""
