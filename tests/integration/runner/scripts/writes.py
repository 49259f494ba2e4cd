"""Writes wherever a training script would, and reads back what it wrote; the user's files must not change."""

import logging
import os
import shutil
import sys
import tempfile
from pathlib import Path

import pretend

HOME = Path(os.environ["HOME"])


def check(path, text):
    assert Path(path).read_text() == text, f"{path}: {Path(path).read_text()!r} is not {text!r}"


def files(root):
    """Every way to write a file below `root`, which holds kept.txt, log.txt and sub/deep/old.txt."""
    with open(root / "new.txt", "w") as file:
        file.write("new")
    check(root / "new.txt", "new")
    (root / "kept.txt").write_text("changed")
    check(root / "kept.txt", "changed")
    with (root / "log.txt").open("a") as file:
        file.write("more")
    check(root / "log.txt", "log\nmore")
    with open(root / "sub/deep/old.txt", "r+") as file:
        file.write("NEW")
    check(root / "sub/deep/old.txt", "NEW\n")
    descriptor = os.open(root / "raw.bin", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.write(descriptor, b"raw")
    os.close(descriptor)
    check(root / "raw.bin", "raw")
    logging.FileHandler(root / "train.log").close()
    assert (root / "train.log").is_file()


def folders(root):
    """Folders made, renamed and removed."""
    os.makedirs(root / "runs/1/checkpoints")
    (root / "runs/1/checkpoints/model.pt").write_text("model")
    partly = root / "runs/1/checkpoints/model.tmp"
    partly.write_text("newer")
    os.replace(partly, root / "runs/1/checkpoints/model.pt")
    check(root / "runs/1/checkpoints/model.pt", "newer")
    assert os.listdir(root / "runs/1/checkpoints") == ["model.pt"]
    (root / "runs/latest").symlink_to("1")
    check(root / "runs/latest/checkpoints/model.pt", "newer")
    shutil.copytree(root / "sub", root / "copied")
    assert (root / "copied/deep/old.txt").is_file()
    shutil.rmtree(root / "sub")
    assert not (root / "sub").exists() and "sub" not in os.listdir(root)
    os.rename(root / "moved.txt", root / "runs/moved.txt")
    check(root / "runs/moved.txt", "moved\n")
    assert not (root / "moved.txt").exists()
    os.unlink(root / "removed.txt")
    assert not os.path.lexists(root / "removed.txt")
    os.chmod(root / "kept.txt", 0o600)
    os.utime(root / "kept.txt", (1, 1))
    assert os.stat(root / "kept.txt").st_mtime == 1
    os.truncate(root / "log.txt", 1)
    check(root / "log.txt", "l")


if __name__ == "__main__":
    files(Path("."))
    folders(Path.cwd())
    files(HOME)
    folders(HOME)
    with tempfile.TemporaryDirectory() as scratch:
        (Path(scratch) / "x").write_text("x")
    print(sorted(os.listdir(".")), file=sys.stderr)
    pretend.report()
