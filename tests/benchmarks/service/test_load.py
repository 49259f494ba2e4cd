"""The benchmark of the service ends when told."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import threading
from types import SimpleNamespace

import psutil
import pytest

from tests.benchmarks.service import __main__ as benchmark
from tests.service.servers import wait_until


class FastWorkers(benchmark.Load):
    """Every submitted job is done at once, with a second job that was never submitted here."""

    def __init__(self, served):
        self.lock, self.times, self.errors = threading.Lock(), {}, {}
        self.num_submitted = self.num_done = self.num_events = self.num_streams = 0
        self.is_over = threading.Event()

    def ask(self, name, method, path, body=None):
        if name != "submit":
            return {}
        self.num_done += 2
        return {"id": "job"}


def test_a_run_ends_although_jobs_are_done_faster_than_submitted(monkeypatch):
    monkeypatch.setattr(benchmark, "Load", FastWorkers)
    process = SimpleNamespace(pid=os.getpid(), end=lambda: 0)
    served = SimpleNamespace(serve=lambda *words: process)
    asked = argparse.Namespace(seconds=0.2, jobs=4, workers=0, watchers=0, beat=0.1)
    found = []
    running = threading.Thread(target=lambda: found.append(benchmark.measure(served, asked)), daemon=True)
    running.start()
    running.join(60)
    assert [document["server_exit_code"] for document in found] == [0]


@pytest.mark.slow
def test_a_benchmark_ended_by_a_signal_leaves_no_server(tmp_path):
    words = [sys.executable, "-m", "tests.benchmarks.service", "--workers=2", "--watchers=1", "--jobs=2"]
    running = subprocess.Popen(words, env={**os.environ, "TMPDIR": str(tmp_path)}, stdout=subprocess.DEVNULL)
    try:
        wait_until(lambda: psutil.Process(running.pid).children(recursive=True), "the server has started")
        servers = psutil.Process(running.pid).children(recursive=True)
        running.send_signal(signal.SIGTERM)
        assert running.wait(60) == 143
    finally:
        running.kill()
    assert psutil.wait_procs(servers, timeout=30)[1] == []
