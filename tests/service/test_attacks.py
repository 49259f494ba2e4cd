"""Attacks on a real server, each refused; the table of docs/service.md names these tests."""

from __future__ import annotations

import re
import socket
import time
from contextlib import suppress
from http.client import HTTPConnection
from urllib.parse import unquote

import pytest

pytest.importorskip("fastapi", reason="the service comes with the extra `service`")

from autotune.service.security import bodies, slow_clients
from tests.contract.private_servers import postgresql

from .served import READER, TOKEN, WORKER, served

PAGES = ("/", "/submit", "/studies", "/compare", "/workers", "/optuna", "/dashboard", "/api/studies", "/metrics")
TRAVERSALS = (
    "../outside.py",
    "..",
    "/etc/passwd.py",
    "a/../../outside.py",
    "..\\outside.py",
    "~/outside.py",
    "link/outside.py",
    "%2e%2e/outside.py",
    "train.py\0.py",
    "--module=os.py",
    "http://evil.example/x.py",
)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("attacked")
    (folder / "outside.py").write_text("print('outside')")
    audit = folder / "audit.jsonl"
    with served(folder, audit_log=audit) as running:
        (folder / "demo" / "link").symlink_to(folder)
        running.audit = audit
        yield running


@pytest.fixture(scope="module")
def job(server):
    return server.submit(options={"study": "attacked"})


@pytest.fixture(scope="module")
def routes(server, job):
    """(method, path) of every route of the API and of the pages, with real names in the place of parameters."""
    described = server.get("/v1/openapi.json").json["paths"]
    found = [(method.upper(), re.sub(r"\{[^}]*\}", job, path)) for path, ways in described.items() for method in ways]
    found += [("GET", page) for page in (*PAGES, f"/jobs/{job}", f"/jobs/{job}/parts", f"/jobs/{job}/config")]
    found += [("POST", f"/jobs/{job}/stop"), ("POST", "/submit"), ("POST", "/workers/x/drain")]
    return [(method, path) for method, path in found if path != "/healthz"]


