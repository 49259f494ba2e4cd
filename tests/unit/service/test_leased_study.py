"""What a worker checks before the search of a leased job: the database, and the network of the trials."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from autotune.errors import HostError
from autotune.service.worker.leased_study import LeasedJob, check_storage, search_words
from autotune.store.job_queue import JobQueue
from autotune.store.job_records import JobRequest, WorkerRecord
from autotune.store.repository import Repository
from autotune.store.url import resolve_url
from autotune.study_file.asked import asked
from tests.contract.store_samples import study

NOW = datetime(2026, 1, 1, tzinfo=UTC)
WORKER = WorkerRecord(
    worker_id="w",
    session="s",
    machine="m",
    machine_class="c",
    description={},
    devices=(),
    cpus=(),
    projects={"demo": "/srv/demo"},
    registered_at=NOW,
    seen_at=NOW,
)


@pytest.fixture
def leased(tmp_path: Path) -> LeasedJob:
    """A lease of the server's database."""
    (tmp_path / "train.py").write_text("import torch\n")
    url = resolve_url("server.db", tmp_path)
    with JobQueue.open(url) as queue:
        queue.register(WORKER)
        queue.submit(JobRequest(study="photos", project="demo", script="train.py"), now=NOW)
        granted = queue.grant("w", "s", now=NOW, alive_s=60.0)
    assert granted is not None
    job = {"id": "j", "study": "photos", "project": "demo", "script": "train.py", "args": [], "options": {}}
    return LeasedJob(lease=granted[0].lease_id, fence=granted[0].fence, heartbeat_s=1.0, storage=url, job=job)


def test_the_servers_database_is_known_by_the_lease(leased: LeasedJob) -> None:
    check_storage(leased)


def test_another_database_is_refused_and_stays_as_it_was(leased: LeasedJob, tmp_path: Path) -> None:
    other = resolve_url("other.db", tmp_path)
    Repository.open(other).close()
    before = Path(tmp_path, "other.db").read_bytes()
    with pytest.raises(HostError, match=r"other\.db is not the server's\. Name the server's database with --storage"):
        check_storage(replace(leased, storage=other))
    assert Path(tmp_path, "other.db").read_bytes() == before
    with pytest.raises(HostError, match="in a file of its own machine"):
        check_storage(replace(leased, storage=resolve_url("missing.db", tmp_path)))


def test_a_database_that_wants_a_password_says_where_the_password_comes_from(
    leased: LeasedJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    from autotune.errors import StoreError
    from autotune.service.worker import leased_study

    def refuses(url: str, lease: str) -> bool:
        raise StoreError("The database says: no password supplied.", "")

    monkeypatch.setattr(leased_study, "has_lease", refuses)
    with pytest.raises(HostError, match=r"no password supplied.*sends no password.*AUTOTUNE_STORAGE at the worker"):
        check_storage(leased)


def test_trials_use_the_network_only_if_the_worker_or_the_project_says_so(leased: LeasedJob, tmp_path: Path) -> None:
    def words(*, network: bool) -> list[str]:
        return search_words(leased, tmp_path, unprotected=False, network=network)

    assert "--network" not in words(network=False)
    assert "--network" in words(network=True)
    spec = asked({"script": "train.py", "study": "photos", "network": True}, [], tmp_path).spec
    with Repository.open(leased.storage) as repository:
        repository.create_study(replace(study("photos"), spec=spec))
    with pytest.raises(HostError, match="this worker lets no trial do that"):
        words(network=False)
    assert words(network=True)[0] == "resume"
    (tmp_path / "study.toml").write_text("network = true\n")
    assert words(network=False)[0] == "resume", "the project's own file permits the network"
