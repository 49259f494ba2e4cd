"""Figures that run scripts in a page: which scripts may, and that a study's texts stay data."""

from __future__ import annotations

import base64
import hashlib
import json
import sys

import pytest

from autotune.errors import UsageError
from autotune.model.study_view import PlotlyFigure
from autotune.report.html import page
from autotune.report.interactive import DRAW, plotly_script, policy

from .stories import HOSTILE, view
from .test_html import Read

PRETENDED = "const Plotly = {newPlot() {}};"
FIGURE = PlotlyFigure(title=HOSTILE, values={"data": [{"text": HOSTILE}], "layout": {"title": HOSTILE}})


def test_only_the_scripts_of_the_page_may_run():
    read = Read(page(view(figures=(FIGURE,)), (PRETENDED, DRAW)))
    (allowed,) = [value for _, _, value in read.attributes if value.startswith("default-src 'none'")]
    for script in (PRETENDED, DRAW):
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in allowed
    scripts = allowed.split("script-src")[1].split(";")[0]
    assert "unsafe" not in scripts and "data:" not in scripts and "http" not in scripts


def test_what_a_study_brings_along_is_data_that_ends_no_element():
    read = Read(page(view(figures=(FIGURE, FIGURE)), (PRETENDED, DRAW)))
    assert read.open == [] and read.tags.count("script") == 4 and "img" not in read.tags
    data = [text for text in read.texts["script"] if text.startswith("{")]
    assert [json.loads(text)["layout"]["title"] for text in data] == [HOSTILE, HOSTILE]


def test_a_page_without_figures_has_no_scripts():
    assert "script" not in Read(page(view(), (PRETENDED, DRAW))).tags
    assert "script" not in Read(page(view(figures=(FIGURE,)))).tags


def test_a_policy_is_for_the_text_as_it_is():
    assert policy(["a"]) != policy(["a "])


def test_without_plotly_its_installation_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "plotly", None)
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    with pytest.raises(UsageError, match="plotly, which is not installed") as caught:
        plotly_script()
    assert "pip install plotly" in caught.value.hint
