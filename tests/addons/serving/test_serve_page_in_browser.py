"""The web page of `tfm serve` in a real browser, against a stand-in of the server that needs no model.

Needs Chromium and its chromedriver, which scripts/browser sets up. Accessibility is checked with axe-core where
$AXE_CORE is the path of its axe.min.js (`npm install axe-core`).
"""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver import ActionChains, Keys
from selenium.webdriver.support.ui import WebDriverWait

from tests.addons.serving.stand_in_server import Answer, StandIn, serving
from tests.support import browser
from tests.support.browser import COLOURS, COPIED, DARK, NEEDS_CHROMIUM, geometry, reader_fixture

pytestmark = NEEDS_CHROMIUM

HOSTILE = (
    "</textarea></script><script>window.broken=1</script> & <b>b</b> <img src=x onerror=broken=1> مرحبا 👩‍👩‍👧‍👦 $x"
)
LONG_WORD = "Rindfleischetikettierungsueberwachung" * 4
FAILED_REQUEST = "Failed to load resource"  # the browser's own message of each answer that is no 200

# Text that reaches over the edge of the page, or lies over other text.
GEOMETRY = geometry("h1, h2, h3, legend, label, select, button, summary, .small, .line p, .flags li, .problem p, #text")


class Reader(browser.Reader):
    page = "serve"

    def open(self, server: StandIn, *, width: int = 1280) -> None:
        self.resize(width, height=900, mobile=width < 500)
        self.messages()
        self.driver.get(server.url)
        self.wait(
            lambda: self.run("return document.querySelector('#target').options.length") > 0 or self.shows("#key-form")
        )

    def choose(self, select: str, value: str) -> None:
        script = "const s = document.getElementById(arguments[0]); s.value = arguments[1];"
        self.run(f"{script} s.dispatchEvent(new Event('change'))", select, value)

    def begin(self, server: StandIn, text: str) -> None:
        """Open the page, type `text`, and wait for its translation."""
        self.open(server)
        self.write(text)
        self.wait_for(text.upper())

    def add_term(self, *keys: str) -> None:
        self.one("summary").click()
        self.one("#add-term").click()
        self.press(*keys)

    def wait(self, condition: Callable[[], object], seconds: float = 8) -> Any:
        return WebDriverWait(self.driver, seconds, poll_frequency=0.03).until(lambda _: condition())

    def shows(self, selector: str) -> bool:
        return bool(self.run("return document.querySelector(arguments[0])?.checkVisibility() ?? false", selector))

    def texts(self, selector: str) -> list[str]:
        found = self.run("return [...document.querySelectorAll(arguments[0])].map(e => e.textContent)", selector)
        return [str(text) for text in found]

    def write(self, text: str) -> None:
        """Pastes `text` where the cursor of the source text is."""
        self.one("#text").click()
        self.driver.execute_cdp_cmd("Input.insertText", {"text": text})

    def translation(self) -> str:
        """All lines, when none waits for the server."""
        lines = self.texts("#translation .line:not(.waiting) > p")
        return "\n".join(lines) if not self.all("#translation .waiting") else ""

    def wait_for(self, translation: str, seconds: float = 8) -> None:
        self.wait(lambda: self.translation() == translation, seconds)

    def problem(self) -> str:
        return self.texts("#problem p")[0]

    def focused(self) -> str:
        return str(self.run("const e = document.activeElement; return e.id || e.name || e.className || e.textContent"))

    def errors(self) -> list[str]:
        messages = [str(entry["message"]) for entry in self.messages()]
        return [message for message in messages if FAILED_REQUEST not in message]


reader = reader_fixture(Reader)


@pytest.fixture
def server(reader: Reader) -> Iterator[StandIn]:
    """Each test has a port of its own, so that its page keeps nothing of another's."""
    with serving(StandIn()) as stand_in:
        yield stand_in
        assert reader.errors() == []
        reader.driver.get("about:blank")


# --- Typing --------------------------------------------------------------------------------------------------------


