"""The pages of a real server, as text."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

pytest.importorskip("fastapi", reason="the service comes with the extra `service`")

from autotune.service.pages.submit_page import FIRST
from autotune.study_file.search_options import IN_JOB

from ..unit.study.whole_search import folder
from .served import READER, done, served
from .told import PROGRESS, RUNNING, SEARCH

__all__ = ["folder"]

HOSTILE = "</script><script>own()</script><img src=x onerror='own()'>\"'"
VOID = {"meta", "link", "input", "br", "img", "circle", "path", "line", "rect", "polyline", "polygon", "option"}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with served(tmp_path_factory.mktemp("served")) as running:
        yield running


class Page(HTMLParser):
    """What a page holds: tags with attributes, and whether every element is closed."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.open, self.problems = [], [], []
        self.feed(text)
        self.problems += self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag in VOID:
            return
        if not self.open or self.open.pop() != tag:
            self.problems.append(f"/{tag}")

    def all(self, tag):
        return [attrs for name, attrs in self.tags if name == tag]


def page(answer):
    assert answer.status in (200, 404, 409, 422), answer.text
    found = Page(answer.text)
    assert found.problems == []
    assert all(attrs.get("src", "/assets/").startswith("/assets/") for attrs in found.all("script"))
    assert not [attrs for _, attrs in found.tags if any(name.startswith("on") or name == "style" for name in attrs)]
    return found


def test_every_page_is_whole_html_without_inline_code(server):
    server.submit(options={"study": "whole"})
    for target in (
        "/",
        "/?status=queued",
        "/?status=nonsense",
        "/studies",
        "/compare",
        "/workers",
        "/submit",
        "/login",
    ):
        found = page(server.get(target))
        assert len(found.all("h1")) == 1 and found.all("main")


def test_a_queue_shows_its_jobs_by_state_and_page(server):
    names = [f"many-{number}" for number in range(55)]
    for name in names:
        server.submit(options={"study": name})
    first = server.get("/?status=queued")
    assert "many-54" in first.text and "many-0<" not in first.text
    older = re.search(r'href="(/\?[^"]*before=[^"]*)"', first.text)[1].replace("&amp;", "&")
    assert "many-0<" in server.get(older).text
    assert "many-54" not in server.get("/?status=done").text


@pytest.fixture
def fresh(tmp_path):
    with served(tmp_path) as running:
        yield running


def test_a_running_search_shows_trials_gauges_and_controls(fresh):
    job = fresh.submit(options={"study": "live"})
    fresh.work([*SEARCH, RUNNING], progress=PROGRESS)
    text = fresh.get(f"/jobs/{job}").text
    assert "1.86x" in text and "num_workers=4" in text and "Measuring trial 5." in text
    assert "<meter" in text and "25%" in text and "4.0 GiB" in text
    assert "RuntimeError: no" in text and "<svg" in text
    assert {f"/jobs/{job}/{way}" for way in ("pause", "stop", "cancel")} <= actions(text)
    assert 'http-equiv="refresh"' in text, "without script the page loads itself again"
    page(fresh.get(f"/jobs/{job}"))


def actions(text):
    return set(re.findall(r'action="([^"]+)"', text))


def test_a_finished_search_gives_its_config(fresh):
    job = fresh.submit(options={"study": "finished"})
    assert fresh.get(f"/jobs/{job}/config").status == 404
    fresh.work(SEARCH, end=done())
    text = fresh.get(f"/jobs/{job}").text
    assert "1.86x" in text and "[1.41, 2.46]" in text and "/resume" not in text
    answer = fresh.get(f"/jobs/{job}/config")
    assert answer.text == "schema: 1\n" and "attachment" in answer.headers["content-disposition"]


def test_an_ended_search_without_a_gain_says_so_and_promises_nothing(fresh):
    job = fresh.submit(options={"study": "short"})
    fresh.work(SEARCH, end=done(speedup=None, status="too_short"))
    text = fresh.get(f"/jobs/{job}").text
    assert "The search was too short to tell whether other settings are faster" in text
    assert "not confirmed by finals" in text and "the finals decide" not in text
    assert "too short" in fresh.get("/").text


