"""A newcomer on the pages of a real server, in a real browser: for the test and for the pictures of docs/."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

STUDY = Path(__file__).parents[2] / "studies" / "jpeg_cnn"


def wait(condition, seconds, what):
    """The first true answer of the condition."""
    until = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < until, f"in {seconds} s it did not come to pass that {what}"
        time.sleep(0.5)
    return found


@contextmanager
def started_service(folder: Path, *words: str) -> Iterator[str]:
    """The URL printed by `autotune serve --project studies/jpeg_cnn`; the server must end by SIGTERM without a word."""
    log = folder / "serve.log"
    command = [sys.executable, "-m", "autotune", "serve", f"--project={STUDY}", "--port=0", *words]
    command += [f"--storage={folder / 'service.db'}", f"--token-file={folder / 'token'}"]
    with log.open("wb") as stream:
        process = subprocess.Popen(command, stdout=stream, stderr=stream, cwd=folder, start_new_session=True)
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


class Visitor:
    """Somebody before the browser.

    Args:
        driver: The browser.
    """

    def __init__(self, driver):
        self.driver = driver

    def sign_in(self, url):
        """Opens the printed URL, which leads to the queue and leaves no secret behind."""
        self.driver.get(url)
        wait(lambda: self.driver.title == "Queue - autotune", 20, "the link signs the browser in")
        assert "once" not in self.driver.current_url and self.driver.execute_script("return document.cookie") == ""

    def press(self, words):
        """Presses a button or a link; found and pressed in one step, since the page may change in between."""
        assert self.driver.execute_script(
            "const found = [...document.querySelectorAll('button, a')].find(e => e.innerText === arguments[0]);"
            "if (found) found.click(); return Boolean(found)",
            words,
        ), f"there is no button {words!r}: {self.driver.page_source}"

    def status(self):
        """The state of the job on the page."""
        return self.driver.execute_script("return document.querySelector('#state .badge')?.innerText")

    def fill(self, **values):
        """Fills in the form of a new search; options have the prefix `o_`."""
        for name, value in values.items():
            self.driver.find_element("id", name.replace("_", "-")).send_keys(value)

    def watch_first_trial(self):
        """Sends the form, and follows the page without loading it again until a trial is drawn."""
        self.press("Start the search")
        wait(lambda: "/jobs/" in self.driver.current_url, 20, "the live page opens")
        self.driver.execute_script("window.notLoadedAgain = true")
        wait(lambda: self.status() == "running", 60, "the worker begins")
        wait(lambda: self.driver.find_elements("css selector", "#gauges meter"), 120, "gauges come")
        wait(lambda: self.driver.find_elements("css selector", "#trials svg"), 240, "the first trial is drawn")
        assert self.driver.execute_script("return window.notLoadedAgain"), "the page follows without being loaded again"

    def stop_and_resume(self):
        """Stops the search after its trial, and resumes it if it has not ended by then."""
        self.press("Stop")
        wait(lambda: self.status() in ("stopped", "done"), 180, "the search stops after its trial")
        if self.status() == "stopped":
            self.press("Resume")

    def until_done(self, seconds):
        """Waits for the end of the search."""
        wait(lambda: self.status() == "done", seconds, "the search ends")

    def downloaded_config(self, folder):
        """The text of the tuned config, saved by the browser into the folder."""
        self.press("Download the config")
        return wait(lambda: next(folder.glob("autotune*.yaml"), None), 30, "the config is saved").read_text()
