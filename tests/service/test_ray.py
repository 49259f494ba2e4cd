"""Workers on a real Ray cluster: two nodes on this machine, each with one core."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="the service comes with the extra `service`")

from autotune.service.engines.ray_checklist import AUTH, MEMORY_MONITOR, SLOT, SUBREAPER
from autotune.store.repository import Repository
from autotune.store.url import resolve_url
from tests.contract.private_servers import postgresql

from .served import served
from .servers import service, wait_until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("ray") is None, reason="ray comes with the extra `ray`"),
    pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two nodes need two cores"),
]
SCRIPT = """
import os
import torch
from torch.utils.data import DataLoader, TensorDataset

assert "OMP_NUM_THREADS" not in os.environ, "an actor's variable has reached the script"
assert os.environ["MARK"] == "of the user", "the variables of the node's user have not reached the script"
data = TensorDataset(torch.randn(2048, 64), torch.randint(0, 10, (2048,)))
model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(1000):
    for x, y in DataLoader(data, batch_size=32, shuffle=True):
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
"""
GOOD = {SUBREAPER: "true", MEMORY_MONITOR: "0", "RAY_enable_open_telemetry": "0"}
ISOLATED = ["unshare", "--pid", "--uts", "--fork", "--mount-proc", "--kill-child"]


class Cluster:
    """Nodes of one cluster, each a process group of its own."""

    def __init__(self, folder):
        self._folder, self.nodes, self.address = folder, [], ""
        self._port = 20000 + os.getpid() % 20000

    def start(self, core, host="", **environment):
        """Starts a node on one core; the first node is the head. With a host's name the node seems to be a machine."""
        program = Path(sys.executable).with_name("ray")
        words = [*(isolated(host, self._folder) if host else []), "taskset", "-c", str(core), str(program)]
        words += ["start", "--block", "--num-cpus=1"]
        words += [f"--resources={json.dumps({SLOT: 1})}", "--disable-usage-stats", "--node-ip-address=127.0.0.1"]
        words += [f"--address={self.address}"] if self.nodes else self._head()
        environ = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
        log = self._folder / f"node-{len(self.nodes)}.log"
        environ |= {**GOOD, "MARK": "of the user", **environment}
        with log.open("wb") as stream:
            node = subprocess.Popen(words, env=environ, stdout=stream, stderr=stream, start_new_session=True)
        self.nodes.append(node)
        self.address = f"127.0.0.1:{self._port}"
        wait(lambda: b"started" in log.read_bytes(), 120, "the node has started")

    def _head(self):
        place = Path("/tmp") / f"ar{os.getpid()}"  # sockets have short paths
        return ["--head", f"--port={self._port}", f"--temp-dir={place}", "--include-dashboard=false"]

    def kill(self, node):
        os.killpg(node.pid, signal.SIGKILL)
        node.wait(30)

    def close(self):
        for node in reversed(self.nodes):
            if node.poll() is None:
                node.terminate()
                try:
                    node.wait(30)
                except subprocess.TimeoutExpired:
                    self.kill(node)
        shutil.rmtree(Path("/tmp") / f"ar{os.getpid()}", ignore_errors=True)


def wait(condition, seconds, what):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, f"in {seconds} s it did not come to pass that {what}"
        time.sleep(0.3)


@pytest.fixture
def cluster(tmp_path):
    made = Cluster(tmp_path)
    yield made
    made.close()


