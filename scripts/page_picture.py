"""Screenshot of a page that `tfm attention` has written, as the README and the documentation show it.

python scripts/page_picture.py PAGE.html FRAGMENT PICTURE.png

The fragment says what the page opens at, as kind=encoder&layer=1&words=1&token=it (docs/pictures.md). Needs Chromium
and chromedriver, which scripts/browser installs.
"""

import base64
import shutil
import sys
import tempfile
from pathlib import Path

from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service

WIDTH = 1000  # pixels of the window
BOTTOM = "return document.getElementById(arguments[0]).getBoundingClientRect().bottom"


def main(page: str, fragment: str, picture: str) -> None:
    with tempfile.TemporaryDirectory() as profile:
        options = ChromeOptions()
        options.binary_location = str(shutil.which("chromium") or shutil.which("google-chrome"))
        for argument in ("--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}"):
            options.add_argument(argument)
        driver = Chrome(options=options, service=Service(executable_path=shutil.which("chromedriver")))
        try:
            driver.set_window_size(WIDTH, 900)
            driver.get(f"{Path(page).resolve().as_uri()}#{fragment}")
            bottom = max(driver.execute_script(BOTTOM, name) for name in ("detail", "stage"))
            clip = {"x": 0, "y": 0, "width": WIDTH, "height": bottom + 24, "scale": 1}
            shot = {"clip": clip, "captureBeyondViewport": True}
            data = driver.execute_cdp_cmd("Page.captureScreenshot", shot)["data"]
        finally:
            driver.quit()
    Path(picture).write_bytes(base64.b64decode(data))


if __name__ == "__main__":
    main(*sys.argv[1:])
