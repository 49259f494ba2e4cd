"""Writes that go to the layer, and that the script itself sees."""

from __future__ import annotations

from tests.sandbox.situations.situation import LAYERS, Situation

WRITES = (
    Situation(
        "overwrites a checkpoint beside the project",
        r"""
open('../checkpoints/best.pt', 'w').write('new')
assert open('../checkpoints/best.pt').read() == 'new'
""",
        is_quick=True,
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
        is_quick=True,
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
        is_quick=True,
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
        is_quick=True,
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
        is_quick=True,
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

CALLS = (
    Situation(
        "changes a hard link made across the user's folders",
        r"""
os.link('../checkpoints/best.pt', '../runs/linked.pt')
open('../runs/linked.pt', 'a').write('x')
""",
    ),
    Situation(
        "links a file of the home folder into a folder of runs, and truncates the link",
        r"""
os.link(os.path.expanduser('~/linked.bin'), user + '/runs/1/linked.bin')
os.truncate(user + '/runs/1/linked.bin', 0)
""",
    ),
    Situation(
        "exchanges two files by renameat2",
        r"""
open('../checkpoints/other.pt', 'w').write('other')
done = libc.renameat2(-100, b'../checkpoints/best.pt', -100, b'../checkpoints/other.pt', 2)
assert done == 0 and open('../checkpoints/best.pt').read() == 'other'
""",
    ),
    Situation(
        "renames without replacing by renameat2",
        r"""
assert libc.renameat2(-100, b'../runs/1/log.txt', -100, b'../runs/1/moved.txt', 1) == 0
""",
    ),
    Situation(
        "replaces a checkpoint by a finished temporary file",
        r"""
open('../checkpoints/part', 'w').write('new')
os.replace('../checkpoints/part', '../checkpoints/best.pt')
assert open('../checkpoints/best.pt').read() == 'new'
""",
        is_quick=True,
    ),
    Situation(
        "gives a nameless file a name",
        r"""
try:
    nameless = os.open('../checkpoints', os.O_TMPFILE | os.O_RDWR)
except OSError:
    pass
else:
    os.write(nameless, b'x')
    libc.linkat(-100, f'/proc/self/fd/{nameless}'.encode(), -100, b'../checkpoints/named', 0x400)
""",
    ),
    Situation(
        "copies blocks over a checkpoint within the kernel",
        r"""
source, target = os.open('config.json', os.O_RDONLY), os.open('../checkpoints/best.pt', os.O_WRONLY)
os.copy_file_range(source, target, 4)
os.sendfile(target, source, 0, 4)
""",
    ),
    Situation(
        "writes at places in a file, by several buffers",
        r"""
target = os.open('../checkpoints/best.pt', os.O_RDWR)
os.pwritev(target, [b'a', b'b'], 1)
os.pwrite(target, b'c', 100)
""",
    ),
    Situation(
        "punches a hole into a log",
        r"""
log = os.open('../runs/1/log.txt', os.O_RDWR)
libc.fallocate(log, 3, ctypes.c_long(0), ctypes.c_long(2))
os.posix_fallocate(log, 0, 1 << 16)
""",
    ),
    Situation(
        "opens a file read-only, and again for writing by its descriptor",
        r"""
kept = os.open('../checkpoints/best.pt', os.O_RDONLY)
os.write(os.open(f'/proc/self/fd/{kept}', os.O_WRONLY), b'new')
path = os.open('../runs/1/log.txt', os.O_PATH)
os.write(os.open(f'/dev/fd/{path}', os.O_WRONLY | os.O_TRUNC), b'new')
""",
        is_quick=True,
    ),
    Situation(
        "maps a file that is open for reading alone",
        r"""
import mmap
kept = os.open('../checkpoints/best.pt', os.O_RDONLY)
refused(mmap.mmap, kept, 4, mmap.MAP_SHARED, mmap.PROT_WRITE)
mmap.mmap(kept, 4, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE)[0:1] = b'X'
""",
    ),
    Situation(
        "shares a mapped checkpoint with a forked process",
        r"""
import mmap
shared = mmap.mmap(os.open('../checkpoints/best.pt', os.O_RDWR), 4)
if os.fork() == 0:
    shared[0:1] = b'X'
    os._exit(0)
os.wait()
assert shared[0:1] == b'X'
""",
    ),
    Situation(
        "opens by openat2",
        r"""
how = (ctypes.c_uint64 * 3)(os.O_WRONLY | os.O_TRUNC, 0, 0)
number = libc.syscall(437, -100, b'../checkpoints/best.pt', how, ctypes.c_size_t(24))
assert number == -1 or os.write(number, b'x') == 1
""",
        is_quick=True,
    ),
    Situation(
        "opens and writes by io_uring",
        r"""
import mmap, struct
said = (ctypes.c_uint32 * 30)()
ring = libc.syscall(425, 4, said)
if ring >= 0:
    sq_size, sqes = said[10 + 6] + 4 * said[0], said[0] * 64
    queue = mmap.mmap(ring, max(sq_size, said[20 + 5] + 16 * said[1]), offset=0)
    entries = mmap.mmap(ring, sqes, offset=0x10000000)
    path = ctypes.create_string_buffer(os.path.realpath('../checkpoints/best.pt').encode())
    entry = struct.pack('<BBHiQQIIQ', 18, 0, 0, -100, 0, ctypes.addressof(path), 0, os.O_WRONLY | os.O_TRUNC, 7)
    entries[0:len(entry)] = entry
    queue[said[10 + 6]:said[10 + 6] + 4] = struct.pack('<I', 0)
    queue[said[10 + 1]:said[10 + 1] + 4] = struct.pack('<I', 1)
    libc.syscall(426, ring, 1, 1, 1, None, 0)
    result, = struct.unpack('<i', queue[said[20 + 5] + 8:said[20 + 5] + 12])
    if result >= 0:
        os.write(result, b'by io_uring')
""",
    ),
    Situation(
        "writes asynchronously by the C library",
        r"""
class Control(ctypes.Structure):
    _fields_ = [('fd', ctypes.c_int), ('opcode', ctypes.c_int), ('prio', ctypes.c_int), ('buffer', ctypes.c_void_p),
                ('size', ctypes.c_size_t), ('rest', ctypes.c_char * 256)]
text = ctypes.create_string_buffer(b'by aio')
control = Control(os.open('../checkpoints/best.pt', os.O_WRONLY), 0, 0, ctypes.addressof(text), 6, b'')
if hasattr(libc, 'aio_write'):
    libc.aio_write(ctypes.byref(control))
    time.sleep(0.1)
""",
    ),
    Situation(
        "runs a program from nameless memory",
        r"""
import shutil
memory = os.memfd_create('program')
with open(shutil.which('sh'), 'rb') as source:
    os.write(memory, source.read())
subprocess.run(['sh', '-c', 'echo x > ../checkpoints/best.pt'], executable=f'/proc/self/fd/{memory}',
               pass_fds=[memory], check=False)
""",
    ),
    Situation(
        "sets and removes attributes of files",
        r"""
for call in (lambda: os.setxattr('../checkpoints/best.pt', 'user.x', b'1'),
             lambda: os.setxattr('../runs', 'user.overlay.opaque', b'y'),
             lambda: os.setxattr('../runs', 'trusted.overlay.opaque', b'y')):
    with suppress(OSError):
        call()
""",
    ),
    Situation(
        "makes a checkpoint immutable",
        r"""
import fcntl
for path in ('../checkpoints/best.pt', 'mine'):
    with open(path, 'a') as file, suppress(OSError):
        fcntl.ioctl(file, 0x40086602, (16).to_bytes(8, 'little'))
""",
    ),
    Situation(
        "gives files to another user",
        r"""
os.chown('../checkpoints/best.pt', 65534, 65534)
os.lchown('../shared/link', 65534, 65534)
""",
        needs_root=True,
    ),
    Situation(
        "changes rights of folders, with the bits of groups and of others",
        r"""
os.chmod('../runs', 0o3777)
os.chmod('.', 0o2770)
os.utime('../shared/link', (0, 0), follow_symlinks=False)
""",
    ),
    Situation(
        "works by descriptors of folders alone",
        r"""
runs = os.open('../runs', os.O_RDONLY)
os.mkdir('2', dir_fd=runs)
os.rename('1/log.txt', '2/log.txt', src_dir_fd=runs, dst_dir_fd=runs)
os.symlink('2', 'latest', dir_fd=runs)
os.fchdir(runs)
open('latest/log.txt', 'a').write('more')
""",
    ),
    Situation(
        "climbs above the root of the file system",
        r"""
open('../' * 60 + user.lstrip('/') + '/checkpoints/best.pt', 'w').write('x')
""",
    ),
)
"""Writes by unusual calls."""

PROGRAMS = (
    Situation(
        "edits files by programs",
        r"""
sh('sed -i s/log/changed/ ../runs/1/log.txt')
sh('dd if=/dev/zero of=../checkpoints/best.pt bs=1 count=2 conv=notrunc')
sh('echo x | tee ../out/best.pt; truncate -s 0 ../shared/linked.bin')
assert open('../runs/1/log.txt').read() == 'changed'
""",
        is_quick=True,
    ),
    Situation(
        "moves and links files by programs",
        r"""
sh('mv ../runs/1 ../runs/2; ln -sfn ../checkpoints ../shared/link; cp -f config.json ../checkpoints/best.pt')
assert sorted(os.listdir('../runs')) == ['2']
""",
    ),
    Situation(
        "finds and deletes",
        r"""
sh(f"find '{user}' -name '*.pt' -delete; find '{user}/runs' -depth -delete")
assert not os.path.exists(user + '/runs')
""",
    ),
    Situation(
        "cleans a repository",
        r"""
import shutil
if shutil.which('git'):
    git = 'git -c user.name=x -c user.email=x@example.org -c init.defaultBranch=main'
    sh(f'cd .. && {git} init -q . && {git} add config && {git} commit -qm x; {git} clean -fdxq')
""",
    ),
    Situation(
        "packs and unpacks archives over files",
        r"""
import tarfile, zipfile
with tarfile.open('../out/all.tar', 'w') as archive:
    archive.add('config.json', arcname='best.pt')
with tarfile.open('../out/all.tar') as archive:
    archive.extractall('../checkpoints', filter='data')
with zipfile.ZipFile('../out/all.zip', 'a') as archive:
    archive.writestr('x', 'x')
""",
    ),
    Situation(
        "installs a job of cron",
        r"""
for place in ('/etc/cron.d', '/var/spool/cron', '/var/spool/cron/crontabs', '/etc/cron.hourly'):
    with suppress(OSError):
        open(place + '/by-a-trial', 'w').write('* * * * * root true\n')
sh('echo "* * * * * true" | crontab -')
""",
    ),
    Situation(
        "leaves a job for later with at",
        r"""
for place in ('/var/spool/at', '/var/spool/cron/atjobs'):
    with suppress(OSError):
        open(place + '/by-a-trial', 'w').write('true\n')
sh('echo true | at now + 1 minute; echo true | batch')
""",
    ),
    Situation(
        "installs a service of its user",
        r"""
for name in ('.config/systemd/user/by-a-trial.service', '.config/autostart/by-a-trial.desktop', '.bashrc', '.profile',
             '.ssh/authorized_keys', '.local/lib/python3/site-packages/usercustomize.py'):
    path = os.path.expanduser('~/' + name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    open(path, 'a').write('by-a-trial\n')
sh('systemctl --user daemon-reload; systemd-run --user --scope sleep 300')
""",
        is_quick=True,
    ),
    Situation(
        "asks for the rights of root",
        r"""
import shutil
for words in (['sudo', '-n'], ['doas', '-n'], ['pkexec']):
    if shutil.which(words[0]) and os.geteuid() != 0:
        subprocess.run([*words, 'touch', '/by-a-trial'], check=False, timeout=20)
""",
    ),
    Situation(
        "changes the system's own files",
        r"""
for path in ('/by-a-trial', '/etc/by-a-trial', '/usr/by-a-trial', '/run/by-a-trial', '/var/by-a-trial'):
    with suppress(OSError):
        open(path, 'w').write('x')
with suppress(OSError):
    open('/etc/hosts', 'a').write('# by-a-trial\n')
""",
        needs_root=True,
        is_quick=True,
    ),
)
"""Writes by programs, and to the places where a system starts programs."""

LIBRARIES = (
    Situation(
        "updates arrays on the disk",
        r"""
import numpy
numpy.memmap('../checkpoints/best.pt', dtype='u1', mode='r+')[:] = 0
numpy.save('../out/array.npy', numpy.zeros(4))
numpy.zeros(4).tofile('../shared/linked.bin')
""",
    ),
    Situation(
        "keeps keys and values beside the runs",
        r"""
import dbm.dumb, shelve
with dbm.dumb.open('../runs/keys', 'c') as keys:
    keys['a'] = 'b'
with shelve.Shelf(dbm.dumb.open('../runs/shelf', 'c')) as shelf:
    shelf['a'] = [1]
""",
    ),
    Situation(
        "attaches and copies databases",
        r"""
import sqlite3
base = sqlite3.Connection(user + '/shared/first.db')
base.execute('pragma journal_mode=wal')
base.execute('create table t (x)')
base.commit()
base.execute(f"vacuum into '{user}/runs/second.db'")
base.execute(f"attach '{user}/out/third.db' as third")
base.execute('create table third.t (x)')
base.commit()
""",
    ),
    Situation(
        "edits a file in place, and rotates logs",
        r"""
import fileinput, logging.handlers
for line in fileinput.input('../runs/1/log.txt', inplace=True):
    print(line.upper(), end='')
handler = logging.handlers.RotatingFileHandler('../runs/1/rotated.log', maxBytes=10, backupCount=2)
for _ in range(5):
    handler.emit(logging.makeLogRecord({'msg': 'twelve letters'}))
assert open('../runs/1/log.txt').read() == 'LOG'
""",
    ),
    Situation(
        "writes by processes of multiprocessing, started anew",
        r"""
program = '''
import multiprocessing, os, sys
if __name__ == '__main__':
    for how in ('spawn', 'forkserver'):
        process = multiprocessing.get_context(how).Process(target=os.mkdir, args=(sys.argv[1] + how,))
        process.start()
        process.join()
'''
subprocess.run([sys.executable, '-c', program, user + '/runs/'], check=True)
assert sorted(os.listdir(user + '/runs')) == ['1', 'forkserver', 'spawn']
""",
    ),
    Situation(
        "writes by threads while it ends",
        r"""
import threading
def write():
    while True:
        open('../runs/1/log.txt', 'a').write('x')
for _ in range(4):
    threading.Thread(target=write, daemon=True).start()
""",
    ),
    Situation(
        "removes everything when the interpreter ends",
        r"""
import atexit, shutil
atexit.register(shutil.rmtree, user + '/runs', ignore_errors=True)
atexit.register(shutil.rmtree, user + '/checkpoints', ignore_errors=True)
""",
    ),
    Situation(
        "changes its own source, and removes its project",
        r"""
import shutil
open(__file__, 'a').write('# more')
shutil.rmtree(os.getcwd(), ignore_errors=True)
os.chdir('/')
""",
    ),
    Situation(
        "renames its project while it works there",
        r"""
import shutil
shutil.move(os.getcwd(), user + '/elsewhere')
open(user + '/elsewhere/new', 'w').write('x')
""",
    ),
)
"""Writes by libraries."""

AMOUNTS = (
    Situation(
        "makes a sparse file of 1 TiB in shared memory",
        r"""
with suppress(OSError):
    os.truncate(os.open(os.environ['IN_MEMORY'] + '-sparse-by-a-trial', os.O_CREAT | os.O_RDWR), 1 << 40)
""",
        modes=(LAYERS,),
    ),
    Situation(
        "makes very many files",
        r"""
os.makedirs('../runs/many')
os.chdir('../runs/many')
number = int(os.environ.get('MANY_FILES', 5_000))
for i in range(number):
    os.close(os.open(str(i), os.O_CREAT | os.O_WRONLY))
""",
    ),
    Situation(
        "makes files until its file system has no inode left",
        r"""
os.makedirs('../runs/inodes')
with suppress(OSError):
    for i in range(int(os.environ.get('INODES', 5_000))):
        os.close(os.open(f'../runs/inodes/{i}', os.O_CREAT | os.O_WRONLY))
""",
    ),
    Situation(
        "makes folders two thousand levels deep",
        r"""
os.chdir('../runs')
for _ in range(2000):
    os.mkdir('deeper')
    os.chdir('deeper')
open('bottom', 'w').write('x')
""",
    ),
    Situation(
        "makes names that are no text",
        r"""
for name in (b'\xff\xfe', b'a\nb', b"'; rm -rf ~; '", b'-rf', b'x' * 255, b'\x1b[31m', b'%s%n', b' '):
    os.close(os.open(os.path.join(b'../runs', name), os.O_CREAT | os.O_WRONLY))
    os.mkdir(os.path.join(b'../checkpoints', name))
""",
    ),
    Situation(
        "makes folders that nobody may enter",
        r"""
for place in ('../runs', os.environ['TMPDIR'], '.'):
    os.makedirs(place + '/closed/inner')
    open(place + '/closed/inner/file', 'w').write('x')
    os.chmod(place + '/closed/inner', 0)
    os.chmod(place + '/closed', 0)
""",
        is_quick=True,
    ),
    Situation(
        "renames files back and forth while it ends",
        r"""
import threading
os.makedirs('../runs/turns')
open('../runs/turns/a', 'w').write('x')
def turn():
    while True:
        with suppress(OSError):
            os.rename('../runs/turns/a', '../runs/turns/b')
            os.rename('../runs/turns/b', '../runs/turns/a')
            os.rename('../runs/turns', '../runs/others')
            os.rename('../runs/others', '../runs/turns')
threading.Thread(target=turn, daemon=True).start()
time.sleep(0.2)
""",
    ),
    Situation(
        "prints thirty megabytes, and what no terminal should see",
        r"""
sys.stdout.write('\x1b[2J\x1b]0;by-a-trial\x07\x00')
for _ in range(30):
    sys.stdout.write('x' * 1_000_000 + '\n')
""",
    ),
    Situation(
        "closes its output and its errors",
        r"""
for number in (0, 1, 2):
    os.close(number)
""",
    ),
    Situation(
        "leaves a core file",
        r"""
import resource
with suppress(ValueError, OSError):
    resource.setrlimit(resource.RLIMIT_CORE, (1 << 20, 1 << 20))
pretend.stepped()
os.abort()
""",
        outcome="crashed",
    ),
)
"""Large amounts, hostile names, and output."""