def test_the_translation_follows_the_typing_with_few_requests(reader: Reader, server: StandIn) -> None:
    reader.open(server)
    reader.one("#text").click()
    text = "the quick brown fox jumps over the lazy dog"
    reader.press(*text)
    reader.wait_for(text.upper())
    posted = server.posted()
    assert len(posted) <= len(text) / 4
    assert posted[-1] == {"source": "en", "target": "de", "text": [text], "placeholders": True}
    assert reader.texts("#count, #status") == ["43 characters", "Translated"]


def test_a_late_answer_never_replaces_a_newer_one(reader: Reader, server: StandIn) -> None:
    reader.open(server)
    server.delays = [1.0, 0.0]
    reader.write("first")
    reader.wait(lambda: len(server.posted()) == 1)
    reader.press(" ", "second")
    reader.wait_for("FIRST SECOND", 0.9)
    time.sleep(1.2)
    assert reader.translation() == "FIRST SECOND"


def test_only_the_lines_that_changed_are_asked_for_again(reader: Reader, server: StandIn) -> None:
    reader.begin(server, "one\n\ntwo\none")
    reader.press(" more")
    reader.wait_for("ONE\n\nTWO\nONE MORE")
    assert [body["text"] for body in server.posted()] == [["one", "two", "one"], ["one more"]]
    reader.one("#clear").click()
    reader.wait(lambda: reader.translation() == "")
    assert reader.focused() == "text"
    assert reader.run("return document.querySelector('#text').value") == ""
    ActionChains(reader.driver).key_down(Keys.CONTROL).send_keys("z").key_up(Keys.CONTROL).perform()
    assert reader.run("return document.querySelector('#text').value") == "one\n\ntwo\none more"
    reader.one("#clear").click()
    assert not reader.shows("#copy")
    assert not reader.shows("#clear")


def test_a_long_text_is_sent_in_parts_that_the_server_takes(reader: Reader, server: StandIn) -> None:
    server.max_characters, server.max_texts = 1000, 7
    reader.open(server)
    lines = [f"line {i} " + "word " * (i % 90) for i in range(200)]
    text = "\n".join(line.strip() for line in lines)
    assert len(text) > 40_000
    reader.write(text)
    reader.wait_for(text.upper(), 30)
    for body in server.posted():
        assert len(body["text"]) <= 7
        assert sum(map(len, body["text"])) <= 1000
    reader.press("\n" + "x" * 1001)
    reader.wait(lambda: reader.texts(".flags li"))
    (note,) = reader.texts(".flags li")
    assert note == "Too long. This line has 1,001 characters, and the server takes 1,000 at once. Divide it."


def test_what_is_typed_and_what_is_answered_is_only_text(reader: Reader, server: StandIn) -> None:
    reader.open(server)
    server.translations = {HOSTILE: HOSTILE}
    server.flags = ["<img src=x onerror=broken=1>", "repeats_itself"]
    reader.write(HOSTILE)
    reader.wait_for(HOSTILE)
    reader.one(".word").click()
    reader.wait(lambda: reader.texts(".candidates li"))
    assert reader.run("return window.broken ?? 0") == 0
    assert not reader.all("#translation img, #translation b, #translation script")
    assert reader.texts(".flags strong")[1] == "Repeats itself."
    assert len(reader.texts("#count")[0].split()) == 2
    assert int(reader.texts("#count")[0].split()[0]) == len(HOSTILE)


def test_right_to_left_text_begins_at_the_right(reader: Reader, server: StandIn) -> None:
    server.translations = {"hello": "مرحبا بالعالم"}
    reader.open(server)
    reader.choose("target", "ar")
    reader.write("hello")
    reader.wait_for("مرحبا بالعالم")
    line = reader.run(
        "const e = document.querySelector('.line'); return [e.lang, getComputedStyle(e.firstChild).direction]"
    )
    assert line == ["ar", "rtl"]


