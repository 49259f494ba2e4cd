"""Reports opened in a real Chromium without a window."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from autotune.cli.main import main
from autotune.report.html import page

from ..unit.report.stories import hostile_story, view
from ..unit.study.whole_search import folder

__all__ = ["folder"]
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
BROWSER = next(filter(None, map(shutil.which, BROWSERS)), None)
pytestmark = [pytest.mark.slow, pytest.mark.skipif(BROWSER is None, reason="there is no Chromium on this machine")]
GROUND = {"light": (255, 255, 255), "dark": (20, 23, 27)}
EDGE = 8
"""Pixels at the right that nothing may reach: the page has a margin of 16."""


@pytest.fixture
def browse(tmp_path):
    """Opens a file, with further switches of the browser; what it writes to standard output."""

    def run(path, *switches, scheme="light"):
        command = [
            BROWSER,
            "--headless=new",
            "--disable-gpu",
            "--hide-scrollbars",
            f"--user-data-dir={tmp_path / 'profile'}",
            f"--blink-settings=preferredColorScheme={'01'[scheme == 'light']}",
            *(["--no-sandbox"] if os.geteuid() == 0 else []),
            *switches,
            path.as_uri(),
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.fixture
def searched(folder, tmp_path, monkeypatch):
    """The report of a study that was really searched, if only over a callable."""
    folder.search(max_trials=10)
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "report.html"
    assert main(["report", "train", "--storage", str(folder.database), "--out", str(path)]) == 0
    return path


def test_optunas_own_figures_are_drawn_and_no_other_script_runs(searched, folder, browse, tmp_path):
    pytest.importorskip("plotly", reason="plotly comes with the extra `report`")
    path = tmp_path / "interactive.html"
    words = ["report", "train", "--interactive", "--storage", str(folder.database), "--out", str(path)]
    assert main(words) == 0
    injected = "<script>document.title='owned'</script>"
    path.write_text(path.read_text(encoding="utf-8").replace("<h1>", injected + "<h1>"), encoding="utf-8")
    dom = browse(path, "--virtual-time-budget=10000", "--dump-dom")
    assert injected in dom and "<title>owned" not in dom
    titles = ("Settings side by side", "Timeline")
    assert all(f"<h3>{title}</h3>" in dom for title in titles)
    assert dom.count("js-plotly-plot") >= 3, "plotly has drawn them"


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("light", 400), ("dark", 1280)])
def test_a_report_is_drawn_within_the_page_in_light_and_dark_wide_and_narrow(searched, browse, tmp_path, scheme, width):
    image = pytest.importorskip("PIL.Image", reason="Pillow reads the screenshot")
    shot = tmp_path / "shot.png"
    browse(searched, f"--window-size={width},3000", f"--screenshot={shot}", scheme=scheme)
    with image.open(shot) as opened:
        picture = opened.convert("RGB")
    assert picture.size == (width, 3000)
    colors = {color for _, color in picture.getcolors(maxcolors=1 << 24)}
    assert GROUND[scheme] in colors and len(colors) > 50
    edge = picture.crop((width - EDGE, 0, width, 3000)).getcolors()
    assert edge == [(EDGE * 3000, GROUND[scheme])], "something is wider than the page"


def test_a_browser_finds_the_pictures_of_a_report(searched, browse):
    dom = browse(searched, "--dump-dom")
    assert dom.count("<figure>") >= 5 and dom.count("<svg ") >= 5
    assert "as many samples per second as yours" in dom


def test_a_hostile_study_runs_nothing_in_a_browser(browse, tmp_path):
    path = tmp_path / "hostile.html"
    owned = "document.title='owned'"
    path.write_text(page(hostile_story()).replace("own()", owned), encoding="utf-8")
    dom = browse(path, "--dump-dom")
    assert owned in dom, "it is there, as text"
    assert "<title>owned" not in dom and "<script" not in dom and "<img" not in dom


def test_a_browser_would_not_run_what_got_through_either(browse, tmp_path):
    path = tmp_path / "through.html"
    injected = "<script>document.title='owned'</script><img src='missing.png' onerror=\"document.title='owned'\">"
    path.write_text(page(view()).replace("<h1>", injected + "<h1>"), encoding="utf-8")
    assert "<title>owned" not in browse(path, "--dump-dom"), "the page's policy forbids scripts"
    path.write_text(path.read_text().replace("http-equiv", "data-was"), encoding="utf-8")
    assert "<title>owned" in browse(path, "--dump-dom"), "without the policy it would have run"
