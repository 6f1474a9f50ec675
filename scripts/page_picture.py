"""Screenshot of the page that `tfm attention` writes, for the README: docs/pictures/attention-page.png.

python scripts/page_picture.py CHECKPOINT [LAYER [PICTURE]]

Shows encoder self-attention of one layer (counted from 1), words merged, with the pronoun selected. Needs Chromium and
chromedriver, which scripts/browser installs.
"""

import base64
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service

ROOT = Path(__file__).resolve().parent.parent
SENTENCE = "She sat down in the chair, it was very comfortable."
PRONOUN = "it"
WIDTH = 1000  # pixels of the window
SELECT = """
const [layer, pronoun] = arguments;
document.querySelector("[name=merged]").click();
document.querySelector(`[name=layer][value="${layer}"]`).click();
const tokens = [...document.querySelectorAll("#left button")];
tokens.find((token) => token.querySelector(".label").textContent === pronoun).click();
"""


def main(checkpoint: str, layer: str = "1", picture: str = str(ROOT / "docs/pictures/attention-page.png")) -> None:
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder, "attention.html")
        tfm = Path(sys.executable).with_name("tfm")
        subprocess.run([tfm, "attention", SENTENCE, "--checkpoint", checkpoint, "--output", str(page)], check=True)
        options = ChromeOptions()
        options.binary_location = str(shutil.which("chromium") or shutil.which("google-chrome"))
        for argument in ("--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}/profile"):
            options.add_argument(argument)
        driver = Chrome(options=options, service=Service(executable_path=shutil.which("chromedriver")))
        try:
            driver.set_window_size(WIDTH, 900)
            driver.get(page.as_uri())
            driver.execute_script(SELECT, int(layer) - 1, PRONOUN)
            bottom = driver.execute_script("return document.querySelector('#detail').getBoundingClientRect().bottom")
            clip = {"x": 0, "y": 0, "width": WIDTH, "height": bottom + 24, "scale": 1}
            data = driver.execute_cdp_cmd("Page.captureScreenshot", {"clip": clip})["data"]
        finally:
            driver.quit()
    Path(picture).write_bytes(base64.b64decode(data))


if __name__ == "__main__":
    main(*sys.argv[1:])
