"""The page of a study: what is on it, and what cannot get onto it."""

from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser

import pytest

from autotune.report.html import MARK, page
from autotune.report.markdown import markdown

from .stories import HOSTILE, TRIALS, hostile_story, view

VOID = {"meta", "br", "img", "link", "input", "hr"}


class Read(HTMLParser):
    """The elements of a page and the text of each, as a browser would see them."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.texts, self.open = [], [], {}, []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        for tag in set(self.open):
            self.texts.setdefault(tag, []).append(data)

    def text(self, tag="body"):
        return " ".join(" ".join(self.texts.get(tag, [])).split())


def test_the_page_holds_the_answer_the_figures_and_every_trial():
    read = Read(page(view()))
    assert read.text("h1") == "These settings train 2.41x [2.35, 2.47] as many samples per second as yours."
    body = read.text()
    assert "python train.py --data photos" in body and "compile: no compiler" in body and "2.13.0" in body
    assert "75% of the cap of 16.0 GiB" in body
    assert "trials in 1 min 0 s, 4 over the cap, 3 failed, 2 not run: too large" in body
    assert "What each was worth, by single trials one after the other" in body
    table = read.text("table")
    for words in (
        "too slow It cannot",
        "over the cap",
        "It held 17 GiB.",
        "crashed",
        "It raised.",
        "what it printed last",
    ):
        assert words.split()[0] in table and words.split()[-1] in table
    assert read.tags.count("figure") == 5 + 3, "five pictures, and one for each of three settings that varied"


def test_the_page_needs_nothing_else_and_runs_nothing():
    for told in (view(), hostile_story()):
        text = page(told)
        read = Read(text)
        assert not {"script", "img", "link", "iframe", "object", "a", "base"} & set(read.tags)
        assert not [name for _, name, _ in read.attributes if name.startswith("on") or name in ("src", "href", "style")]
        assert "url(" not in text and "@import" not in read.text("style")
        (policy,) = [value for tag, name, value in read.attributes if tag == "meta" and value.startswith("default-src")]
        assert policy == "default-src 'none'; style-src 'unsafe-inline'"


def test_hostile_names_and_errors_stay_text():
    text = page(hostile_story())
    read = Read(text)
    assert read.open == [], "every element ends where it began"
    assert read.texts["title"][0].startswith("autotune: [31m</title></style><script>own()")
    assert "own()" in read.text() and "\x1b" not in text and "\u202e" not in text
    assert text.encode("utf-8").decode("utf-8") == text
    assert text.index(MARK) < 40


def test_markdown_takes_hostile_texts_for_text_too():
    text = markdown(hostile_story())
    assert "<script" not in text and "<img" not in text and "\n# head" not in text and "\x1b" not in text
    rows = [line for line in text.splitlines() if line.startswith("| 4 |")]
    assert rows[0].replace("\\|", "").count("|") == 11, "no cell of its own"
    assert "](b)" not in text.replace("\\](b)", "")
    text.encode("utf-8")


def test_a_study_without_trials_and_one_that_runs_have_pages_too():
    bare = view(
        trials=(), finals=(), baseline_number=None, best_number=None, before=None, after=None, importances={},
        is_final=False, status="running", is_live=True, facts=None, script_settings=None, memory_cap_bytes=None,
        result=replace(view().result, best=None, baseline=None, speedup=None),
    )  # fmt: skip
    read = Read(page(bare))
    assert "This search has not ended" in read.text("h1") and "searching" in read.text()
    assert "svg" not in read.tags
    assert "This search has not ended" in markdown(bare)
    running = view(is_final=False, status="running", finals=())
    assert "what the finals gave" not in Read(page(running)).text()


def test_another_effective_batch_is_said_where_the_gain_is():
    assert "another batch trains differently" in Read(page(view(effective_batch="free"))).text()
    assert "another batch trains differently" not in Read(page(view())).text()


@pytest.mark.parametrize("trials", [TRIALS[:1], TRIALS[4:], TRIALS[5:]])
def test_few_trials_or_only_failed_ones_are_drawn_as_far_as_they_go(trials):
    told = view(trials=trials, baseline_number=trials[0].number, best_number=None, before=None, after=None)
    assert Read(page(told)).open == []


def test_the_log_of_a_failed_trial_keeps_its_lines():
    assert "a\nb <c>" in "".join(Read(page(view())).texts["pre"])
    assert HOSTILE not in page(hostile_story())
