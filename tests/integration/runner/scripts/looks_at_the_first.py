"""Trains until the first process of its namespace is a fresh interpreter, and reports."""

import time
from pathlib import Path

import pretend

ends_at = time.monotonic() + 60.0
while b"first_process" not in Path("/proc/1/cmdline").read_bytes():
    if time.monotonic() > ends_at:
        raise SystemExit("the first process still holds the memory of the server")
    time.sleep(0.05)
print("a fresh interpreter is the first process")
pretend.report()
