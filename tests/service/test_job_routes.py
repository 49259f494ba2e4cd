"""The routes of jobs, on a real server without a worker."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest

from autotune.client import ServerError
from autotune.store.repository import Repository
from autotune.store.url import resolve_url
from tests.contract import store_samples as samples
from tests.service.servers import Service, cli

BODY = {"project": "demo", "script": "train.py"}


def post(served: Service, **body: Any) -> dict[str, Any]:
    return served.api.json("POST", "/v1/jobs", {**BODY, **body})


def refused(served: Service, **body: Any) -> ServerError:
    with pytest.raises(ServerError) as caught:
        post(served, **body)
    return caught.value


def test_a_job_has_an_id_a_study_and_a_status(served: Service) -> None:
    job = post(served, args=["--epochs", "5"], options={"trials": 4, "time": "60s"})
    assert (job["status"], job["study"]) == ("queued", f"train-{job['id']}")
    assert (job["args"], job["options"]) == (["--epochs", "5"], {"trials": 4, "time": "60s"})
    assert served.api.json("GET", f"/v1/jobs/{job['id']}") == job


def test_a_submitted_job_is_accepted_at_an_address_of_its_own(served: Service) -> None:
    with served.api.open("POST", "/v1/jobs", BODY) as response:
        assert response.status == 202
        job = json.loads(response.read())
        assert response.headers["Location"] == f"/v1/jobs/{job['id']}"


def test_a_repeated_request_with_one_key_makes_one_job(served: Service) -> None:
    key = {"Idempotency-Key": uuid.uuid4().hex}
    body = {**BODY, "options": {"study": f"photos-{key['Idempotency-Key']}"}}
    first = served.api.json("POST", "/v1/jobs", body, headers=key)
    assert served.api.json("POST", "/v1/jobs", body, headers=key)["id"] == first["id"]
    with pytest.raises(ServerError) as caught:
        served.api.json("POST", "/v1/jobs", {**body, "args": ["x"]}, headers=key)
    assert (caught.value.status, caught.value.code) == (409, "exists")


def test_the_name_of_a_stored_study_is_refused_with_and_without_a_key(served: Service) -> None:
    name = f"stored-{uuid.uuid4().hex}"
    with Repository.open(resolve_url(served.storage, served.root)) as repository:
        repository.create_study(samples.study(name))
    for key in ({}, {"Idempotency-Key": uuid.uuid4().hex}):
        with pytest.raises(ServerError) as caught:
            served.api.json("POST", "/v1/jobs", {**BODY, "options": {"study": name}}, headers=key)
        assert (caught.value.status, caught.value.code) == (409, "exists")


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ({"project": "nothing"}, "no project"),
        ({"script": "../outside.py"}, "not a path within"),
        ({"script": "/etc/passwd.py"}, "not a path within"),
        ({"script": "a/../../outside.py"}, "not a path within"),
        ({"script": "link.py"}, "has no script"),
        ({"script": "missing.py"}, "has no script"),
        ({"script": "notes.txt"}, "not a Python script"),
        ({"script": "-c.py"}, "not a path within"),
        ({"script": "a\0.py"}, "not a path within"),
        ({"args": ["--api-key", "hf_abcdefgh12345678"]}, "hold a secret"),
        ({"options": {"command": ["rm", "-rf", "/"]}}, "command is not an option of a job"),
        ({"options": {"script": "other.py"}}, "script is not an option of a job"),
        ({"options": {"storage": "sqlite:////tmp/x.db"}}, "storage is not an option of a job"),
        ({"options": {"out": "/etc/passwd"}}, "out is not an option of a job"),
        ({"options": {"writable": ["/"]}}, "writable is not an option of a job"),
        ({"options": {"unprotected": True}}, "unprotected is not an option of a job"),
        ({"options": {"network": True}}, "network is not an option of a job"),
        ({"options": {"protection": "none"}}, "for the user of a machine"),
        ({"options": {"trails": 4}}, "did you mean trials"),
        ({"options": {"trials": 0}}, "not at least 1"),
        ({"options": {"time": "soon"}}, "not a time"),
        ({"options": {"set": {"num_workers": "9..1"}}}, "num_workers"),
        ({"options": {"study": "-x"}}, "cannot be the name"),
        ({"environment": {"A": "b"}}, "environment"),
        ({"machines": 0}, "machines"),
        ({"args": "--epochs"}, "args"),
    ],
)
def test_an_impossible_job_is_refused_with_a_sentence(served: Service, body: dict[str, Any], word: str) -> None:
    error = refused(served, **body)
    assert (error.status, error.code, error.exit_code) == (422, "usage", 2)
    assert word in str(error)


def test_errors_are_problem_documents(served: Service) -> None:
    from http.client import HTTPConnection

    connection = HTTPConnection("127.0.0.1", served.port, timeout=30)
    token = served.token_file.read_text().strip()
    connection.request("GET", "/v1/jobs/nothing", headers={"Authorization": f"Bearer {token}"})
    response = connection.getresponse()
    document = json.loads(response.read())
    connection.close()
    assert (response.status, response.headers["Content-Type"]) == (404, "application/problem+json")
    assert document["status"] == 404 and document["code"] == "not_found" and document["exit_code"] == 2
    assert "no job 'nothing'" in document["detail"] and document["title"] and document["type"]


def test_jobs_are_listed_in_pages_and_by_state(served: Service) -> None:
    made = [post(served)["id"] for _ in range(3)]
    served.client.cancel(made[0])
    listed = served.api.json("GET", "/v1/jobs?limit=2")["jobs"]
    assert [job["id"] for job in listed] == [made[2], made[1]]
    older = served.api.json("GET", f"/v1/jobs?before={made[1]}")["jobs"]
    assert older[0]["id"] == made[0]
    cancelled = served.api.json("GET", "/v1/jobs?status=cancelled")["jobs"]
    assert made[0] in [job["id"] for job in cancelled] and made[1] not in [job["id"] for job in cancelled]


def test_a_waiting_job_is_paused_resumed_stopped_and_cancelled(served: Service) -> None:
    client, job_id = served.client, post(served)["id"]
    assert client.pause(job_id).status == "paused"
    assert client.resume(job_id).status == "queued"
    assert client.stop(job_id).status == "stopped"
    assert client.resume(job_id).status == "queued"
    assert client.cancel(job_id).status == "cancelled"
    with pytest.raises(ServerError) as caught:
        client.resume(job_id)
    assert caught.value.status == 409


def test_the_api_describes_itself_with_the_schema_of_the_options(served: Service) -> None:
    document = served.api.json("GET", "/v1/openapi.json")
    assert {"/v1/jobs", "/v1/jobs/{job_id}:pause", "/v1/leases/{lease_id}:heartbeat", "/healthz"} <= set(
        document["paths"]
    )
    options = document["components"]["schemas"]["JobBody"]["properties"]["options"]["properties"]
    assert options["trials"]["type"] == "integer" and options["trials"]["description"]
    assert "command" not in options and "storage" not in options


def test_health_and_metrics_tell_the_state(served: Service) -> None:
    assert served.api.json("GET", "/healthz")["status"] == "ok"
    text = served.api.request("GET", "/metrics")[1].decode()
    assert 'autotune_jobs{status="queued"}' in text and "# TYPE autotune_leases_held gauge" in text


def test_the_commands_print_the_servers_documents(served: Service) -> None:
    done = cli(served, "submit", "train.py", "--project", "demo", "--trials", "3", "--set", "a=1,2", "--json")
    done_again = cli(served, "submit", "train.py", "--json", "--project=demo", "--", "--epochs", "2")
    assert (done.returncode, done_again.returncode) == (0, 0), done.stderr + done_again.stderr
    job = json.loads(done.stdout)
    assert job["options"] == {"trials": 3, "set": {"a": "1,2"}}
    assert json.loads(done_again.stdout)["args"] == ["--epochs", "2"]
    shown = cli(served, "jobs", "show", job["id"], "--json")
    assert json.loads(shown.stdout) == served.api.json("GET", f"/v1/jobs/{job['id']}")
    stopped = cli(served, "jobs", "stop", job["id"])
    assert "status   stopped" in stopped.stdout
    listed = cli(served, "jobs", "list", "--json")
    assert json.loads(listed.stdout) == served.api.json("GET", "/v1/jobs")
    wrong = cli(served, "jobs", "show", "nothing")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "no job 'nothing'" in wrong.stderr and "Traceback" not in wrong.stderr


def test_a_submit_without_a_project_needs_the_only_one(served: Service) -> None:
    done = cli(served, "submit", "train.py")
    assert done.returncode == 2 and "It has demo, other." in done.stderr
