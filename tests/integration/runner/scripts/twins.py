"""Does the same random things to two equal folders, one covered and one not, and compares all that can be seen.

Arguments: `prepare` or `compare`, first and last number of the folders, where the others are, and the turn: in a later
one the folders are as an earlier run left them.
"""

import os
import random
import shutil
import stat
import sys

import pretend

NAMES = [
    "a",
    "b",
    "c",
    "dir",
    "dir/a",
    "dir/b",
    "dir/sub",
    "dir/sub/x",
    "new",
    "new/y",
    "link",
    "link/a",
    "./a",
    "dir/../b",
]
FLAGS = [os.O_RDONLY, os.O_WRONLY, os.O_RDWR, os.O_CREAT, os.O_TRUNC, os.O_EXCL, os.O_APPEND, os.O_NOFOLLOW]


def seed_folder(root):
    os.makedirs(os.path.join(root, "dir/sub"))
    for name in ("a", "b", "dir/a", "dir/sub/x"):
        with open(os.path.join(root, name), "w") as file:
            file.write(name * 3)
    os.symlink("dir", os.path.join(root, "link"))


def write(root, rng):
    with open(os.path.join(root, rng.choice(NAMES)), rng.choice(["w", "a", "r+", "x", "w+", "a+", "r"])) as file:
        if file.writable():
            file.write(str(rng.random()))
        file.seek(0)
        return file.read() if file.readable() else None


def raw(root, rng):
    flags = 0
    for flag in rng.sample(FLAGS, 3):
        flags |= flag
    descriptor = os.open(os.path.join(root, rng.choice(NAMES)), flags, 0o640)
    try:
        if flags & (os.O_WRONLY | os.O_RDWR):
            os.write(descriptor, b"raw")
        return os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)


def at_descriptor(root, rng):
    descriptor = os.open(os.path.join(root, rng.choice(["", "dir", "new", "link"])), os.O_RDONLY | os.O_DIRECTORY)
    try:
        name = rng.choice(["a", "sub", "q"])
        what = rng.choice(["stat", "unlink", "mkdir", "open", "list", "rename"])
        if what == "stat":
            return stat.S_IFMT(os.stat(name, dir_fd=descriptor).st_mode)
        if what == "unlink":
            return os.unlink(name, dir_fd=descriptor)
        if what == "mkdir":
            return os.mkdir(name, dir_fd=descriptor)
        if what == "list":
            return sorted(os.listdir(descriptor)), sorted(entry.name for entry in os.scandir(descriptor))
        if what == "rename":
            return os.rename(name, "renamed", src_dir_fd=descriptor, dst_dir_fd=descriptor)
        other = os.open(name, os.O_WRONLY | os.O_CREAT, 0o600, dir_fd=descriptor)
        os.close(other)
    finally:
        os.close(descriptor)


def one(function):
    def call(root, rng):
        return function(os.path.join(root, rng.choice(NAMES)))

    return call


def two(function):
    def call(root, rng):
        return function(os.path.join(root, rng.choice(NAMES)), os.path.join(root, rng.choice(NAMES)))

    return call


def unless_into_itself(function):
    """The function, but not where shutil would never end."""

    def call(source, target):
        if not os.path.realpath(target).startswith(os.path.realpath(source)):
            function(source, target)

    return call


def look(path):
    status = os.stat(path)
    size = status.st_size if stat.S_ISREG(status.st_mode) else 0
    return stat.S_IFMT(status.st_mode), size, stat.S_IMODE(status.st_mode) if size else 0


def entries(path):
    with os.scandir(path) as found:
        return sorted(
            (e.name, os.path.basename(e.path), e.is_dir(), e.is_file(), e.is_symlink(), e.is_dir(follow_symlinks=False))
            for e in found
        )


def relative(root, rng):
    before = os.getcwd()
    os.chdir(os.path.join(root, rng.choice(["", "dir", "new", "dir/sub", "link"])))
    try:
        with open("here", "w") as file:
            file.write("x")
        return (
            os.path.relpath(os.getcwd(), root),
            sorted(os.listdir()),
            os.path.exists("../a"),
            os.path.abspath("q")[-2:],
        )
    finally:
        os.chdir(before)


LINK = two(os.link)
OPERATIONS = [
    write,
    write,
    raw,
    raw,
    at_descriptor,
    relative,
    one(look),
    one(lambda path: stat.S_IFMT(os.lstat(path).st_mode)),
    one(lambda path: sorted(os.listdir(path))),
    one(entries),
    one(os.mkdir),
    one(os.makedirs),
    one(os.rmdir),
    one(os.unlink),
    one(os.remove),
    one(os.readlink),
    one(shutil.rmtree),
    one(lambda path: os.truncate(path, 2)),
    one(lambda path: os.utime(path, ns=(5, 7))),
    one(lambda path: os.chmod(path, 0o700)),
    one(lambda path: (os.access(path, os.R_OK), os.path.exists(path), os.path.isdir(path), os.path.islink(path))),
    one(lambda path: sorted((os.path.basename(p), sorted(d), sorted(f)) for p, d, f in os.walk(path))),
    two(os.rename),
    two(os.rename),
    two(os.replace),
    LINK,
    two(shutil.copyfile),
    two(unless_into_itself(lambda source, target: shutil.copytree(source, target, symlinks=True))),
    two(unless_into_itself(shutil.move)),
    lambda root, rng: os.symlink(
        rng.choice(["a", "dir", "../b", "nowhere", "link"]), os.path.join(root, rng.choice(NAMES))
    ),
]


def outcome(operation, root, seed):
    try:
        return operation(root, random.Random(seed))
    except (OSError, shutil.Error, RecursionError) as error:
        return type(error).__name__, getattr(error, "errno", None)


def tree(root):
    seen = []
    for place, folders, files in os.walk(root):
        for name in sorted([*folders, *files]):
            path = os.path.join(place, name)
            content = None
            if os.path.islink(path):
                content = os.readlink(path)
            elif os.path.isfile(path):
                with open(path) as file:
                    content = file.read()
            seen.append((os.path.relpath(path, root), content))
    return sorted(seen, key=str)


def compare(number, others, turn):
    covered, plain = os.path.abspath(f"twin-{number}"), os.path.join(others, f"twin-{number}")
    rng = random.Random(f"{number} {turn}")
    done = []
    for _ in range(120):
        operation, choice = rng.choice(OPERATIONS), rng.random()
        if operation is LINK and turn == "probe":
            continue  # A copy to the next layer parts the two names of a file, as it does in an overlay.
        results = [repr(outcome(operation, root, choice)).replace(root, "...") for root in (covered, plain)]
        if "RecursionError" in str(results):
            return  # A folder that was copied into itself, as deep as the stack allowed.
        done.append((OPERATIONS.index(operation), choice, results[1]))
        assert results[0] == results[1], (number, turn, len(done), results, done[-6:])
    assert tree(covered) == tree(plain), (number, turn, "trees differ", tree(covered), tree(plain))


if __name__ == "__main__":
    action, first, last, others, turn = sys.argv[1:]
    for number in range(int(first), int(last)):
        if action == "prepare":
            seed_folder(f"twin-{number}")
            seed_folder(os.path.join(others, f"twin-{number}"))
        else:
            compare(number, others, turn)
    if action == "compare":
        pretend.report()
