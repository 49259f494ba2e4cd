"""The service under load: `python -m tests.benchmarks.service --seconds 60`; RESULTS.md has figures.

Many workers that run nothing speak to a real server through the API: they lease, send events and complete. Watchers
follow jobs by server-sent events. Prints requests per second, latencies, errors, and memory of the server as JSON.
All workers start at once and beat in step, so each heartbeat is a burst of requests, and the latency is of the burst.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from autotune.client.connection import Connection
from tests.service.servers import Service, service

TRIAL = {"schema": 1, "event": "trial_finished", "outcome": "ok", "samples_per_second": 1234.5, "settings": {"a": 1}}
EVENTS_OF_JOB = 8
NUM_SUBMITTERS = 8


class Load:
    """Counts and times every request of all threads."""

    def __init__(self, served: Service) -> None:
        self.api = Connection(served.url, served.token_file.read_text().strip(), timeout_s=60.0)
        self.lock = threading.Lock()
        self.times: dict[str, list[float]] = {}
        self.errors: Counter[str] = Counter()
        self.num_submitted = self.num_done = self.num_events = self.num_streams = 0
        self.running: dict[str, str] = {}
        """Job of each worker."""
        self.is_over = threading.Event()

    def ask(self, name: str, method: str, path: str, body: Any = None) -> dict[str, Any]:
        began = time.perf_counter()
        try:
            answer = self.api.json(method, path, body)
        except Exception as error:
            with self.lock:
                self.errors[f"{name}: {str(error)[:120]}"] += 1
            time.sleep(0.5)
            return {}
        with self.lock:
            self.times.setdefault(name, []).append(time.perf_counter() - began)
        return answer

    def so_far(self) -> tuple[dict[str, list[float]], dict[str, int]]:
        """Times by request, and number of errors by text."""
        with self.lock:
            return {name: list(times) for name, times in self.times.items()}, dict(self.errors)


def work(load: Load, number: int, beat_s: float) -> None:
    """One worker, until the end."""
    name, session = f"w-{number}", f"session-{number:08d}"
    body = {"id": name, "session": session, "machine": f"m-{number}", "class": "big", "projects": {"demo": "/srv/demo"}}
    while not load.ask("register", "POST", "/v1/workers", body) and not load.is_over.is_set():
        pass
    while not load.is_over.is_set():
        began = time.perf_counter()
        held = load.ask("lease (waits)", "POST", f"/v1/workers/{name}:lease", {"session": session, "wait_s": 5.0})
        if not held:
            time.sleep(max(0.0, 0.2 - (time.perf_counter() - began)))
            continue
        path, fence, load.running[name] = f"/v1/leases/{held['lease']}", held["fence"], held["job"]["id"]
        for index in range(EVENTS_OF_JOB):
            event = {**TRIAL, "number": index}
            beat = {"fence": fence, "first_event": index, "events": [event], "progress": {"n": index}}
            load.ask("heartbeat", "POST", f"{path}:heartbeat", beat)
            load.is_over.wait(beat_s)
        ended = load.ask("complete", "POST", f"{path}:complete", {"fence": fence, "state": "done", "exit_code": 0})
        with load.lock:
            load.num_done += ended.get("is_counted") is True


def watch(load: Load, number: int) -> None:
    """One watcher, who follows a running job until the end of the job, and then another."""
    generator = random.Random(number)
    while not load.is_over.is_set():
        running = list(load.running.values())
        if not running:
            load.is_over.wait(0.5)
            continue
        path = f"/v1/jobs/{generator.choice(running)}/events"
        load.num_streams += 1
        try:
            with load.api.open("GET", path, None, {"Accept": "text/event-stream"}, timeout_s=60.0) as stream:
                while not load.is_over.is_set() and (line := stream.readline()):
                    load.num_events += line.startswith(b"data")
        except Exception as error:
            if not load.is_over.is_set():
                with load.lock:
                    load.errors[f"watch: {str(error)[:120]}"] += 1


def memory_bytes(pid: int) -> int:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in text.splitlines() if line.startswith("VmRSS")).split()[1]) * 1024


def cpu_s(pid: int) -> float:
    """Seconds of CPU of a process so far."""
    columns = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(columns[11]) + int(columns[12])) / os.sysconf("SC_CLK_TCK")


def submit(load: Load) -> None:
    with load.lock:
        load.num_submitted += 1
    load.ask("submit", "POST", "/v1/jobs", {"project": "demo", "script": "train.py", "options": {"trials": 4}})


def started(functions: list[Callable[[], None]]) -> list[threading.Thread]:
    threads = [threading.Thread(target=function, daemon=True) for function in functions]
    for thread in threads:
        thread.start()
    return threads


def refill(load: Load, num_jobs: int) -> None:
    """One of the people who submit a job for each finished job, while fewer than half of the jobs wait."""
    while not load.is_over.is_set():
        if load.num_submitted - load.num_done < num_jobs / 2:
            submit(load)
        else:
            load.is_over.wait(0.1)


def look(load: Load) -> None:
    """A person who looks at the queue, twice a second."""
    while not load.is_over.wait(0.5):
        load.ask("list", "GET", "/v1/jobs?limit=50")


def memory_until_the_end(pid: int, seconds: float) -> list[int]:
    """Resident bytes of the server at eleven moments, from the start to the end."""
    began, found = time.monotonic(), [memory_bytes(pid)]
    for share in range(1, 11):
        time.sleep(max(0.0, began + seconds * share / 10 - time.monotonic()))
        found.append(memory_bytes(pid))
    return found


def measure(served: Service, asked: argparse.Namespace) -> dict[str, Any]:
    process = served.serve("--no-worker")
    load = Load(served)
    load.ask(
        "register",
        "POST",
        "/v1/workers",
        {
            "id": "first",
            "session": "first-session",
            "machine": "m",
            "class": "big",
            "projects": {"demo": "/srv/demo"},
        },
    )
    for _ in range(asked.jobs):
        submit(load)
    functions: list[Callable[[], None]] = [lambda n=n: work(load, n, asked.beat) for n in range(asked.workers)]
    functions += [lambda n=n: watch(load, n) for n in range(asked.watchers)]
    functions += [*[lambda: refill(load, asked.jobs)] * NUM_SUBMITTERS, lambda: look(load)]
    load.times.clear()
    began, cpu_before_s = time.monotonic(), cpu_s(process.pid)
    threads = started(functions)
    memory = memory_until_the_end(process.pid, asked.seconds)
    took_s = time.monotonic() - began
    used_s = cpu_s(process.pid) - cpu_before_s
    load.is_over.set()
    times, errors = load.so_far()
    ends_by = time.monotonic() + 15.0
    for thread in threads:
        thread.join(max(0.0, ends_by - time.monotonic()))
    told_at = time.monotonic()
    exit_code = process.end()
    num_requests = sum(map(len, times.values())) + load.num_streams
    return {
        "seconds": round(took_s, 1),
        "cores": len(os.sched_getaffinity(0)),
        "load_average": [round(value, 1) for value in os.getloadavg()],
        "requests_per_second": round(num_requests / took_s, 1),
        "server_cpu_ms_per_request": round(1000 * used_s / max(1, num_requests), 2),
        "load_cpu_s": round(sum(os.times()[:2]), 1),
        "jobs_done": load.num_done,
        "streams_watched": load.num_streams,
        "events_watched": load.num_events,
        "errors": errors,
        "heartbeat_p99_s_by_tenth": by_tenth(times.get("heartbeat", [])),
        "latency_s": {name: quantiles(found) for name, found in sorted(times.items()) if "waits" not in name},
        "server_memory_mib": [size >> 20 for size in memory],
        "server_exit_code": exit_code,
        "server_end_s": round(time.monotonic() - told_at, 1),
    }


def quantiles(times: list[float]) -> dict[str, float]:
    ordered = sorted(times)
    return {
        "num": len(ordered),
        "median": round(statistics.median(ordered), 4),
        "p99": round(ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))], 4),
        "max": round(ordered[-1], 4),
    }


def by_tenth(times: list[float]) -> list[float]:
    """The 99th percentile of each tenth of the requests, in order: the first tenth has the burst of the start."""
    size = max(1, len(times) // 10)
    return [quantiles(times[start : start + size])["p99"] for start in range(0, 10 * size, size) if times[start:]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--workers", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--watchers", type=int, default=50)
    parser.add_argument("--beat", type=float, default=3.0, help="seconds between two heartbeats of a worker")
    parser.add_argument("--postgresql", action="store_true", help="on a private PostgreSQL in place of SQLite")
    asked = parser.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 8192)), hard))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # else the server would outlive the benchmark
    with tempfile.TemporaryDirectory() as folder:
        if not asked.postgresql:
            with service(Path(folder), {}) as served:
                print(json.dumps(measure(served, asked), indent=2))
            return 0
        from tests.contract.private_servers import postgresql

        for cluster in postgresql():
            with service(Path(folder), {}, cluster.new_url()) as served:
                print(json.dumps(measure(served, asked), indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
