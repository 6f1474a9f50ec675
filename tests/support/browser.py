"""A Chromium that a test drives; scripts/browser sets it up.

Screenshots go to the folder $TFM_ARTEFACTS if that is set.
"""

import base64
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver import ActionChains, Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By

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
DARK = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
COLOURS = "const s = getComputedStyle(document.body); return [s.backgroundColor, s.color]"
COPIED = """
window.copied = [];
Object.defineProperty(navigator, 'clipboard', {value: {writeText: async (text) => { copied.push(text); }}})
"""  # a clipboard whose texts a test can read
_BREAKING_THE_POLICY = """
const done = arguments[0], blocked = [];
addEventListener('securitypolicyviolation', e => blocked.push(e.effectiveDirective));
const script = document.createElement('script'); script.textContent = 'window.broken = 1';
document.body.append(script);
fetch('http://127.0.0.1:9/').catch(() => setTimeout(() => done([blocked, window.broken ?? 0]), 50));
"""
_GEOMETRY = """
const seen = [...document.querySelectorAll("TEXTS")]
    .filter((node) => node.checkVisibility() && node.getBoundingClientRect().width > NARROWEST && !(LEFT_OUT));
const boxes = seen.map((node) => node.getBoundingClientRect());
const faults = [], edge = document.documentElement.clientWidth;
const describe = (node) => `${node.className || node.id || node.tagName} "${node.textContent.slice(0, 40)}"`;
boxes.forEach((a, i) => {
    const node = seen[i];
    if (!(SCROLLS) && (a.left < -0.5 || a.right > edge + 0.5)) faults.push(`${describe(node)} leaves the page`);
    ALSO
    for (let j = 0; j < i; j++) {
        const b = boxes[j];
        if (node.contains(seen[j]) || seen[j].contains(node)) continue;
        const width = Math.min(a.right, b.right) - Math.max(a.left, b.left);
        const height = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
        if (width > WIDTH && height > HEIGHT) faults.push(`${describe(node)} lies over ${describe(seen[j])}`);
    }
});
if (document.documentElement.scrollWidth > innerWidth) faults.push("the page is wider than its window");
return {faults, count: seen.length};
"""


def geometry(
    texts: str,
    *,
    left_out: str = "false",
    scrolls: str = "false",
    also: str = "",
    overlap: tuple[float, float] = (1, 3),
    narrowest: float = 1,
) -> str:
    """A script that finds `texts` (a selector) that reach over the edge of the page or lie over other text.

    `left_out` and `scrolls` are conditions on a `node`; `also` is a statement on a `node` and its box `a`. Nodes that
    are not wider than `narrowest` pixels are passed over.
    """
    values = {"TEXTS": texts, "LEFT_OUT": left_out, "SCROLLS": scrolls, "ALSO": also, "NARROWEST": narrowest}
    script = _GEOMETRY
    for name, value in {**values, "WIDTH": overlap[0], "HEIGHT": overlap[1]}.items():
        script = script.replace(name, str(value))
    return script


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


class Reader:
    """Uses a page with mouse and keyboard. The names of its screenshots begin with `page`."""

    page = ""

    def __init__(self, driver: Chrome, folder: Path) -> None:
        self.driver, self.folder = driver, folder

    def show(self, html: str, fragment: str = "") -> None:
        path = self.folder / "page.html"
        path.write_text(html, encoding="utf-8")
        self.driver.get(path.as_uri() + fragment)

    def resize(self, width: int, *, height: int = 1000, mobile: bool = False) -> None:
        screen = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)

    def media(self, **settings: object) -> None:
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": [], **settings})

    def one(self, selector: str) -> Any:
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector: str) -> list[Any]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def run(self, script: str, *arguments: object) -> Any:
        return self.driver.execute_script(script, *arguments)

    def press(self, *keys: str) -> None:
        for key in keys:
            ActionChains(self.driver).send_keys(key).perform()

    def messages(self) -> list[Any]:
        """The messages on the console since the last call."""
        return list(self.driver.get_log("browser"))

    def loaded(self) -> list[str]:
        """The addresses of all that the page has loaded."""
        return list(self.run("return performance.getEntriesByType('resource').map(e => e.name)"))

    def pdf(self) -> bytes:
        return base64.b64decode(self.driver.execute_cdp_cmd("Page.printToPDF", {})["data"])

    def screenshot(self, name: str) -> None:
        """Take a picture of the whole page, also of what lies below the window."""
        folder = Path(os.environ.get("TFM_ARTEFACTS", self.folder))
        folder.mkdir(parents=True, exist_ok=True)
        picture = self.driver.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True})["data"]
        (folder / f"{self.page}-{name}.png").write_bytes(base64.b64decode(picture))

    def refuses_scripts_and_the_network(self) -> None:
        assert self.driver.execute_async_script(_BREAKING_THE_POLICY) == [["script-src-elem", "connect-src"], 0]
        self.messages()  # of the blocked requests


def reader_fixture(kind: type[Reader]) -> Any:
    """A fixture of a module, the reader of its page."""

    @pytest.fixture(scope="module", name="reader")
    def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
        folder = tmp_path_factory.mktemp("browser")
        with chromium(folder) as driver:
            yield kind(driver, folder)

    return opened