def test_lines_of_a_model_that_was_replaced_are_translated_again(reader: Reader, server: StandIn) -> None:
    reader.begin(server, "a dog\na cat")
    server.sha256, server.translations = "1" * 64, {"a dog": "EIN HUND"}
    reader.press("s")
    reader.wait_for("EIN HUND\nA CATS")


# --- Languages -----------------------------------------------------------------------------------------------------


def test_swapping_exchanges_languages_and_texts_where_both_directions_are_loaded(
    reader: Reader, server: StandIn
) -> None:
    reader.begin(server, "a dog")
    server.translations = {"A DOG": "the dog"}
    reader.one("#swap").click()
    reader.wait_for("the dog")
    assert server.posted()[-1] == {"source": "de", "target": "en", "text": ["A DOG"], "placeholders": True}
    reader.one("#swap").click()
    reader.choose("target", "ar")
    assert not reader.one("#swap").is_enabled()
    reader.open(server)  # the languages are kept
    assert reader.run("return ['source', 'target'].map(id => document.getElementById(id).value)") == ["en", "ar"]


def test_swapping_never_loses_text_that_has_no_translation(reader: Reader, server: StandIn) -> None:
    server.max_characters = 20
    reader.open(server)
    text = "a line that is too long for it\na dog"
    reader.write(text)
    reader.wait(lambda: reader.texts(".flags li"))
    reader.one("#swap").click()
    assert reader.run("return document.querySelector('#text').value") == text
    server.delay = 1.0
    reader.one("#clear").click()
    reader.write("a cat")
    reader.wait(lambda: reader.texts(".waiting"))
    reader.one("#swap").click()
    assert reader.run("return document.querySelector('#text').value") == "a cat"


def test_a_language_is_detected_only_where_several_are_loaded(reader: Reader, server: StandIn) -> None:
    server.can_detect = True
    server.pairs = ["en-de"]
    reader.open(server)
    assert reader.texts("#source option") == ["English"]
    assert not reader.shows("#swap")
    server.pairs = ["en-de", "de-en", "fr-en"]
    reader.open(server)
    assert reader.texts("#source option") == ["Detect language", "English", "German", "French"]
    reader.choose("source", "auto")
    server.detected = ["de-AT", "en"]
    reader.write("ein Hund\nnein")
    reader.choose("target", "en")
    reader.wait_for("EIN HUND\nNEIN")
    assert server.posted()[-1] == {"source": "de", "target": "en", "text": ["ein Hund", "nein"], "placeholders": True}
    assert server.posted("/detect")[-1] == {"q": "ein Hund\nnein"}
    assert reader.texts("#about") == ["Detected: German"]
    server.detected = ["en", "de"]
    reader.press("!")
    reader.wait(lambda: "seems to be English already" in reader.problem())
    server.detected = ["ar"]
    reader.one("#again").click()
    reader.wait(lambda: "Choose one" in reader.problem())
    reader.choose("source", "de")
    reader.wait_for("EIN HUND\nNEIN!")
    assert not reader.shows("#problem")


# --- Alternatives and attention ------------------------------------------------------------------------------------


def test_a_click_at_a_word_offers_other_translations_from_there_on(reader: Reader, server: StandIn) -> None:
    reader.begin(server, "The dog runs. The cat sleeps.\nA bird.")
    reader.all(".word")[4].click()
    reader.wait(lambda: len(reader.texts(".candidates")) == 2)
    prefixed = next(body for body in server.posted() if "prefix" in body)
    assert (prefixed["text"], prefixed["prefix"]) == ("The cat sleeps.", "THE")
    assert prefixed["n_best"] > 1
    # One of each next word before the second of any.
    assert reader.texts(".candidates")[0].count("THE") == 4
    assert reader.texts(".candidates li")[:4] == [
        "THE one other word", "THE two other words", "THE three words more", "THE one more"
    ]  # fmt: skip
    reader.screenshot("alternatives")
    reader.all(".candidates button")[1].click()
    assert reader.translation() == "THE DOG RUNS. THE two other words\nA BIRD."
    assert reader.focused() == "sentence"
    assert not reader.all(".panel")
    reader.one("#text").click()
    reader.press(" Two birds.")
    reader.wait_for("THE DOG RUNS. THE two other words\nA BIRD. TWO BIRDS.")  # the choice stays
    reader.run(COPIED)
    reader.one("#copy").click()
    assert reader.run("return copied") == ["THE DOG RUNS. THE two other words\nA BIRD. TWO BIRDS."]


