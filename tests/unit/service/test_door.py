"""The door in front of a small application, request by request."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="the service comes with the extra `service`")

from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from autotune.errors import UsageError
from autotune.service.pages.outside import outside_routes
from autotune.service.security import bodies
from autotune.service.security.door import CALLER, Door, open_security
from autotune.service.security.failed_tokens import BURST, FailedTokens
from autotune.service.security.sessions import ONE_TIME_S, SESSION_S, OneTimeTokens, Sessions
from autotune.service.security.tokens import TokenBook
from autotune.service.service_settings import ServiceSettings

from .asked import ask

TOKEN, READER, WORKER = "t" * 43, "r" * 43, "w" * 43
BEARER = {"authorization": f"Bearer {TOKEN}"}
OWN = "http://127.0.0.1:8642"


class Clock:
    def __init__(self):
        self.now = 1_000_000.0

    def __call__(self):
        return self.now


class Guarded:
    """A small application behind a door: `seen` has what got through."""

    def __init__(self, audit_log):
        self.seen = []
        settings = ServiceSettings(
            storage="sqlite://",
            projects={},
            token=TOKEN,
            read_only_tokens=(READER,),
            worker_tokens=(WORKER,),
            allowed_hosts=("tune.example",),
            audit_log=audit_log,
        )
        self.security = open_security(settings)

        async def anything(request):
            self.seen.append((request.method, request.scope["path"], await request.body()))
            caller = request.scope.get(CALLER)
            return PlainTextResponse(f"in: {caller.name if caller else 'nobody'}")

        routes = [Route("/{rest:path}", anything, methods=["GET", "POST", "DELETE", "PUT", "OPTIONS"])]
        for_workers = [Route("/v1/workers", anything, methods=["POST"])]
        self.app = Door(Starlette(routes=routes), outside_routes(self.security), self.security, for_workers)

    def ask(self, *args, **kwargs):
        return ask(self.app, *args, **kwargs)

    def sign_in(self):
        target = self.security.browser_url(OWN).removeprefix(OWN)
        answer = self.ask("GET", target)
        assert answer.status == 200
        return answer.cookies[0].partition(";")[0], target


@pytest.fixture
def audit_log(tmp_path) -> Path:
    return tmp_path / "audit" / "log.jsonl"


@pytest.fixture
def door(audit_log):
    guarded = Guarded(audit_log)
    yield guarded
    guarded.security.audit.close()


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_token_in_the_header_opens_the_door(door):
    answer = door.ask("POST", "/v1/jobs", BEARER, b"{}")
    assert answer.status == 200 and answer.text.startswith("in: full-")
    assert door.seen == [("POST", "/v1/jobs", b"{}")]


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": ""},
        {"authorization": "Bearer"},
        {"authorization": "Bearer wrong"},
        {"authorization": f"Basic {TOKEN}"},
        {"authorization": f"Bearer {TOKEN[:-1]}"},
        {"authorization": f"Bearer {TOKEN}\xff"},
        [("authorization", f"Bearer {TOKEN}"), ("authorization", "Bearer wrong")],
        {"cookie": "autotune-8642=x"},
        {"cookie": "autotune-8642=a.b.c.d"},
        {"cookie": "autotune-8642=.." + "e" * 50},
        {"cookie": f"autotune-8642={TOKEN}"},
    ],
)
@pytest.mark.parametrize("target", ["/", "/v1/jobs", "/v1/openapi.json", "//v1/jobs", "/healthz/../v1/jobs", "/LOGIN"])
def test_without_a_valid_token_no_route_runs(door, headers, target):
    assert door.ask("GET", target, headers).status == 401
    assert door.seen == []


def test_a_path_that_looks_open_in_a_malformed_host_opens_nothing(door):
    for host in ("127.0.0.1/healthz?", "127.0.0.1:8642/login#", "x@127.0.0.1", "127.0.0.1:99999999", "", "a b", "[::1"):
        assert door.ask("GET", "/v1/jobs", {"host": host}).status == 400
        assert door.ask("GET", "/v1/jobs", {"host": host, **BEARER}).status == 400
    two = [("host", "127.0.0.1"), ("host", "evil.example")]
    assert door.ask("GET", "/healthz", two).status == 400
    assert door.seen == []


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:8642", "10.0.0.1"])
def test_a_foreign_name_of_this_machine_is_refused_with_a_valid_token_too(door, host):
    for target in ("/", "/login", "/healthz", "/assets/service.css"):
        assert door.ask("GET", target, {"host": host, **BEARER}).status == 421
    assert door.seen == []


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost:9999", "LOCALHOST", "[::1]:8642", "tune.example", "tune.example."]
)
def test_names_of_the_service_are_let_in(door, host):
    status = door.ask("GET", "/v1/jobs", {"host": host, **BEARER}).status
    assert status == (200 if not host.endswith(".") else 400)


def test_the_printed_link_works_once_and_gives_a_cookie_that_scripts_cannot_read(door):
    cookie, target = door.sign_in()
    assert door.ask("GET", "/v1/jobs", {"cookie": cookie}).status == 200
    replayed = door.ask("GET", target)
    assert replayed.status == 401 and replayed.cookies == []
    attributes = door.ask("GET", door.security.browser_url("")).cookies[0].lower()
    assert "httponly" in attributes and "samesite=strict" in attributes and "secure" not in attributes
    assert TOKEN not in attributes and TOKEN not in target


def test_a_one_time_token_ages(door):
    clock = Clock()
    tokens = OneTimeTokens(clock)
    token = tokens.issue(door.security.book.owner())
    clock.now += ONE_TIME_S
    assert tokens.redeem(token) is None


def test_a_session_ends_by_time_and_with_its_token():
    clock, book = Clock(), TokenBook(TOKEN, (READER,))
    cookie = Sessions(book, clock).start(book.owner())
    assert Sessions(book, clock).caller_of(cookie).may_change, "another server with the same tokens knows the session"
    assert Sessions(TokenBook("n" * 43), clock).caller_of(cookie) is None
    clock.now += SESSION_S
    assert Sessions(book, clock).caller_of(cookie) is None


def test_every_change_of_a_cookie_is_noticed():
    book = TokenBook(TOKEN, (READER,))
    sessions = Sessions(book)
    cookie = sessions.start(book.caller_of(READER))
    assert sessions.caller_of(cookie).may_change is False
    for index in range(len(cookie)):
        other = "A" if cookie[index] != "A" else "B"
        assert sessions.caller_of(cookie[:index] + other + cookie[index + 1 :]) is None
    assert sessions.caller_of(cookie.replace("read-only", "full", 1)) is None


@pytest.mark.parametrize(
    ("origin", "site", "passes"),
    [
        (OWN, None, True),
        (OWN, "same-origin", True),
        (None, "same-origin", True),
        (None, None, False),
        ("null", "same-origin", False),
        ("http://evil.example", None, False),
        ("http://127.0.0.1:9999", None, False),
        (OWN, "cross-site", False),
        (None, "same-site", False),
        (None, "none", False),
    ],
)
def test_a_browser_changes_things_only_from_our_own_pages(door, origin, site, passes):
    cookie, _ = door.sign_in()
    headers = {"cookie": cookie, "origin": origin, "sec-fetch-site": site}
    assert door.ask("POST", "/v1/jobs", headers).status == (200 if passes else 403)
    assert door.ask("DELETE", "/v1/jobs", headers).status == (200 if passes else 403)
    assert door.ask("GET", "/v1/jobs", headers).status == 200, "reading changes nothing"
    assert door.ask("POST", "/v1/jobs", headers | BEARER).status == 200, "no browser adds the header by itself"


def test_nobody_is_signed_in_from_a_foreign_page(door):
    body = f"token={TOKEN}".encode()
    assert door.ask("POST", "/login", {"origin": "http://evil.example"}, body).status == 403
    answer = door.ask("POST", "/login", {"origin": OWN}, body)
    assert answer.status == 200 and answer.cookies


def test_a_read_only_token_reads_and_changes_nothing(door):
    headers = {"authorization": f"Bearer {READER}"}
    assert door.ask("GET", "/v1/jobs", headers).status == 200
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "TRACE"):
        assert door.ask(method, "/v1/jobs", headers).status == 403
    assert [method for method, *_ in door.seen] == ["GET"]


def test_a_token_of_workers_opens_the_routes_of_workers_alone(door):
    headers = {"authorization": f"Bearer {WORKER}"}
    assert door.ask("POST", "/v1/workers", headers).text.startswith("in: worker-")
    asked = [
        ("GET", "/v1/workers"),
        ("POST", "/v1/jobs"),
        ("GET", "/"),
        ("DELETE", "/v1/workers"),
        ("POST", "//v1/workers"),
    ]
    assert [door.ask(method, target, headers).status for method, target in asked] == [403] * len(asked)
    assert door.ask("POST", "/login", {"origin": OWN}, f"token={WORKER}".encode()).cookies == []
    assert door.ask("GET", "/healthz", headers).status == 200
    assert [target for _, target, _ in door.seen if target != "/healthz"] == ["/v1/workers"]


def test_a_browser_is_no_worker(door):
    cookie, _ = door.sign_in()
    headers = {"cookie": cookie, "origin": OWN}
    assert door.ask("POST", "/v1/workers", headers).status == 403
    assert door.ask("GET", "/v1/workers", headers).status == 200
    assert door.ask("POST", "/v1/workers", BEARER).status == 200, "the owner's programs may be workers"


def test_a_token_has_one_role():
    for again in ({"read_only": (TOKEN,)}, {"workers": (TOKEN,)}, {"read_only": (READER,), "workers": (READER,)}):
        with pytest.raises(UsageError, match="the same token"):
            TokenBook(TOKEN, **again)
    assert TokenBook("", workers=(WORKER,)).owner() is None, "no page opens with a worker's token"


def test_failed_tokens_are_limited_by_address_and_a_valid_token_passes(door):
    wrong = {"authorization": "Bearer wrong"}
    assert [door.ask("GET", "/", wrong).status for _ in range(BURST + 2)] == [401] * BURST + [429] * 2
    answer = door.ask("GET", "/", wrong)
    assert int(answer.headers["retry-after"]) >= 1
    assert door.ask("POST", "/login", {"origin": OWN}, b"token=wrong").status == 429
    assert door.ask("GET", "/login?once=wrong").status == 429
    assert door.ask("GET", "/", BEARER).status == 200
    assert door.ask("GET", "/", wrong, client=("10.0.0.9", 1)).status == 401


def test_failures_are_forgiven_with_time_and_take_bounded_memory():
    clock = Clock()
    failed = FailedTokens(clock)
    assert [failed.count("a") > 0 for _ in range(BURST + 1)] == [False] * BURST + [True]
    clock.now += 3600
    assert failed.count("a") == 0
    for number in range(10_000):
        failed.count(str(number))
    assert len(failed._levels) <= 4096


def test_a_large_body_is_refused_by_its_length_and_by_its_bytes(door):
    size = bodies.MAX_BODY_BYTES + 1
    declared = door.ask("POST", "/v1/jobs", BEARER | {"content-length": str(size)}, b"")
    assert declared.status == 413 and declared.headers["content-type"] == "application/problem+json"
    chunks = [{"type": "http.request", "body": b"x" * (1 << 20), "more_body": True} for _ in range(9)]
    assert door.ask("POST", "/v1/jobs", BEARER, messages=chunks).status == 413
    assert len(chunks) == 9 and door.seen == []
    small = {"origin": OWN, "content-length": str(bodies.MAX_SIGN_IN_BYTES + 1)}
    assert door.ask("POST", "/login", small).status == 413, "strangers may send even less"


def test_a_body_that_does_not_arrive_is_given_up(door, monkeypatch):
    monkeypatch.setattr(bodies.bounded, "__defaults__", (0.05,))

    async def never():
        await asyncio.Event().wait()

    first = {"type": "http.request", "body": b"x", "more_body": True}
    assert door.ask("POST", "/v1/jobs", BEARER, messages=[first, never]).status == 408
    gone = [first, {"type": "http.disconnect"}]
    assert door.ask("POST", "/v1/jobs", BEARER, messages=gone) is None
    assert door.seen == []


def test_every_answer_has_the_headers_that_keep_foreign_content_out(door):
    asked = [("GET", "/", {}), ("GET", "/", BEARER), ("GET", "/login", {}), ("GET", "/v1", {"host": "evil.example"})]
    for method, target, headers in asked:
        got = door.ask(method, target, headers).headers
        assert "default-src 'self'" in got["content-security-policy"]
        assert "unsafe-inline" not in got["content-security-policy"]
        assert got["x-content-type-options"] == "nosniff" and got["x-frame-options"] == "DENY"
        assert got["referrer-policy"] == "same-origin" and "no-store" in got["cache-control"]


def test_files_of_the_pages_are_open_and_no_other_file_is(door):
    assert door.ask("GET", "/assets/service.css").status == 200
    for name in ("nothing.css", "../outside.py", "..%2foutside.py", "__init__.py"):
        assert door.ask("GET", f"/assets/{name}").status in (401, 404)


def test_a_browser_without_a_session_is_led_to_the_sign_in(door):
    answer = door.ask("GET", "/jobs/x", {"accept": "text/html"})
    assert answer.status == 303 and answer.headers["location"] == "/login"
    assert door.ask("POST", "/jobs/x", {"accept": "text/html", "origin": OWN}).status == 401


def test_the_audit_log_tells_who_did_what_without_secrets(door, audit_log):
    cookie, target = door.sign_in()
    door.ask("POST", "/v1/jobs?secret=query", BEARER, b"body of the request")
    door.ask("GET", "/v1/jobs", BEARER)
    door.ask("POST", "/v1/\x1b[31m\njobs", {"authorization": f"Bearer {READER}"})
    door.ask("GET", target)
    door.ask("GET", "/", {"host": "evil.example"})
    told = lines(audit_log)
    assert [(line["method"], line["status"]) for line in told] == [
        ("GET", 200),
        ("POST", 200),
        ("POST", 403),
        ("GET", 401),
        ("GET", 421),
    ]
    assert told[0]["reason"] == "signed in" and told[1]["caller"].startswith("full-")
    assert told[1]["path"] == "/v1/jobs" and told[2]["caller"].startswith("read-only-")
    text = audit_log.read_text()
    secrets = (TOKEN, READER, target.partition("=")[2], cookie.partition("=")[2], "query", "body of")
    assert not any(secret in text for secret in secrets)
    assert text.count("\n") == 5, "a line stays one line"
    assert audit_log.stat().st_mode & 0o077 == 0


def test_failures_above_the_limit_do_not_fill_the_audit_log(door, audit_log):
    for _ in range(100):
        door.ask("GET", "/", {"authorization": "Bearer wrong"})
        door.ask("GET", "/")
    assert len(lines(audit_log)) == BURST


@pytest.mark.parametrize(
    ("method", "target", "headers", "body"),
    [
        pytest.param("GET", "/login?once=wrong", {}, b"", id="used links"),
        pytest.param("POST", "/login", {"origin": OWN}, b"token=wrong", id="typed tokens"),
        pytest.param("POST", "/login", {"origin": "https://evil.example"}, b"", id="pages of other sites"),
        pytest.param("GET", "/", {"host": "evil.example"}, b"", id="other hosts"),
        pytest.param("POST", "/login", {"origin": OWN}, b"x" * 100_000, id="large forms"),
    ],
)
def test_a_flood_of_an_unknown_caller_does_not_fill_the_audit_log(door, audit_log, method, target, headers, body):
    for _ in range(100):
        assert door.ask(method, target, headers, body).status >= 400
    assert len(lines(audit_log)) == BURST


def test_a_websocket_is_closed(door):
    sent = []

    async def talk():
        async def send(message):
            sent.append(message)

        await door.app({"type": "websocket", "headers": [], "path": "/"}, None, send)

    asyncio.run(talk())
    assert sent == [{"type": "websocket.close", "code": 1008}] and door.seen == []


def test_a_short_token_is_refused_without_being_repeated():
    for token in ("hunter2", "t" * 31, "with blank " * 5):
        with pytest.raises(UsageError) as caught:
            TokenBook(token)
        assert token not in str(caught.value)
    assert TokenBook("").owner() is None