def raw(server, text: bytes, *, wait=10.0) -> bytes:
    """Everything that the server answers to some bytes, until the server closes."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=wait) as connection:
        connection.sendall(text)
        got = b""
        with suppress(OSError):  # silence, or a reset: the server did not read all of it
            while chunk := connection.recv(65536):
                got += chunk
        return got


def status_of(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def test_no_route_answers_without_a_token(server, routes):
    assert len(routes) > 25
    for method, path in routes:
        for token in (None, "x" * 43):
            answer = server.ask(method, path, token=token)
            assert answer.status in (401, 403, 429), f"{method} {path} {answer.status}"
            assert "attacked" not in answer.text


def test_no_route_answers_to_a_foreign_host(server, routes):
    for method, path in routes:
        answer = server.ask(method, path, headers={"Host": f"evil.example:{server.port}"})
        assert answer.status == 421, f"{method} {path}"


@pytest.mark.parametrize("host", [b"127.0.0.1/healthz?x=", b"127.0.0.1:1/login", b"a@127.0.0.1", b"[::1", b"", b"\xff"])
def test_a_malformed_host_is_refused(server, host):
    head = b"GET /v1/jobs HTTP/1.1\r\nHost: " + host + b"\r\nConnection: close\r\n\r\n"
    assert status_of(raw(server, head)) == 400
    with_token = head[:-2] + b"Authorization: Bearer " + TOKEN.encode() + b"\r\n\r\n"
    assert status_of(raw(server, with_token)) == 400


def test_no_mutation_passes_from_a_foreign_page(server, routes):
    cookie = {"Cookie": server.browser()["Cookie"]}
    foreign = ({"Origin": "http://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}, {})
    for method, path in routes:
        if method == "GET":
            continue
        for headers in foreign:
            assert server.ask(method, path, token=None, headers={**cookie, **headers}).status == 403, path


def test_no_mutation_passes_with_a_read_only_token(server, routes):
    for method, path in routes:
        if method != "GET":
            assert server.ask(method, path, token=READER).status == 403, path


def leases(path: str) -> bool:
    """Whether a path is among those of workers."""
    return bool(re.search(r"^/v1/workers(/[^/]*:(lease|drain))?$|^/v1/leases/", path))


def test_a_token_of_workers_reads_nothing_and_submits_nothing(server, routes):
    opened = {
        (method, path) for method, path in routes if server.ask(method, path, token=WORKER).status not in (401, 403)
    }
    assert {method for method, _ in opened} == {"POST"}
    assert opened == {(method, path) for method, path in routes if method == "POST" and leases(path)}
    assert len(opened) == 5


def test_a_browser_session_leases_nothing(server, routes):
    headers = server.browser()
    for method, path in routes:
        if method == "POST" and leases(path):
            assert server.ask(method, path, {}, token=None, headers=headers).status == 403, path


@pytest.mark.parametrize("script", TRAVERSALS)
def test_no_script_outside_the_project_is_taken(server, script):
    body = {"project": "demo", "script": script}
    assert server.ask("POST", "/v1/jobs", body).status == 422


@pytest.mark.parametrize("project", ["..", "../demo", "/etc", "demo/..", "demo\0", "", "d" * 65, "DEMO"])
def test_no_project_outside_the_register_is_taken(server, project):
    assert server.ask("POST", "/v1/jobs", {"project": project, "script": "train.py"}).status == 422


@pytest.mark.parametrize(
    "name", ["..", "../../etc/passwd", "%2e%2e%2f%2e%2e%2fetc%2fpasswd", "a%00b", "%ff", "x" * 3000]
)
def test_names_in_paths_reach_no_file(server, name):
    for target in (f"/v1/studies/{name}", f"/studies/{name}", f"/v1/jobs/{name}", f"/jobs/{name}", f"/assets/{name}"):
        answer = server.get(target)
        assert 400 <= answer.status < 500 and "root:" not in answer.text, target
    for target in ("/demo/train.py", "/static/../demo/train.py", "/assets/../../service.db"):
        assert "hello" not in server.get(target).text and "SQLite" not in server.get(target).text


@pytest.mark.parametrize(
    "body",
    [
        {"project": "demo", "script": "train.py", "command": ["rm"]},
        {"project": "demo", "script": "train.py", "environment": {"PATH": "/evil"}},
        {"project": "demo", "script": "train.py", "options": {"storage": "sqlite:///x"}},
        {"project": "demo", "script": "train.py", "options": {"out": "/etc/cron.d/x"}},
        {"project": "demo", "script": "train.py", "options": {"writable": ["/"]}},
        {"project": "demo", "script": "train.py", "options": {"unprotected": True}},
        {"project": "demo", "script": "train.py", "options": {"network": True}},
        {"project": "demo", "script": "train.py", "options": {"protection": "none"}},
        {"project": "demo", "script": "train.py", "args": ["--api-key", "sk-0123456789abcdef0123456789abcdef"]},
        {"project": "demo", "script": "train.py", "args": ["x" * 5000]},
        {"project": "demo", "script": "train.py", "machines": 10**9},
    ],
)
def test_a_job_holds_no_command_no_place_no_secret_and_no_less_protection(server, body):
    assert server.ask("POST", "/v1/jobs", body).status == 422


def test_a_large_body_is_refused_before_it_is_read(server):
    size = bodies.MAX_BODY_BYTES + 1
    head = (
        f"POST /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: {size}\r\n\r\n"
    )
    assert status_of(raw(server, head.encode())) == 413
    chunked = head.replace(f"Content-Length: {size}", "Transfer-Encoding: chunked").encode()
    chunk = b"100000\r\n" + b"x" * 0x100000 + b"\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        connection.sendall(chunked)
        try:
            for _ in range(20):
                connection.sendall(chunk)
        except OSError:
            pass  # the server has hung up, which is the point
        try:
            answer = connection.recv(65536)
        except OSError:
            answer = b"HTTP/1.1 413 "
    assert status_of(answer) == 413


@pytest.mark.parametrize(
    "nesting", ["[" * 100_000, '{"a":' * 100_000, '{"project": ' + "9" * 5000 + "}", "\xff\xfe", "NaN"]
)
def test_a_hostile_document_is_a_refusal_and_no_crash(server, nesting):
    headers = {"Content-Type": "application/json"}
    answer = server.ask("POST", "/v1/jobs", nesting.encode("latin-1"), headers=headers)
    assert answer.status in (400, 422)


def test_huge_headers_are_refused(server):
    head = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"x" * 200_000 + b"\r\n\r\n"
    answer = raw(server, head)
    assert not answer or status_of(answer) == 400


@pytest.mark.parametrize(
    "head",
    [
        b"POST /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        b"POST /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0",
        b"GET /v1/jobs HTTP/1.1\r\nHost : 127.0.0.1\r\n\r\n",
        b"GET /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil.example\r\n\r\n",
        b"GET /v1/jobs HTTP/1.1\r\n\r\n",
        b"GET http://127.0.0.1/login/../v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
)
def test_a_smuggled_request_reaches_no_route(server, head):
    answer = raw(server, head, wait=3.0)
    assert not answer or status_of(answer) in (400, 401)
    assert b"attacked" not in answer


def test_a_used_link_signs_nobody_in(server):
    target = server.app.state.security.browser_url("")
    assert server.get(target, token=None).cookies
    again = server.get(target, token=None)
    assert again.status in (401, 429) and not again.cookies
    assert TOKEN not in target


def test_clients_that_do_not_send_are_disconnected_and_hold_up_nobody(server, monkeypatch):
    monkeypatch.setattr(slow_clients, "REQUEST_S", 0.3)
    monkeypatch.setattr(bodies.bounded, "__defaults__", (0.3,))
    silent = [socket.create_connection(("127.0.0.1", server.port), timeout=10) for _ in range(50)]
    halves = [socket.create_connection(("127.0.0.1", server.port), timeout=10) for _ in range(50)]
    for half in halves:
        half.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n")
    assert server.get("/healthz").status == 200
    head = f"POST /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: 9\r\n\r\nx"
    assert status_of(raw(server, head.encode())) == 408
    for connection in (*silent, *halves):
        with suppress(ConnectionError):
            assert connection.recv(100) == b""
        connection.close()


def test_a_slow_second_request_on_a_connection_is_disconnected_too(server, monkeypatch):
    monkeypatch.setattr(slow_clients, "REQUEST_S", 0.3)
    connection = HTTPConnection("127.0.0.1", server.port, timeout=10)
    connection.request("GET", "/healthz")
    assert connection.getresponse().read()
    half = connection.sock
    assert half is not None
    half.sendall(b"GET / HT")
    with suppress(ConnectionError):
        assert half.recv(100) == b""
    connection.close()


def test_a_client_that_does_not_read_is_disconnected(server, monkeypatch):
    monkeypatch.setattr(slow_clients, "READ_S", 0.3)
    request = f"GET /assets/htmx-2.0.11.min.js HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n\r\n".encode()
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(20)
        connection.connect(("127.0.0.1", server.port))
        with pytest.raises(OSError):
            for _ in range(2000):  # far more answers than all buffers hold
                connection.sendall(request * 20)
                time.sleep(0.005)
    assert server.get("/healthz").status == 200


def test_a_long_request_is_not_taken_for_a_slow_client(server, monkeypatch):
    monkeypatch.setattr(slow_clients, "REQUEST_S", 0.2)
    worker = {"id": "patient", "session": "s" * 16, "machine": "m", "class": "c", "projects": {"other": "/other"}}
    assert server.ask("POST", "/v1/workers", worker).status == 200
    answer = server.ask("POST", "/v1/workers/patient:lease", {"session": "s" * 16, "wait_s": 1.0})
    assert answer.status == 204, "a long poll ends by its own wait"


@pytest.fixture(scope="module")
def cluster():
    yield from postgresql()


def test_nobody_is_sent_the_password_of_the_database(tmp_path, cluster):
    """Not even a worker that leases a job."""
    password = "p-0123456789abcdef"
    url = cluster.new_url().replace("autotune@", f"autotune:{password}@")
    worker = {"id": "w", "session": "s" * 16, "machine": "m", "class": "c", "projects": {"demo": "/srv/demo"}}
    with served(tmp_path, storage=url) as running:
        job = running.submit()
        answers = [running.ask("POST", "/v1/workers", worker, token=WORKER)]
        granted = running.ask("POST", "/v1/workers/w:lease", {"session": "s" * 16}, token=WORKER)
        assert granted.json["job"]["id"] == job
        assert unquote(granted.json["storage"]) == url.replace(f":{password}@", "@")
        described = running.get("/v1/openapi.json").json["paths"]
        paths = [re.sub(r"\{[^}]*\}", job, path) for path, ways in described.items() if "get" in ways]
        paths = [path for path in (*paths, *PAGES, f"/jobs/{job}", f"/studies/{job}") if not path.endswith("/events")]
        answers += [granted, *(running.get(path) for path in paths)]
        answers += [running.get(path, token=None, headers=running.browser()) for path in paths]
    assert len([answer for answer in answers if answer.status == 200]) > 20
    assert not any(password in answer.text + str(answer.headers) for answer in answers)


def test_guesses_are_slowed_down(tmp_path):
    with served(tmp_path) as running:
        codes = [running.get("/v1/jobs", token="g" * 43).status for _ in range(15)]
    assert codes[0] == 401 and codes[-1] == 429


def test_no_secret_stands_in_the_audit_log(server):
    text = server.audit.read_text()
    assert TOKEN not in text and READER not in text and "once=" not in text and '"status": 403' in text


def test_every_route_that_changes_something_is_no_get(server):
    described = server.get("/v1/openapi.json").json["paths"]
    reading = {path for path, ways in described.items() if "get" in ways}
    assert not [
        path for path in reading if re.search(r":(pause|stop|cancel|resume|drain|enable|lease|complete)$", path)
    ]
