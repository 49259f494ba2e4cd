"""A newcomer's first search in a real Chromium, and the pages without script, in the dark and on a phone."""

from __future__ import annotations

import pytest

pytest.importorskip("fastapi", reason="the service comes with the extra `service`")

from .browser import browser, missing
from .served import served
from .test_pages import HOSTILE
from .told import PROGRESS, RUNNING, SEARCH
from .walk import Visitor, started_service, wait

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(missing()), reason=missing())]


def test_a_newcomer_submits_watches_stops_resumes_and_takes_the_config(tmp_path):
    with started_service(tmp_path) as url, browser(tmp_path) as driver:
        visitor = Visitor(driver)
        visitor.sign_in(url)
        visitor.press("Start the first search")
        scripts = driver.find_elements("css selector", "#scripts option")
        assert [script.get_attribute("value") for script in scripts] == ["train.py"]
        visitor.fill(script="train.py", o_study="first", o_time="8m", o_trials="3")
        visitor.watch_first_trial()
        visitor.stop_and_resume()
        visitor.until_done(600)
        assert "num_workers" in visitor.downloaded_config(tmp_path)
        visitor.press("Report")
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