def test_a_cancelled_job_is_not_offered_to_be_resumed(fresh):
    job = fresh.submit(options={"study": "cancelled"})
    fresh.ask("POST", f"/v1/jobs/{job}:cancel")
    assert f"/jobs/{job}/resume" not in actions(fresh.get(f"/jobs/{job}").text)


def test_parts_of_a_page_come_as_they_change_until_the_end(fresh):
    job = fresh.submit(options={"study": "parts"})
    fresh.work(SEARCH, end=done())
    text = fresh.get(f"/jobs/{job}/parts").text
    names = re.findall(r"^event: (\w+)$", text, re.M)
    assert names == ["state", "gauges", "trials", "end"]
    assert "num_workers=4" in text and "<html" not in text


def test_buttons_change_jobs_and_workers(fresh):
    job = fresh.submit(options={"study": "buttons"})
    browser = fresh.browser()

    def press(target):
        answer = fresh.ask("POST", target, token=None, headers=browser)
        assert answer.status == 303, answer.text
        return answer.headers["location"]

    assert press(f"/jobs/{job}/pause") == f"/jobs/{job}"
    assert fresh.get(f"/v1/jobs/{job}").json["status"] == "paused"
    press(f"/jobs/{job}/resume")
    assert fresh.get(f"/v1/jobs/{job}").json["status"] == "queued"
    fresh.work(SEARCH)
    assert press("/workers/node-1/drain") == "/workers"
    assert "/workers/node-1/enable" in actions(fresh.get("/workers").text)
    press("/workers/node-1/enable")
    assert "64.0 GiB" in fresh.get("/workers").text
    missing = fresh.ask("POST", f"/jobs/{job}/destroy", token=None, headers=browser)
    assert missing.status == 404 and "pause, resume, stop, cancel" in missing.text


def test_the_form_has_a_control_with_help_for_every_option_of_a_job(server):
    found = page(server.get("/submit"))
    names = {attrs.get("name") for tag in ("input", "select", "textarea") for attrs in found.all(tag)}
    assert {option.name for option in IN_JOB} <= names and set(FIRST) <= names
    described = {attrs["aria-describedby"] for _, attrs in found.tags if "aria-describedby" in attrs}
    assert described <= {attrs.get("id") for attrs in found.all("p")}
    assert not names & {"command", "module", "storage", "out", "writable", "unprotected"}


def send(server, **fields):
    from urllib.parse import urlencode

    headers = {**server.browser(), "Content-Type": "application/x-www-form-urlencoded"}
    return server.ask("POST", "/submit", urlencode(fields), token=None, headers=headers)


def test_a_sent_form_becomes_one_job_however_often_it_is_sent(fresh):
    fields = {
        "key": "k1",
        "project": "demo",
        "script": "train.py",
        "args": "--name 'two words' --epochs 5",
        "study": "form",
        "time": "90s",
        "trials": "4",
        "set": "num_workers=0..4\nprecision=fp32,bf16",
        "share_gpu": "true",
        "machines": "2",
    }
    answers = [send(fresh, **fields) for _ in range(2)]
    assert [answer.status for answer in answers] == [303, 303]
    assert answers[0].headers["location"] == answers[1].headers["location"]
    job = fresh.get("/v1" + answers[0].headers["location"]).json
    assert job["args"] == ["--name", "two words", "--epochs", "5"] and job["machines"] == 2
    options = job["options"]
    assert options["time"] == 90.0 and options["trials"] == 4 and options["share_gpu"] is True
    assert options["set"] == {"num_workers": "0..4", "precision": "fp32,bf16"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"trials": "many"}, "trials"),
        ({"time": "soon"}, "time"),
        ({"set": "num_workers"}, "KEY=VALUE"),
        ({"args": "'open"}, "quote"),
        ({"machines": "x"}, "machines"),
        ({"script": ""}, "script"),
        ({"script": "../other.py"}, "path within"),
        ({"project": "nothing"}, "no project"),
        ({"device": "tpu"}, "tpu"),
    ],
)
def test_a_wrong_field_is_named_and_all_other_fields_are_kept(server, change, words):
    fields = {"key": "k", "project": "demo", "script": "train.py", "study": "kept-name", **change}
    answer = send(server, **fields)
    assert answer.status == 422 and words in answer.text and "kept-name" in answer.text
    page(answer)


