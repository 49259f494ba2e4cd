"""Leaves behind a process, a file in shared memory and one in its folder, reports, and ends."""

import os
import subprocess

import pretend


def leave():
    subprocess.Popen(["sleep", "600"], start_new_session=True)
    shared = f"/dev/shm/torch_{os.getpid()}_left_by_a_trial"
    os.close(os.open(shared, os.O_CREAT | os.O_WRONLY, 0o600))
    assert os.path.exists(shared)
    with open("left.txt", "w") as file:
        file.write("by a trial")
    pretend.report()


if __name__ == "__main__":
    leave()
