"""A real Chromium without a window, driven by chromedriver."""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def missing() -> str:
    """The reason against a browser on this machine; empty for none."""
    if next(filter(None, map(shutil.which, BROWSERS)), None) is None:
        return "there is no Chromium on this machine"
    if shutil.which("chromedriver") is None:
        return "there is no chromedriver on this machine"
    try:
        import selenium  # noqa: F401
    except ImportError:
        return "selenium comes with the extra `browser`, which `make test-all` installs"
    return ""


@contextmanager
def browser(folder, *, size=(1280, 900), dark=False, script=True):
    """A browser with a profile and downloads in the folder."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = next(filter(None, map(shutil.which, BROWSERS)))
    width, height = size
    for switch in ("--headless=new", "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage"):
        options.add_argument(switch)
    options.add_argument(f"--window-size={width},{height}")
    options.add_argument(f"--user-data-dir={folder / 'profile'}")
    if os.geteuid() == 0:
        options.add_argument("--no-sandbox")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    settings = {"download.default_directory": str(folder), "download.prompt_for_download": False}
    if not script:
        settings["profile.managed_default_content_settings.javascript"] = 2
    options.add_experimental_option("prefs", settings)
    service = webdriver.ChromeService(executable_path=shutil.which("chromedriver"))
    driver = webdriver.Chrome(options=options, service=service)
    try:
        driver.set_page_load_timeout(60)
        driver.execute_cdp_cmd(
            "Emulation.setEmulatedMedia",
            {"features": [{"name": "prefers-color-scheme", "value": ("light", "dark")[dark]}]},
        )
        if width < 600:
            metrics = {"width": width, "height": height, "deviceScaleFactor": 2, "mobile": True}
            driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        yield driver
    finally:
        driver.quit()


def whole_page(driver, path):
    """A picture of the whole page, beyond the window."""
    import base64

    size = driver.execute_cdp_cmd("Page.getLayoutMetrics", {})["cssContentSize"]
    clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
    taken = driver.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip})
    path.write_bytes(base64.b64decode(taken["data"]))