def processes_with(mark):
    """Ids of the processes with the mark among their arguments."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in entry.joinpath("cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def isolated(host, folder):
    """The start of a command line for a machine by itself: name, boot and processes are its own."""
    boot = folder / f"boot-of-{host}"
    boot.write_text(f"{host}-0000-0000\n")
    mount = "mount --bind $1 /proc/sys/kernel/random/boot_id"
    return [*ISOLATED, "sh", "-ec", f'hostname $0; {mount}; shift; exec "$@"', host, str(boot)]


def place(cluster, url, folder):
    token_file = folder / "token"
    if not token_file.exists():
        token_file.write_text("t" * 43 + "\n")
        token_file.chmod(0o600)
    words = [sys.executable, "-m", "autotune", "workers", "ray", f"--address={cluster.address}"]
    words += [f"--server={url}", f"--token-file={token_file}", f"--project=demo={folder / 'demo'}"]
    with (folder / "placed.log").open("wb") as stream:
        return subprocess.Popen(words, stdout=stream, stderr=stream, start_new_session=True)


def alive(server):
    return [worker for worker in server.get("/v1/workers").json["workers"] if worker["is_alive"]]


def test_a_node_without_the_checklist_is_refused_with_the_line_to_start_it(cluster, tmp_path):
    cluster.start(0, **{SUBREAPER: "", MEMORY_MONITOR: "250"})
    with served(tmp_path) as server:
        placing = place(cluster, server.base, tmp_path)
        assert placing.wait(180) == 6
    text = (tmp_path / "placed.log").read_text()
    assert SUBREAPER in text and SLOT in text and "Traceback" not in text
    done = subprocess.run(
        [sys.executable, "-m", "autotune", "doctor"], capture_output=True, text=True, timeout=180, check=False
    )
    assert f"without {SUBREAPER}=true" in done.stdout and f"without {AUTH}=token" in done.stdout


def test_two_nodes_search_and_a_lost_node_loses_nothing(cluster, tmp_path):
    cluster.start(0)
    cluster.start(1)
    with served(tmp_path, lease_ttl_s=5.0) as server:
        (tmp_path / "demo" / "train.py").write_text(SCRIPT)
        placing = place(cluster, server.base, tmp_path)
        try:
            wait(lambda: len(alive(server)) == 2, 180, "two workers wait")
            assert sorted(worker["cpus"] for worker in alive(server)) == [[0], [1]]
            names = [f"of-ray-{number}" for number in range(2)]
            jobs = [server.submit(options={"study": name, "trials": 2, "time": "9m"}) for name in names]

            def told(job):
                return server.get(f"/v1/jobs/{job}").json

            wait(lambda: all(told(job)["status"] == "running" for job in jobs), 60, "both nodes work")
            wait(lambda: all(told(job)["num_events"] > 3 for job in jobs), 120, "trials run on both nodes")
            second = cluster.nodes[1]
            pids = processes_with(f"--token-file={tmp_path / 'token'}")
            cluster.kill(second)
            ended = ("done", "failed", "stopped", "cancelled")
            wait(lambda: all(told(job)["status"] in ended for job in jobs), 800, "the other node ends both searches")
            assert [told(job)["status"] for job in jobs] == ["done"] * 2, [told(job) for job in jobs]
            for job in jobs:
                numbers = [trial["number"] for trial in server.get(f"/v1/studies/{told(job)['study']}").json["trials"]]
                assert len(numbers) == len(set(numbers)) and told(job)["exit_code"] in (0, 7)
            assert sum(len(told(job)["attempts"]) for job in jobs) >= 3, "the lost search was leased again"
            assert len(pids) >= 3
        finally:
            placing.terminate()
            code = placing.wait(120)
        text = (tmp_path / "placed.log").read_text()
        assert code == 0 and "worker lost" in text and "draining 1 worker" in text, text
    cluster.close()
    assert processes_with(f"--token-file={tmp_path / 'token'}") == []


@pytest.fixture(scope="module")
def database():
    yield from postgresql()


@pytest.mark.skipif(
    os.geteuid() != 0 or subprocess.run([*ISOLATED, "hostname", "x"], capture_output=True, check=False).returncode != 0,
    reason="this user may not make namespaces",
)
def test_two_isolated_nodes_share_one_study_through_every_fault(cluster, database, tmp_path):
    for core, host in enumerate(("left", "right")):
        cluster.start(core, host, XDG_STATE_HOME=str(tmp_path / f"state-of-{host}"))
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo" / "train.py").write_text(SCRIPT)
    with service(tmp_path, {"demo": tmp_path / "demo"}, database.new_url()) as team:
        server = team.serve("--no-worker", "--lease-time=5s")
        placing = place(cluster, team.url, tmp_path)
        try:
            names = {worker["id"].partition("-")[0]: worker["id"] for worker in two_workers(team)}
            assert set(names) == {"left", "right"}
            job = team.client.submit("demo", "train.py", options={"trials": 8, "time": "9m"}, machines=2)
            wait(lambda: len(team.client.job(job.id).document["workers"]) == 2, 300, "both nodes share the study")
            num_finished, before = 0, {}

            def advance():
                """Waits for a further finished trial; those known before are as they were."""
                nonlocal num_finished, before
                wait(lambda: len(finished(team, job)) > num_finished, 300, "a further trial ends")
                now = finished(team, job)
                assert {number: now.get(number) for number in before} == before, "a finished trial is lost"
                num_finished, before = len(now), now

            def states():
                return [attempt["state"] for attempt in team.client.job(job.id).document["attempts"]]

            advance()
            (worker,) = processes_with(f"--name={names['right']}")
            # A new process of the same worker would go on with its lease: none is placed before the lease is lost.
            os.kill(placing.pid, signal.SIGSTOP)
            try:
                os.kill(worker, signal.SIGKILL)
                wait(lambda: "lost" in states(), 60, "the killed worker's lease is lost")
            finally:
                os.kill(placing.pid, signal.SIGCONT)
            advance()
            server.end(signal.SIGKILL)
            team.serve("--no-worker", "--lease-time=5s")
            database.stop(signal.SIGINT)
            database.start()
            team.client.drain(names["left"])
            advance()
            team.client.enable(names["left"])
            done = team.until(job.id, "done", limit_s=800)
            check_whole(team, done, before)
            assert {"lost", "stopped", "done"} <= set(states()), states()
        finally:
            placing.terminate()
            assert placing.wait(120) == 0, (tmp_path / "placed.log").read_text()
    cluster.close()
    assert processes_with(f"--token-file={tmp_path / 'token'}") == []


def two_workers(team):
    """The documents of two waiting workers."""

    def living():
        found = [worker for worker in team.client.workers() if worker["is_alive"]]
        return found if len(found) == 2 else None

    return wait_until(living, "two workers wait")


def finished(team, job):
    """Settings and start of each finished trial of the study, by number."""
    with Repository.open(resolve_url(team.storage, team.root)) as repository:
        if job.study not in repository.names():
            return {}
        trials = [trial for trial in repository.trials(job.study) if trial.result.outcome.is_finished]
        return {trial.number: (trial.settings, trial.started_at) for trial in trials}


def check_whole(team, job, before):
    """The ended study has all trials known before, none twice, and each is told to the sampler."""
    now = finished(team, job)
    assert {number: now.get(number) for number in before} == before
    assert len({settings for settings, _ in now.values()}) == len(now) <= 8
    with Repository.open(resolve_url(team.storage, team.root)) as repository:
        assert [trial.number for trial in repository.trials(job.study) if not trial.optuna_told] == []
