"""A newcomer's first search in a real Chromium, and the pages without script, in the dark and on a phone."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="the service comes with the extra `service`")

from .browser import browser, missing, whole_page
from .served import served
from .test_pages import HOSTILE
from .told import PROGRESS, RUNNING, SEARCH

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(missing()), reason=missing())]
STUDY = Path(__file__).parents[2] / "studies" / "jpeg_cnn"


def wait(condition, seconds, what):
    until = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < until, f"in {seconds} s it did not come to pass that {what}"
        time.sleep(0.5)
    return found


@pytest.fixture
def started(tmp_path):
    """`autotune serve --project studies/jpeg_cnn` and the printed URL."""
    log = tmp_path / "serve.log"
    words = [sys.executable, "-m", "autotune", "serve", f"--project={STUDY}", "--port=0"]
    words += [f"--storage={tmp_path / 'service.db'}", f"--token-file={tmp_path / 'token'}"]
    with log.open("wb") as stream:
        process = subprocess.Popen(words, stdout=stream, stderr=stream, cwd=tmp_path, start_new_session=True)
    try:
        yield wait(lambda: re.search(r"http://\S+", log.read_text()), 120, "the URL is printed")[0]
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(120)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(30)
    assert process.returncode == 0 and "Traceback" not in log.read_text(), log.read_text()


def test_a_newcomer_submits_watches_stops_resumes_and_takes_the_config(started, tmp_path):
    with browser(tmp_path) as driver:

        def press(words):
            # Found and pressed in one step: the page may change in between.
            assert driver.execute_script(
                "const found = [...document.querySelectorAll('button, a')].find(e => e.innerText === arguments[0]);"
                "if (found) found.click(); return Boolean(found)",
                words,
            ), f"there is no button {words!r}: {driver.page_source}"

        def status():
            return driver.execute_script("return document.querySelector('#state .badge')?.innerText")

        driver.get(started)
        wait(lambda: driver.title == "Queue - autotune", 20, "the link signs the browser in")
        assert "once" not in driver.current_url and driver.execute_script("return document.cookie") == ""
        press("Start the first search")
        assert [one.get_attribute("value") for one in driver.find_elements("css selector", "#scripts option")] == [
            "train.py"
        ]
        for name, value in (("script", "train.py"), ("o-study", "first"), ("o-time", "8m"), ("o-trials", "3")):
            driver.find_element("id", name).send_keys(value)
        press("Start the search")
        wait(lambda: "/jobs/" in driver.current_url, 20, "the live page opens")
        driver.execute_script("window.notLoadedAgain = true")
        wait(lambda: status() == "running", 60, "the worker begins")
        wait(lambda: driver.find_elements("css selector", "#gauges meter"), 120, "gauges come")
        wait(lambda: driver.find_elements("css selector", "#trials svg"), 240, "the first trial is drawn")
        assert driver.execute_script("return window.notLoadedAgain"), "the page follows without being loaded again"
        whole_page(driver, tmp_path / "live.png")
        press("Stop")
        wait(lambda: status() in ("stopped", "done"), 180, "the search stops after its trial")
        if status() == "stopped":
            press("Resume")
            wait(lambda: status() == "done", 600, "the resumed search ends")
        press("Download the config")
        config = wait(lambda: next(tmp_path.glob("autotune*.yaml"), None), 30, "the config is saved")
        assert "num_workers" in config.read_text()
        press("Report")
        wait(lambda: "All trials" in driver.page_source, 30, "the report opens")
        severe = [line["message"] for line in driver.get_log("browser") if line["level"] == "SEVERE"]
        assert severe == []


@pytest.fixture
def seeded(tmp_path):
    with served(tmp_path) as running:
        job = running.submit(options={"study": f"s {HOSTILE}"}, args=[HOSTILE])
        crash = {"event": "trial_finished", "number": 6, "settings": {"knobs": {}}, "outcome": "crashed"}
        running.work([*SEARCH, {**crash, "reason": HOSTILE, "place": HOSTILE}, RUNNING], progress=PROGRESS)
        running.job = job
        yield running


@pytest.mark.parametrize(("size", "dark"), [((1280, 900), False), ((1280, 900), True), ((390, 800), False)])
def test_no_page_is_wider_than_its_window_and_no_foreign_script_runs(seeded, tmp_path, size, dark):
    with browser(tmp_path, size=size, dark=dark) as driver:
        driver.get(seeded.app.state.security.browser_url(seeded.base))
        wait(lambda: driver.title == "Queue - autotune", 20, "the link signs the browser in")
        for target in ("/", f"/jobs/{seeded.job}", "/submit", "/workers", "/studies", "/compare"):
            driver.get(seeded.base + target)
            width = driver.execute_script("return document.documentElement.scrollWidth")
            assert width <= size[0], f"{target} is {width} wide"
            ground = driver.execute_script("return getComputedStyle(document.body).backgroundColor")
            assert ground == ("rgb(20, 23, 27)" if dark else "rgb(255, 255, 255)")
            assert driver.execute_script("return typeof own") == "undefined"
        assert not [line for line in driver.get_log("browser") if "Content Security" in line["message"]]


def test_the_pages_work_without_script(seeded, tmp_path):
    with browser(tmp_path, script=False) as driver:
        driver.get(seeded.app.state.security.browser_url(seeded.base))
        wait(lambda: driver.title == "Queue - autotune", 20, "the link signs the browser in")
        driver.find_element("partial link text", "New search").click()
        driver.find_element("id", "script").send_keys("train.py")
        driver.find_element("id", "o-study").send_keys("by hand")
        driver.find_element("css selector", "button.large").click()
        assert driver.find_element("css selector", "h1").text == "by hand"
        driver.find_element("css selector", "form[action$=pause] button").click()
        assert driver.find_element("css selector", "#state .badge").text == "paused"


def test_the_keyboard_alone_reaches_every_control(seeded, tmp_path):
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    with browser(tmp_path) as driver:
        driver.get(seeded.app.state.security.browser_url(seeded.base))
        wait(lambda: driver.title == "Queue - autotune", 20, "the link signs the browser in")
        driver.get(f"{seeded.base}/jobs/{seeded.job}")
        reached = []
        for _ in range(16):
            ActionChains(driver).send_keys(Keys.TAB).perform()
            reached.append(driver.switch_to.active_element.text or driver.switch_to.active_element.tag_name)
        assert reached[0] == "Skip to the content"
        assert {"Queue", "Workers", "New search", "Sign out", "Pause", "Stop", "Cancel"} <= set(reached)
