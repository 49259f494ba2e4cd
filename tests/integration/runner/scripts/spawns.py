"""Writes from processes of multiprocessing, in each way that they can be started."""

import multiprocessing
from pathlib import Path

import pretend


def write(name):
    Path(name).write_text(name)
    Path("kept.txt").write_text("changed")
    folder = Path("folders", name)
    folder.mkdir(parents=True)
    (folder / "inside").write_text(name)
    Path("sub", "deep", "old.txt").write_text(name)


if __name__ == "__main__":
    for method in ("fork", "spawn", "forkserver"):
        assert not Path("folders", f"{method}.txt", "inside").exists()
        Path("sub", "deep", "old.txt").read_text()
        process = multiprocessing.get_context(method).Process(target=write, args=(f"{method}.txt",))
        process.start()
        process.join()
        assert Path(f"{method}.txt").read_text() == method + ".txt"
        assert Path("folders", f"{method}.txt", "inside").read_text() == method + ".txt"
        assert Path("sub", "deep", "old.txt").read_text() == method + ".txt"
    assert Path("kept.txt").read_text() == "changed"
    pretend.report()
