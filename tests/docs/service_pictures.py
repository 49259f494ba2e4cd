"""The pictures of docs/service.md: `make service-pictures`, of a real search of studies/jpeg_cnn in a real Chromium.

python -m tests.docs.service_pictures [--time 10m] [--trials 6]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from PIL import Image

from tests.service.browser import browser, missing, whole_page
from tests.service.walk import Visitor, started_service, wait

DOCS = Path(__file__).parents[2] / "docs"
COLORS = 64
MIN_TRIALS = 3
"""Trials on the picture of a running search."""


def picture(driver, name: str) -> None:
    """Writes docs/service-NAME.png, of the whole page and with few colors."""
    path = DOCS / f"service-{name}.png"
    whole_page(driver, path)
    Image.open(path).convert("RGB").quantize(COLORS).save(path, optimize=True)


def walk(folder: Path, url: str, asked: argparse.Namespace) -> None:
    with browser(folder) as driver:
        visitor = Visitor(driver)
        visitor.sign_in(url)
        visitor.press("Start the first search")
        visitor.fill(script="train.py", o_study="photos", o_time=asked.time, o_trials=str(asked.trials))
        picture(driver, "submit")
        visitor.watch_first_trial()
        trials = "return document.querySelectorAll('#trials tbody tr').length"
        wait(lambda: driver.execute_script(trials) >= MIN_TRIALS, 600, "some trials are drawn")
        wait(lambda: driver.find_elements("css selector", "#gauges meter"), 120, "gauges come")
        picture(driver, "live")
        visitor.stop_and_resume()
        visitor.until_done(900)
        assert "num_workers" in visitor.downloaded_config(folder)
        job = driver.current_url
        visitor.press("New search")
        visitor.fill(script="train.py", o_study="photos-again", o_time="3m", o_trials="2")
        visitor.press("Start the search")
        wait(lambda: visitor.status() == "running", 60, "the worker begins")
        driver.get(job.partition("/jobs/")[0])
        picture(driver, "queue")
        metrics = {"width": 400, "height": 820, "deviceScaleFactor": 2, "mobile": True}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        driver.get(job)
        driver.save_screenshot(str(DOCS / "service-phone.png"))
        phone = Image.open(DOCS / "service-phone.png").convert("RGB")
        phone.quantize(COLORS).save(DOCS / "service-phone.png", optimize=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--time", default="10m")
    parser.add_argument("--trials", type=int, default=6)
    asked = parser.parse_args()
    if reason := missing():
        print(reason, file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder, started_service(Path(folder)) as url:
        walk(Path(folder), url, asked)
    return 0


if __name__ == "__main__":
    sys.exit(main())
