"""The page of `tfm prepare --report`: all counts are on it, and no text of a corpus can become markup or script."""

import re
from dataclasses import asdict
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.support.each import each
from tests.toy.run import prepared
from transformer_cli.addons.cleaning_report.page import render
from transformer_cli.cli import main
from transformer_cli.commands.prepare.keys import PrepareConfig
from transformer_cli.commands.prepare.reports import CLEANING_REPORTS, check_report, write_report
from transformer_cli.config.compose import load_config
from transformer_cli.config.data import DataConfig
from transformer_cli.data.clean import CleaningReport
from transformer_cli.data.cleaning.clean_corpora import FilteringReport, FilterReport
from transformer_cli.data.prepare import Prepared
from transformer_cli.data.readers.builtin import read_builtin
from transformer_cli.errors import ConfigError

HOSTILE = (
    "</span></td></table></style></script><script>broken()</script><img src=x onerror=broken()> \"q\" 'a' $title &amp;"
)
VOID = {"meta", "link", "rect"}


class Page(HTMLParser):
    """Tags, attributes and texts of a page whose elements are all closed in order."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.names: set[str] = set()  # of attributes
        self.texts: list[str] = []
        self.cells: list[list[str]] = []  # by row
        self.open: list[str] = []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.names |= {name for name, _ in attrs}
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.cells.append([])
        if tag in ("td", "th"):
            self.cells[-1].append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.names |= {name for name, _ in attrs}

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not {"style", "script"} & {*self.open}:
            self.texts.append(data)
            if {"td", "th"} & {*self.open}:
                self.cells[-1][-1] += data

    @property
    def text(self) -> str:
        return "".join(self.texts)


def config() -> DataConfig:
    config = load_config("prepare", ["data=files", "data.source_lang=en", "data.target_lang=fr"])
    assert isinstance(config, PrepareConfig)
    return config.data


def filtering(text: str = "a cat") -> FilteringReport:
    """A report of three filters, with `text` in each place that a file may fill."""
    dropped = [{"pair": 1000 + n, "source": f"{n} {text}", "target": text} for n in range(10)]
    repaired = [{"pair": 7, "source": text, "target": f"<b>{text}", "now": [text, f"{text}!"]}]
    return FilteringReport(
        n_read=2500,
        n_kept=2417,
        filters=[
            FilterReport("markup", "of markup", "without markup", None, 5, 1234, 0.0, dropped[:5], repaired),
            FilterReport("copies", "with the same sentence", "", 3, 78, 0, 0.0, dropped, []),
            FilterReport("language", f"with {text}", "", 0.7, left_out=0.61),
        ],
    )


def test_all_counts_thresholds_and_examples_are_on_the_page() -> None:
    page = Page(render(filtering(), CleaningReport(n_read=2300, n_duplicate=19, n_blank=4), config()))
    rows = {row[0]: row[1:] for row in page.cells}
    assert rows["markup"][:4] == [
        "–",
        "Drops pairs of markup. Keeps others without markup.",
        "5 (0.2 %)",
        "1,234 (49 %)",
    ]
    assert rows["copies"][:4] == ["3", "Drops pairs with the same sentence.", "78 (3.1 %)", "0"]
    assert rows["language"][0] == "0.7"
    assert rows["language"][1].endswith("Not applied: it would have dropped 61% of the pairs.")
    assert "2,417 of 2,500 training pairs kept by the filters" in page.texts
    facts = ("2,500", "83 (3.3 %)", "1,234 (49 %)", "117", "2,277")  # read, dropped, repaired, held out, left
    assert all(fact in page.texts for fact in facts)
    assert "19 dropped: duplicates (data.drop_duplicates=true)" in page.texts
    assert "78 dropped, of which the first 10" in page.texts
    assert [row for row in page.cells if row[0] == "1,009"] == [["1,009", "9 a cat", "a cat"]]
    assert ["7", "a cat", "<b>a cat→a cat!"] in page.cells
    assert "language was not applied" in page.text
    assert "a copy is a sentence" in page.text  # what the threshold of copies means


def test_hostile_text_stays_text() -> None:
    plain, hostile = (render(filtering(text), CleaningReport(n_read=2417), config()) for text in ("x", HOSTILE))
    found = Page(hostile)
    assert {*found.tags} == {*Page(plain).tags}
    assert found.tags.count("script") == 1
    assert found.names == Page(plain).names
    assert not {name for name in found.names if name.startswith("on") or name == "style"}
    assert found.text.count(HOSTILE) > 20
    assert "<script></script>" in hostile
    assert "default-src 'none'; script-src 'sha256-" in hostile


def test_hostile_names_and_languages_stay_text() -> None:
    report = filtering()
    report.filters[1].name = HOSTILE
    setting = config()
    for name in ("name", "source_lang", "target_lang"):
        object.__setattr__(setting, name, HOSTILE)
    found = Page(render(report, CleaningReport(n_read=2417), setting))
    assert found.tags.count("script") == 1
    assert {*found.tags} == {*Page(render(filtering(), CleaningReport(), config())).tags}
    assert not {name for name in found.names if name.startswith("on")}


@each(
    "before, after, expected",
    [
        ("a <b>cat</b>", "a cat", "a <del>&lt;b&gt;</del>cat<del>&lt;/b&gt;</del>|a cat"),
        ("forÃªt noire", "forêt noire", "<del>forÃªt</del> noire|<ins>forêt</ins> noire"),
        ("a b", "", "<del>a b</del>|"),
    ],
)
def test_a_repair_is_marked_where_the_text_differs(before: str, after: str, expected: str) -> None:
    report = filtering()
    report.filters[0].repaired = [{"pair": 1, "source": before, "target": "x", "now": [after, "x"]}]
    page = render(report, CleaningReport(n_read=2417), config())
    sides = re.findall(r'<span class="text" dir="auto">(.*?)</span>', page)
    assert expected.split("|") in [sides[place : place + 2] for place in range(len(sides))]


def test_long_lines_are_shown_whole_and_in_little_time() -> None:
    long = "word " * 200_000
    report = filtering()
    report.filters[0].repaired = [{"pair": 1, "source": f"<p>{long}", "target": "x", "now": [long, "x"]}]
    assert render(report, CleaningReport(n_read=2417), config()).count(long) == 2


def test_a_corpus_without_filters_is_said_to_have_none() -> None:
    page = Page(render(None, CleaningReport(n_read=12, n_blank=2), config()))
    assert "10 of 12 training pairs kept, without filters" in page.texts
    assert "2 dropped: blank on one side or both" in page.texts
    assert "tfm doctor --suspects 20" in page.text


def test_the_report_file_holds_what_the_prepared_corpus_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs = [*read_builtin("demo_en_fr", "train")[:300], *[("A cat sleeps in here.", "A cat sleeps in here.")] * 2]
    for side, language in enumerate(("en", "fr")):
        (tmp_path / f"t.{language}").write_text("".join(f"{pair[side]}\n" for pair in pairs), encoding="utf-8")
    words = ["prepare", "data=files", "data.source_lang=en", "data.target_lang=fr", f"data.cache={tmp_path}/cache"]
    words += [f"data.train=[{tmp_path}/t.en,{tmp_path}/t.fr]", "data.clean=[copies]", "data.tokenizer.vocab_size=200"]
    page = tmp_path / "r.html"
    assert main([*words, "--report", str(page)]) == 0
    found = Page(page.read_text(encoding="utf-8"))
    assert "300 of 302 training pairs kept by the filters" in found.texts
    assert ["301", "A cat sleeps in here.", "A cat sleeps in here."] in found.cells
    [kept] = (tmp_path / "cache").glob("*/prepared-*/filtering.json")
    assert asdict(FilteringReport.read(kept))["filters"][0]["n_dropped"] == 2

    before = page.read_bytes()
    assert main([*words, "--report", str(page)]) == 2  # also where the corpus is in the cache
    assert f"{page}: exists already. Add --overwrite, or choose another --report" in capsys.readouterr().err
    page.write_text("another")
    assert main([*words, "--report", str(page), "--overwrite"]) == 0
    assert page.read_bytes() == before


def test_reports_in_other_files_are_refused_before_anything_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = tmp_path / "corpus.en"
    text.write_text("kept")
    words = ["prepare", "data=files", "data.source_lang=en", "data.target_lang=fr", "data.train=nowhere"]
    assert main([*words, "--report", str(text), "--overwrite"]) == 2
    told = capsys.readouterr().err
    assert f"{text}: reports are not written in such files. Choose a name that ends in .html" in told
    assert text.read_text() == "kept"
    with pytest.raises(ConfigError, match=r"^report=r\.html: nothing is cleaned with --list\. Leave it out$"):
        load_config("prepare", [*words[1:], "report=r.html", "listing=[corpus]"])


def test_a_writer_of_a_plugin_that_returns_no_text_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(prepared: Prepared, config: DataConfig) -> None:
        return None

    monkeypatch.setattr(CLEANING_REPORTS, "_entries", dict(CLEANING_REPORTS.items()))
    CLEANING_REPORTS.register("txt")(write)
    check_report(f"{tmp_path}/r.txt", overwrite=False)
    with pytest.raises(
        ConfigError, match=r"test_page\.py:\d+\): returned None, not the text of a report\. Correct it$"
    ):
        write_report(f"{tmp_path}/r.txt", prepared(), config(), overwrite=False)
    assert not (tmp_path / "r.txt").exists()