def test_names_arguments_and_errors_of_others_stay_text(fresh):
    job = fresh.submit(options={"study": f"s {HOSTILE}"}, args=[HOSTILE])
    crash = {"event": "trial_finished", "number": 0, "settings": {"knobs": {HOSTILE: HOSTILE}}, "outcome": "crashed"}
    hostile = [{**crash, "reason": HOSTILE, "place": HOSTILE}, {"event": "notice", "message": HOSTILE}]
    fresh.work([*SEARCH, *hostile], end=done(note=HOSTILE))
    for target in ("/", f"/jobs/{job}", f"/jobs/{job}/parts", f"/submit?script={HOSTILE.replace(' ', '%20')}"):
        text = fresh.get(target).text
        assert "<script>own" not in text and "<img" not in text
        if not target.endswith("parts"):
            page(fresh.get(target))


def test_a_read_only_caller_sees_no_controls(fresh):
    job = fresh.submit(options={"study": "seen"})
    for target in ("/", f"/jobs/{job}", "/workers"):
        text = fresh.get(target, token=READER).text
        assert "read-only" in text and not [way for way in actions(text) if way != "/logout"]
    assert fresh.ask("POST", f"/jobs/{job}/stop", token=READER).status == 403


def test_what_is_missing_is_said_on_a_page(server):
    for target in ("/jobs/nothing", "/studies/nothing", "/studies/nothing/report"):
        answer = server.get(target)
        assert answer.status == 404 and "<h1>Not found</h1>" in answer.text
        page(answer)
    compared = server.get("/compare?first=a&second=b")
    assert compared.status == 200 and 'role="alert"' in compared.text


def test_stored_studies_are_listed_reported_and_compared(folder, tmp_path):
    folder.search(max_trials=6)
    folder.search(max_trials=6, study="again & <b>again</b>")
    with served(tmp_path, storage=f"sqlite:///{folder.database}") as running:
        listed = running.get("/studies")
        assert "again &amp; &lt;b&gt;" in listed.text and "train.py" in listed.text
        page(listed)
        (linked,) = set(re.findall(r'href="(/studies/again[^"]*)"', listed.text))
        report = running.get(linked)
        assert report.status == 200 and "All trials" in report.text and "<svg" in report.text
        assert [tag for tag, _ in page(report).tags if tag == "style"] == []
        file = running.get("/studies/train/report")
        assert (
            "attachment" in file.headers["content-disposition"] and "sandbox" in file.headers["content-security-policy"]
        )
        assert file.text.startswith("<!DOCTYPE html>")
        assert running.get("/studies/train/config").status == 404, "no job of the queue has written a config"
        second = linked.removeprefix("/studies/").replace("%20", "+")
        compared = running.get(f"/compare?first=train&second={second}")
        assert "against its baseline" in compared.text
        page(compared)


def test_optunas_dashboard_is_read_and_never_changed(server):
    pytest.importorskip("optuna_dashboard", reason="optuna-dashboard comes with the extra dashboard")
    assert server.get("/optuna").headers["location"] == "/dashboard"
    assert server.get("/api/studies").json["study_summaries"] == []
    script = server.get("/static/bundle.js")
    assert script.status == 200 and "javascript" in script.headers["content-type"]
    assert server.get("/dashboard", token=None).status == 401
    for method, target in (("POST", "/api/studies"), ("DELETE", "/api/studies/1"), ("PUT", "/api/studies/1/note")):
        assert server.ask(method, target, {}).status == 405


def test_without_optunas_dashboard_the_page_says_how_to_install_it(server, monkeypatch):
    monkeypatch.setattr("autotune.service.pages.dashboard_pages.find_spec", lambda name: None)
    for target in ("/optuna", "/dashboard"):
        answer = server.get(target)
        assert answer.status == 404 and "pip install optuna-dashboard" in answer.text
