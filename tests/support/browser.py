"""A Chromium that a test drives; scripts/browser sets it up."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
CHROMEDRIVER = shutil.which("chromedriver")
NEEDS_CHROMIUM = [
    pytest.mark.slow,
    pytest.mark.skipif(not (CHROMIUM and CHROMEDRIVER), reason="needs chromium and chromedriver"),
]

ARGUMENTS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
]


@contextmanager
def chromium(folder: Path) -> Iterator[Chrome]:
    """A browser whose profile is in `folder`, and whose console messages can be read."""
    options = ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for argument in [*ARGUMENTS, f"--user-data-dir={folder / 'profile'}"]:
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = Chrome(options=options, service=Service(executable_path=CHROMEDRIVER))
    try:
        # Or elements of a new page, which is not focused yet, get no focus events.
        driver.execute_cdp_cmd("Emulation.setFocusEmulationEnabled", {"enabled": True})
        yield driver
    finally:
        driver.quit()