def test_sentences_that_do_not_correspond_are_one_unit(reader: Reader, server: StandIn) -> None:
    server.translations = {"One. Two.": "ONE AND TWO."}
    reader.open(server)
    reader.write("One. Two.")
    reader.wait_for("ONE AND TWO.")
    assert len(reader.all(".sentence")) == 1
    reader.all(".word")[2].click()
    prefixed = reader.wait(lambda: [body for body in server.posted() if "prefix" in body])[0]
    assert (prefixed["text"], prefixed["prefix"]) == ("One. Two.", "ONE AND")


def test_the_keyboard_alone_changes_a_word_and_comes_back(reader: Reader, server: StandIn) -> None:
    reader.begin(server, "The dog runs. The cat sleeps.")
    order: list[str] = []
    reader.run("document.querySelector('#source').focus()")
    for _ in range(12):
        order.append(reader.focused())
        outline = reader.run("return getComputedStyle(document.activeElement).outlineStyle")
        assert outline == "solid", order[-1]
        reader.press(Keys.TAB)
        if reader.focused() == "sentence":
            break
    assert order == ["source", "swap", "target", "text", "clear", "copy"]
    reader.press(Keys.ARROW_RIGHT)
    assert reader.run("return document.activeElement.textContent") == "THE CAT SLEEPS."
    reader.press(Keys.ENTER)
    assert reader.run("return document.activeElement.value") == "0"
    reader.press(Keys.ARROW_RIGHT)
    reader.wait(lambda: "From “CAT” on" in reader.texts(".panel h3"))
    reader.press(Keys.ESCAPE)
    assert not reader.all(".panel")
    assert reader.run("return document.activeElement.textContent") == "THE CAT SLEEPS."
    reader.press(Keys.ENTER, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    reader.wait(lambda: "From “SLEEPS” on" in reader.texts(".panel h3"))
    reader.press(Keys.TAB, Keys.ENTER)
    assert reader.translation() == "THE DOG RUNS. THE CAT one other word"


def test_two_models_in_turn_have_neither_terms_nor_prefixes_nor_attention(reader: Reader, server: StandIn) -> None:
    server.pivot = "en"
    server.pairs = ["de-en", "en-fr", "de-fr"]
    reader.open(server)
    reader.choose("target", "fr")
    assert reader.texts("#about") == ["toy-de-fr, through English"]
    assert not reader.shows("#terms")
    reader.write("a dog")
    reader.wait_for("A DOG")
    reader.one(".word").click()
    reader.wait(lambda: reader.texts(".candidates"))
    assert reader.texts(".panel h3, .panel button")[:2] == ["Close", "The whole sentence"]
    assert not [body for body in server.posted() if "prefix" in body or "terms" in body]


def test_attention_is_shown_in_a_frame_that_reaches_nothing(reader: Reader, server: StandIn) -> None:
    reader.begin(server, "The dog runs. The cat sleeps.")
    reader.all(".word")[3].click()
    reader.one(".panel .bar button").click()
    frame = reader.wait(lambda: reader.all("#attention iframe"))[0]
    assert server.posted("/api/attention") == [
        {"text": "The cat sleeps.", "source": "en", "target": "de", "translation": "THE CAT SLEEPS."}
    ]
    assert frame.get_attribute("sandbox") == "allow-scripts"
    assert frame.get_attribute("title")
    reader.driver.switch_to.frame(frame)
    try:
        reader.wait(lambda: reader.all("#lines path"))  # its own script and style may run
        assert reader.run("return getComputedStyle(document.querySelector('#lines path')).fill") == "none"
        assert reader.run("return self.origin") == "null"
        assert reader.run("try { return parent.document.title } catch (error) { return error.name }") == "SecurityError"
    finally:
        reader.driver.switch_to.default_content()
    reader.screenshot("attention")
    reader.one("#close-attention").click()
    assert not reader.all("iframe")
    assert reader.focused().startswith("sentence")
    server.failures = [Answer(400, "attention: the engine CTranslate2 has none. Serve with engine=torch")]
    reader.one(".panel .bar button").click()
    reader.wait(lambda: reader.texts("#attention .problem"))
    assert "engine=torch" in reader.texts("#attention .problem")[0]


def test_flags_are_said_in_words(reader: Reader, server: StandIn) -> None:
    server.flags = ["repeats_itself", "unmet_terms", "hit_length_limit", "of_a_later_version"]
    reader.open(server)
    reader.write("a dog")
    reader.wait(lambda: len(reader.texts(".flags li")) == 4)
    assert reader.texts(".flags strong") == [
        "Repeats itself.", "Terms missing.", "May be incomplete.", "of a later version."
    ]  # fmt: skip
    assert "(\u2068dog → Hund\u2069)" in reader.texts(".flags li")[1]
    reader.screenshot("flags")


# --- Terms and files -----------------------------------------------------------------------------------------------


def test_terms_are_sent_and_kept_for_their_languages(reader: Reader, server: StandIn) -> None:
    reader.begin(server, "a dog")
    reader.add_term("dog", Keys.TAB, "Hund")
    reader.wait(lambda: server.posted()[-1].get("terms") == [["dog", "Hund"]])
    reader.one("#swap").click()
    reader.wait(lambda: server.posted()[-1]["source"] == "de")
    assert "terms" not in server.posted()[-1]
    reader.one("#swap").click()
    reader.open(server)
    assert reader.texts("#n-terms") == ["(1)"]
    assert reader.run("return [...document.querySelectorAll('#term-rows input')].map(e => e.value)") == ["dog", "Hund"]
    reader.one("summary").click()
    reader.one("#term-rows button").click()
    assert reader.texts("#n-terms") == [""]


def test_a_browser_that_keeps_nothing_translates_all_the_same(reader: Reader, server: StandIn) -> None:
    blocked = (
        "for (const name of ['localStorage', 'sessionStorage']) Object.defineProperty(window, name,"
        " {get() { throw new DOMException('denied', 'SecurityError'); }});"
    )
    script = reader.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": blocked})
    try:
        server.key = "secret"
        reader.open(server)
        reader.one("#key").send_keys("secret", Keys.ENTER)
        reader.write("a dog")
        reader.wait_for("A DOG")
        reader.add_term("dog", Keys.TAB, "Hund")
        reader.wait(lambda: server.posted()[-1].get("terms") == [["dog", "Hund"]])
    finally:
        reader.driver.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", script)


def downloaded(reader: Reader, name: str) -> bytes:
    reader.driver.execute_cdp_cmd(
        "Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(reader.folder)}
    )
    path = reader.folder / name
    reader.wait(lambda: [link for link in reader.all("#jobs a") if link.get_attribute("download") == name])
    next(link for link in reader.all("#jobs a") if link.get_attribute("download") == name).click()
    reader.wait(path.exists)
    return path.read_bytes()


def test_files_are_translated_and_offered_as_downloads(reader: Reader, server: StandIn, tmp_path: Path) -> None:
    reader.open(server)
    subtitles = "1\r\n00:00:01,000 --> 00:00:02,000\r\na dog\r\n"
    (tmp_path / "film.srt").write_bytes(subtitles.encode())
    (tmp_path / "novel.txt").write_bytes("\r\none\r\n\r\ntwo\x85three".encode())
    reader.one("#file").send_keys(str(tmp_path / "film.srt"))
    assert downloaded(reader, "film.de.srt") == subtitles.upper().encode()
    assert server.posted()[-1] == {"source": "en", "target": "de", "text": subtitles, "format": "srt"}
    reader.one("#file").send_keys(str(tmp_path / "novel.txt"))
    assert downloaded(reader, "novel.de.txt") == "\r\nONE\r\n\r\nTWO\x85THREE".encode()
    assert server.posted()[-1]["text"] == ["one", "two\x85three"]
    drop(reader, "page.html", "<b>a dog</b>")
    assert downloaded(reader, "page.de.html") == b"<B>A DOG</B>"
    assert server.posted()[-1]["format"] == "html"
    reader.screenshot("files")


def drop(reader: Reader, name: str, content: str) -> None:
    reader.run(
        "const data = new DataTransfer(); data.items.add(new File([arguments[1]], arguments[0]));"
        "for (const kind of ['dragenter', 'dragover', 'drop'])"
        " document.body.dispatchEvent(new DragEvent(kind, {dataTransfer: data, bubbles: true, cancelable: true}))",
        name,
        content,
    )


def test_a_file_that_no_request_can_hold_is_sent_whole_and_its_progress_shown(reader: Reader, server: StandIn) -> None:
    server.progress, server.flags = [0.0, 0.25, 0.5], ["tags_by_position", "unmet_terms"]
    reader.begin(server, "a dog")
    reader.add_term("dog", Keys.TAB, "Hund")
    text = "<p>a dog</p>" * 500
    drop(reader, "long page.html", text)
    reader.wait(lambda: "Translating… 50 %" in reader.texts("#jobs li")[0])
    assert reader.run("return document.querySelector('#jobs progress').value") == 0.5
    reader.screenshot("progress")
    assert downloaded(reader, "long page.de.html") == text.upper().encode()
    assert "Translated. To check: tags placed roughly, terms missing." in reader.texts("#jobs li")[0]
    assert not reader.all("#jobs progress")
    terms = '[["dog","Hund"]]'
    sent = {"file": text, "name": "long page.html", "source": "en", "target": "de", "terms": terms}
    assert server.posted("/api/document") == [sent]
    assert server.documents == {}


def test_a_file_is_dropped_with_the_keyboard_and_cancelled(reader: Reader, server: StandIn, tmp_path: Path) -> None:
    """A key press opens the system's dialog, which no test can see: it is enough that it would be opened."""
    server.progress = [0.1] * 100
    reader.open(server)
    reader.run("window.opened = 0; document.querySelector('#file').click = () => { window.opened += 1; }")
    reader.run("document.querySelector('#choose-file').focus()")
    reader.press(Keys.ENTER, Keys.SPACE)
    assert reader.run("return window.opened") == 2
    drop(reader, "a.html", "<p>a</p>" * 1000)
    reader.wait(lambda: "10 %" in reader.texts("#jobs li")[0])
    reader.press(Keys.TAB)
    assert reader.run("return document.activeElement.textContent") == "Cancel"
    reader.press(Keys.ENTER)
    reader.wait(lambda: server.posted("/api/document/id/cancel") == [{"key": "key"}])
    assert reader.texts("#jobs li") == []
    assert reader.focused() == "choose-file"


def test_what_is_wrong_with_a_file_is_one_line(reader: Reader, server: StandIn) -> None:
    server.document_error = "file:3: no closing tag. Close it"
    reader.open(server)
    drop(reader, "a.html", "<p>a</p>" * 1000)
    reader.wait(lambda: reader.texts("#jobs .problem") == [server.document_error])
    assert reader.texts("#jobs button") == ["Remove"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("archive.zip", b"PK", "Not a kind of file that is known"),
        ("latin.txt", "größe".encode("latin-1"), "Save it as UTF-8"),
        ("large.srt", b"x" * 1_000_001, "Larger than 1 MB"),
        ("line.txt", b"short\n" + b"x" * 5001, "Line 2 has 5,001 characters, and the server takes 5,000 at once"),
        ("huge.txt", b"x" * 5_000_001, "Larger than 5 MB"),
    ],
)
def test_a_file_that_cannot_be_translated_is_refused_in_one_line(
    reader: Reader, server: StandIn, tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    reader.open(server)
    (tmp_path / name).write_bytes(content)
    reader.one("#file").send_keys(str(tmp_path / name))
    reader.wait(lambda: message in reader.texts("#jobs li")[0])
    assert not reader.all("#jobs a")
    assert server.posted() == []


# --- What goes wrong -----------------------------------------------------------------------------------------------


def test_a_busy_server_is_asked_again_when_it_says(reader: Reader, server: StandIn) -> None:
    reader.open(server)
    server.failures = [Answer(503, "queue is full", {"Retry-After": "2"}), Answer(429, "", {"Retry-After": "1"})]
    begin = time.monotonic()
    reader.write("a dog")
    reader.wait(lambda: "Trying again in 2 seconds" in reader.problem())
    reader.press("s")  # and what is typed meanwhile does not hurry it
    reader.screenshot("busy")
    reader.wait_for("A DOGS")
    assert time.monotonic() - begin >= 3
    assert len(server.posted()) == 3
    assert not reader.shows("#problem")


def test_the_server_may_go_away_and_come_back(reader: Reader, server: StandIn) -> None:
    with serving(StandIn()) as gone:
        reader.open(gone)
        reader.write("a dog")
        reader.wait_for("A DOG")
    port = int(gone.url.rsplit(":")[-1].strip("/"))
    reader.press(" and a cat")
    reader.wait(lambda: "does not answer" in reader.problem())
    assert reader.texts(".waiting") == ["A DOG"]  # what was there stays, in another colour
    with serving(StandIn(), port):
        reader.one("#again").click()
        reader.wait_for("A DOG AND A CAT")
        assert not reader.shows("#problem")


@pytest.mark.parametrize(
    ("answer", "line"),
    [
        (Answer(413, "text: 9,000 characters, at most 5,000."), "at most 5,000. Divide the text"),
        (Answer(400, "prefix: no model for it"), "prefix: no model for it"),
        (Answer(500), "The server answered 500."),
    ],
)
def test_a_refusal_is_one_line_and_the_next_text_may_be_taken(
    reader: Reader, server: StandIn, answer: Answer, line: str
) -> None:
    reader.open(server)
    server.failures = [answer]
    reader.write("a dog")
    reader.wait(lambda: line in reader.problem())
    assert reader.texts("#status") == [""]
    reader.one("#again").click()
    reader.wait_for("A DOG")
    assert not reader.shows("#problem")


def test_a_key_is_asked_for_and_kept_for_the_tab(reader: Reader, server: StandIn) -> None:
    server.key = "secret"
    reader.open(server)
    assert reader.shows("#key-form")
    reader.one("#key").send_keys("wrong", Keys.ENTER)
    reader.write("a dog")
    reader.wait(lambda: reader.shows("#key-form") and "does not accept this API key" in reader.problem())
    reader.screenshot("key")
    reader.one("#key").clear()
    reader.one("#key").send_keys("secret", Keys.ENTER)
    reader.wait_for("A DOG")
    assert not reader.shows("#key-form")
    assert not reader.shows("#problem")
    reader.open(server)
    assert not reader.shows("#key-form")


def test_two_tabs_share_their_terms(reader: Reader, server: StandIn) -> None:
    reader.open(server)
    first = reader.driver.current_window_handle
    reader.driver.switch_to.new_window("tab")
    try:
        reader.open(server)
        reader.add_term("dog")
        reader.driver.switch_to.window(first)
        reader.wait(lambda: reader.texts("#n-terms") == ["(1)"])
    finally:
        for handle in reader.driver.window_handles:
            if handle != first:
                reader.driver.switch_to.window(handle)
                reader.driver.close()
        reader.driver.switch_to.window(first)


# --- How it looks --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [1280, 768, 320])
@pytest.mark.parametrize("text", ["The dog runs. The cat sleeps.", f"{LONG_WORD} {HOSTILE}"])
def test_no_text_leaves_the_page_or_lies_over_other_text(
    reader: Reader, server: StandIn, text: str, width: int
) -> None:
    server.flags = ["repeats_itself", "unknown_source"]
    reader.open(server, width=width)
    reader.write(text)
    reader.wait_for(text.upper())
    reader.run("document.querySelector('.word').click()")
    reader.wait(lambda: reader.texts(".candidates"))
    reader.add_term()
    reader.run("document.querySelector('#key-form').hidden = false; showProblem(`no ${'place'.repeat(40)}`)")
    reader.run("translateFile(new File([''], `${'long'.repeat(40)}.zip`))")
    found = reader.run(GEOMETRY)
    assert found["faults"][:5] == []
    assert found["count"] > 30
    reader.screenshot(f"{'long' if LONG_WORD in text else 'plain'}-{width}")
    if width == 768:
        reader.run("document.querySelector('.panel').style.marginTop = '-40px'")
        assert [fault for fault in reader.run(GEOMETRY)["faults"] if "lies over" in fault]


def test_dark_screens_and_paper(reader: Reader, server: StandIn) -> None:
    reader.begin(server, "The dog runs.\nThe cat sleeps.")
    try:
        reader.media(**DARK)
        assert reader.run(COLOURS)[0] == "rgb(22, 24, 27)"
        reader.one(".word").click()
        reader.wait(lambda: reader.texts(".candidates"))
        reader.screenshot("dark")
        reader.media(media="print", **DARK)
        assert reader.run(COLOURS) == ["rgb(255, 255, 255)", "rgb(0, 0, 0)"]
        assert not [one for one in reader.all("button, .panel, #terms") if one.is_displayed()]
        reader.screenshot("printed")
    finally:
        reader.media()


def test_the_page_is_painted_within_a_second_from_one_file(reader: Reader, server: StandIn) -> None:
    paints = []
    read = "return performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
    for _ in range(3):  # the fastest counts, because other processes may slow the rest
        reader.open(server)
        paints.append(reader.wait(lambda: reader.run(read)))
    assert min(paints) < 1000
    loaded = reader.loaded()
    assert loaded == [f"{server.url}api/models"]


def test_the_policy_refuses_other_scripts_and_other_servers(reader: Reader, server: StandIn) -> None:
    reader.open(server)
    reader.refuses_scripts_and_the_network()


@pytest.mark.skipif("AXE_CORE" not in os.environ, reason="needs $AXE_CORE, the path of axe.min.js")
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1280, 320])
def test_axe_finds_nothing_serious(reader: Reader, server: StandIn, width: int, dark: bool) -> None:
    server.flags = ["repeats_itself"]
    reader.open(server, width=width)
    reader.media(**(DARK if dark else {}))
    try:
        reader.write("The dog runs. The cat sleeps.")
        reader.wait_for("THE DOG RUNS. THE CAT SLEEPS.")
        reader.one(".word").click()
        reader.wait(lambda: reader.texts(".candidates"))
        reader.add_term()
        reader.run("document.querySelector('#key-form').hidden = false; showProblem('Something is wrong.')")
        reader.run("translateFile(new File([''], 'a.zip'))")
        server.delay = 3.0
        reader.press(Keys.TAB)
        reader.write(" And more of it.\nA second line.")
        reader.wait(lambda: reader.all(".waiting"))
        reader.run(Path(os.environ["AXE_CORE"]).read_text(encoding="utf-8"))
        found = reader.driver.execute_async_script("axe.run(document).then(arguments[0])")
        serious = [one for one in found["violations"] if one["impact"] in ("serious", "critical")]
        assert [(one["id"], one["nodes"][0]["html"]) for one in serious] == []
        assert len(found["passes"]) > 20
    finally:
        reader.media()
