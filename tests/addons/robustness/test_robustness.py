"""The robustness suite: what each perturbation does to a line, and what its row of the table counts."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.addons.classification.toy_classifier import random_model as classifier_file
from tests.addons.classification.toy_classifier import written
from tests.addons.language_models.toy_text import content as language_model_content
from tests.evaluation.test_metrics import sacrebleu_command
from tests.golden.make import FOLDER
from tests.support.contract import refused, run
from tests.support.each import each
from tests.toy.run import sentences
from transformer_cli.addons.augmentation.noise import TYPO_SHARE, with_typos
from transformer_cli.addons.robustness.perturbations import EMOJI, PERTURBATIONS, PLACEHOLDERS, URLS, perturbed
from transformer_cli.addons.robustness.robustness import (
    VERSION,
    PerturbationFigures,
    RobustnessReport,
    make_suite,
    robustness_report,
)
from transformer_cli.decoding.results import Translated
from transformer_cli.decoding.translator import Translator

BY_NAME = {it.name: it for it in PERTURBATIONS}
SOURCES = ["the cat drank the milk.", "A pretty woman sat down in her chair!", "", "it was", "don't (really) go?", "no"]


def line_of(name: str, line: str, seed: int = 1) -> str | None:
    found = perturbed(BY_NAME[name], line, seed=seed)
    return None if found is None else found.line


@each(
    "name, line, expected",
    [
        ("upper case", "don't stop, Straße 5.", "DON'T STOP, STRASSE 5."),
        ("upper case", "NASA 5", None),
        ("upper case", "他在读书。", None),
        ("title case", "don't (really) go, «he» said.", "Don't (Really) Go, «He» Said."),
        ("title case", "Don't Go 5", None),
        ("no final stop", "He came.", "He came"),
        ("no final stop", "Really?!", "Really"),
        ("no final stop", "Vraiment ?", "Vraiment"),
        ("no final stop", 'He said: "I came."', 'He said: "I came"'),
        ("no final stop", "他在读书。", "他在读书"),
        ("no final stop", "彼は「はい。」", "彼は「はい」"),
        ("no final stop", "ماذا؟", "ماذا"),
        ("no final stop", "वह आया।", "वह आया"),
        ("no final stop", "J. Smith came", None),
        ("no final stop", "...", None),  # nothing would be left
        ("doubled", "He came.", "He came. He came."),
        ("doubled", "他在读书。", "他在读书。他在读书。"),
        ("single words", "no", None),
        ("single words", "他在读书。", None),  # whose words are not known
        ("single words", "5 + a = b.", None),
        ("single words", "a cat 5.", "cat"),
        ("typos", "he is in it", None),
    ],
)
def test_a_line_is_perturbed(name: str, line: str, expected: str | None) -> None:
    assert line_of(name, line) == expected


@each("line", ["the pretty woman", "Donaudampfschiff", "a tttt b", "abab"])
def test_a_typo_is_two_letters_swapped_or_one_left_out_or_doubled(line: str) -> None:
    for seed in range(100):
        found = with_typos(line, Random(seed))
        (was, now) = next(((a, b) for a, b in zip(line.split(), found.split(), strict=True) if a != b), ("", ""))
        assert found == line or (now[0] == was[0] and len(was) > 3)
        if len(now) == len(was):
            assert sorted(now) == sorted(was)  # two swapped
        else:
            longer, shorter = sorted((was, now), key=len, reverse=True)
            assert shorter in {longer[:i] + longer[i + 1 :] for i in range(1, len(longer))}


def test_a_tenth_of_the_words_get_typos() -> None:
    words = " ".join(f"{a}{b}cdefgh" for a in "abcdefghij" for b in "qrstu")
    found = with_typos(words, Random(1)).split()
    assert sum(a != b for a, b in zip(words.split(), found, strict=True)) == TYPO_SHARE * 50


@each("name, things", [("emoji", EMOJI), ("URL", URLS), ("placeholder", PLACEHOLDERS), ("number", None)])
def test_a_thing_is_put_between_two_words_or_at_the_end(name: str, things: tuple[str, ...] | None) -> None:
    seen = set()
    for seed in range(50):
        found = perturbed(BY_NAME[name], "he came home.", seed=seed)
        assert found is not None
        words = found.line.split()
        seen.add(words.index(found.inserted))
        words.remove(found.inserted)
        assert words == ["he", "came", "home."]
        assert found.inserted in things if things else re.fullmatch("[1-9][0-9]{1,5}", found.inserted)
    assert seen == {1, 2, 3}
    removed = BY_NAME[name].removed
    assert removed is not None
    assert removed(f"a {found.inserted} b", found.inserted).split() == ["a", "b"]
    assert removed("a b", found.inserted) == "a b"


@pytest.mark.parametrize("kept", ["{user name}", '<a href="x" title="y z">', "{% if a %}"])
def test_nothing_is_put_into_a_placeholder_or_tag(kept: str) -> None:
    for seed in range(30):
        found = perturbed(BY_NAME["number"], f"press {kept} now", seed=seed)
        assert found is not None
        assert kept in found.line


@pytest.mark.parametrize(
    ("language", "capitals", "titles"), [("tr", "İYİ IŞIK", "İyi Işık"), ("", "IYI IŞIK", "Iyi Işık")]
)
def test_case_is_that_of_the_language(language: str, capitals: str, titles: str) -> None:
    """Turkish has two letters i, with a dot and without, small and capital."""
    suite = make_suite(["iyi ışık"], n_lines=1, seed=1, languages=(language, language))
    upper, title, *_ = suite.rows
    assert (upper.sources, title.sources) == ([capitals], [titles])
    report = robustness_report(suite, ["iyi ışık"], suite.sources, [["iyi ışık"]])
    similar = [row.chrf_plain for row in report.rows[1:3]]
    assert similar == [100.0, 100.0] if language else min(filter(None, similar)) < 100


def test_a_suite_is_the_same_for_a_seed_and_a_line_in_any_selection() -> None:
    sources = [f"line {i} of many words that go on" for i in range(50)]
    one, again, other = (make_suite(sources, n_lines=20, seed=seed) for seed in (1, 1, 2))
    assert one == again
    assert [*one.plain] != [*other.plain]
    assert [*one.plain] == sorted(one.plain)
    assert len(one.plain) == 20
    whole = make_suite(sources, n_lines=500, seed=1)
    assert len(whole.plain) == 50
    for small, large in zip(one.rows, whole.rows, strict=True):
        of_line = dict(zip(large.numbers, large.lines, strict=True))
        assert all(of_line.get(i, line) == line for i, line in zip(small.numbers, small.lines, strict=True))


def test_tags_stay_before_a_line_and_are_not_perturbed() -> None:
    suite = make_suite(["<2de> he came.", "he <2de> came."], n_lines=9, seed=1, tags=["<2de>"])
    assert suite.plain == {0: "he came.", 1: "he <2de> came."}
    upper, *_ = suite.rows
    assert upper.sources == ["<2de> HE CAME.", "HE <2DE> CAME."]
    assert [line.line for line in upper.lines] == ["HE CAME.", "HE <2DE> CAME."]
    doubled = suite.rows[4]
    assert doubled.sources[0] == "<2de> he came. he came."


def test_a_document_in_one_line_is_not_perturbed() -> None:
    """One line of 100,000 characters would be translated eleven times, for minutes."""
    assert set(make_suite(["a cat " * 20_000, "a cat", "a" * 5000], n_lines=9, seed=1).plain) == {1, 2}


def test_blank_lines_are_left_out_and_a_word_is_translated_once() -> None:
    suite = make_suite(["a cat", "", " ", "a cat", "7 cat"], n_lines=9, seed=1)
    assert [*suite.plain] == [0, 3, 4]
    (words,) = [row for row in suite.rows if row.perturbation.name == "single words"]
    assert [line.line for line in words.lines] == ["cat"]


def report_of(translate: Callable[[str], str], sources: list[str] = SOURCES) -> dict[str, PerturbationFigures]:
    suite = make_suite(sources, n_lines=500, seed=1)
    outputs = list(map(translate, suite.sources))
    report = robustness_report(suite, list(map(translate, sources)), outputs, [list(map(translate, sources))])
    assert [row.name for row in report.rows] == ["plain", *BY_NAME]
    return {row.name: row for row in report.rows}


def reversed_words(text: str) -> str:
    """The text with its words reversed, which is no copy and loses no letter."""
    return " ".join(reversed(text.split()))


def test_a_translator_that_minds_nothing_scores_100_and_loses_nothing() -> None:
    def backwards(word: str) -> str:
        return word if "/" in word else re.sub("^[A-Za-z]+", lambda found: found[0][::-1], word)

    rows = report_of(lambda line: " ".join(map(backwards, line.split())))
    for name in ("upper case", "title case", "no final stop", "doubled", *("emoji", "URL", "number", "placeholder")):
        assert rows[name].chrf_plain == pytest.approx(100), name
        assert rows[name].chrf_reference == pytest.approx(100), name
        assert rows[name].length == pytest.approx(1), name
    typos = rows["typos"].chrf_plain
    assert typos is not None
    assert 50 < typos < 100
    assert {row.n_lost for row in rows.values()} == {0, None}
    assert {row.n_loops + row.n_copies + row.n_empty for row in rows.values()} == {0}
    assert (rows["plain"].n_lines, rows["plain"].chrf_plain, rows["plain"].chrf_reference) == (5, None, 100)


def test_degenerate_translations_are_counted() -> None:
    n_long = sum(len(line.split()) > 3 for line in SOURCES)
    copies = report_of(lambda line: line)
    assert copies["plain"].n_copies == n_long
    assert copies["upper case"].n_copies == n_long
    assert copies["single words"].n_copies == copies["single words"].n_lines > 0  # shorter than copies elsewhere
    loops = report_of(lambda line: "salad salad salad salad" if line.isupper() else reversed_words(line))
    assert loops["upper case"].n_loops == 5
    assert loops["plain"].n_loops == loops["title case"].n_loops == 0
    empty = report_of(lambda line: "" if "{" in line else reversed_words(line))
    assert empty["placeholder"].n_empty == empty["placeholder"].n_lost == 5
    assert empty["placeholder"].chrf_plain == 0
    lost = report_of(lambda line: re.sub(r"\d+|[^\x00-\x7f]+", "", reversed_words(line)))
    assert (lost["number"].n_lost, lost["emoji"].n_lost, lost["URL"].n_lost) == (
        5,
        5,
        sum("7" in url or "3" in url for url in url_of_lines()),
    )


def url_of_lines() -> list[str]:
    suite = make_suite(SOURCES, n_lines=500, seed=1)
    return [line.inserted for row in suite.rows if row.perturbation.name == "URL" for line in row.lines]


def test_a_number_and_an_emoji_are_kept_in_another_form() -> None:
    rows = report_of(lambda line: re.sub(r"(\d)(\d{3})\b", r"\1.\2", line).replace("❤️", "❤"))
    assert (rows["number"].n_lost, rows["emoji"].n_lost) == (0, 0)
    assert rows["number"].chrf_plain == pytest.approx(100)


def test_chrf_is_sacrebleus_of_the_two_translations(tmp_path: Path) -> None:
    suite = make_suite(SOURCES, n_lines=500, seed=1)
    plain = list(map(reversed_words, SOURCES))
    outputs = [source[: len(source) * 3 // 4] for source in suite.sources]
    report = robustness_report(suite, plain, outputs, [plain, SOURCES])
    start = sum(len(row.lines) for row in suite.rows[:3])
    row = suite.rows[3]
    ours = {found.name: found for found in report.rows}[row.perturbation.name]
    hypotheses, wanted = (
        outputs[start : start + len(row.lines)],
        [[it[i] for i in row.numbers] for it in (plain, SOURCES)],
    )
    for found, references in ((ours.chrf_plain, wanted[:1]), (ours.chrf_reference, wanted)):
        (printed,) = sacrebleu_command(tmp_path, hypotheses, references, "-m", "chrf")
        assert found == pytest.approx(printed["score"], abs=1e-9)
    assert report.signature == printed["signature"]


def test_the_table_and_the_short_form_say_the_same_as_the_json() -> None:
    rows = [
        PerturbationFigures("plain", 200, None, 50.0, 1.0, 0, 0, 0, None),
        PerturbationFigures("upper case", 200, 12.34, 11.0, 0.5, 30, 1, 0, None),
        PerturbationFigures("single words", 100, None, None, 6.0, 0, 0, 2, None),
        PerturbationFigures("emoji", 0, None, None, None, 0, 0, 0, 0),
    ]
    report = RobustnessReport(1, 200, 1000, rows, "nrefs:1")
    first, head, *table, signature, _ = report.lines()
    assert first == f"robustness suite {VERSION}, seed 1, 200 lines of 1,000"
    assert head.split() == ["lines", "chrF/plain", "chrF/reference", "length", "loops", "copies", "empty", "lost"]
    assert {line.index(cell) + len(cell) for line, cell in zip(table, ("50.0", "11.0"), strict=False)} == {
        head.index("e  l") + 1
    }
    assert table[1].split() == ["upper", "case", "200", "12.3", "11.0", "0.50", "15.0", "0.5", "0.0"]
    assert table[3].split() == ["emoji", "0"]
    assert signature == "chrF: nrefs:1"
    assert report.short_lines() == [
        f"{first}: chrF against the plain translations: upper case 12.3",
        "loops: upper case 15 %; copies: upper case < 1 %; empty: single words 2 %; lost: none",
    ]
    found = json.loads(json.dumps(report.as_dict()))
    assert found["rows"][1] == {
        **{"name": "upper case", "lines": 200, "chrf_plain": 12.34, "chrf_reference": 11.0, "length": 0.5},
        **{"loops": 30, "copies": 1, "empty": 0, "lost": None},
    }


# ---- The command, with a model that copies letters, badly

MODEL = ["--checkpoint", "model.safetensors", "--device", "cpu"]
COMMAND = ["evaluate", *MODEL, "--source", "t.en", "--reference", "t.de"]
GREEDY = ["decode=greedy", "decode.max_extra_length=2"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "model.safetensors").write_bytes((FOLDER / "joint-pre.safetensors").read_bytes())
    for name, seed in (("t.en", 5), ("t.de", 6)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in ["", *sentences(6, seed=seed)]))
    return tmp_path


def test_the_table_is_printed_behind_the_scores_and_is_in_the_json(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[list[str]] = []
    translate = Translator.translate

    def counted(self: Translator, lines: list[str], **options: Any) -> list[Translated]:
        calls.append(lines)
        return translate(self, lines, **options)

    monkeypatch.setattr(Translator, "translate", counted)
    alone = run([*COMMAND, *GREEDY], folder)
    assert (alone.code, len(calls)) == (0, 1), alone.err
    ran = run([*COMMAND, *GREEDY, "--robustness"], folder)
    assert ran.code == 0, ran.err
    assert ran.out.startswith(alone.out)
    assert f"t.en: translating {len(calls[2]):,} perturbed lines\n".encode() in ran.err
    assert [len(lines) for lines in calls[:2]] == [7, 7], "the test set is translated once, and perturbations together"
    title, _, *table = ran.out.removeprefix(alone.out).decode().split("\n")
    assert title == f"robustness suite {VERSION}, seed 1, 6 lines of 7"
    assert [line.split("  ")[0] for line in table[:-3]] == ["plain", *BY_NAME]
    as_json = [*COMMAND, *GREEDY, "--robustness", "--json"]
    printed = run(as_json, folder).out
    assert printed == run(as_json, folder).out
    found = json.loads(printed)["robustness"]
    assert (found["suite"], found["seed"], found["lines"]) == (VERSION, 1, 6)
    upper = found["rows"][1]
    assert table[1].split()[2:5] == ["6", f"{upper['chrf_plain']:.1f}", f"{upper['chrf_reference']:.1f}"]
    suite = make_suite((folder / "t.en").read_text().split("\n")[:-1], n_lines=500, seed=1)
    assert calls[2] == suite.sources
    pasted = run([*COMMAND, *GREEDY, "--robustness", "--table", "csv"], folder)
    assert (pasted.out.count(b"\r\n"), ran.out.removeprefix(alone.out) in pasted.err) == (2, True)
    fewer = run([*COMMAND, *GREEDY, "--robustness", "robustness_lines=2", "seed=3"], folder).out.decode()
    assert f"robustness suite {VERSION}, seed 3, 2 lines of 7\n" in fewer


def test_robustness_is_refused_where_nothing_is_translated(folder: Path) -> None:
    given = ["evaluate", "--reference", "t.de", "--hypotheses", "t.en"]
    for more in (["--robustness"], ["robustness_lines=3", "--robustness"]):
        refused([*given, *more], folder, code=2, says=["--hypotheses t.en is an input"])
    refused([*COMMAND, "robustness_lines=3"], folder, code=2, says=["robustness_lines=3: ", "Add --robustness"])
    written(folder, classifier_file(), "classifier")
    (folder / "text").write_bytes(language_model_content())
    for model, what in (("classifier", "a classifier"), ("text", "a language model")):
        command = ["evaluate", "--checkpoint", model, "--source", "t.en", "--robustness", "--device", "cpu"]
        refused(command, folder, code=2, says=["--robustness: for translations; ", what])


def test_lines_without_text_have_no_robustness(folder: Path) -> None:
    for name in ("t.en", "t.de"):
        (folder / name).write_text("\n \n")
    ran = run([*COMMAND, "--robustness", "--json"], folder)
    assert ran.code == 0
    assert b"t.en: no line that could be perturbed" in ran.err
    assert "robustness" not in json.loads(ran.out)


# ---- The model card


def test_the_card_of_a_model_has_the_table_of_its_run_or_of_scores(folder: Path) -> None:
    model = folder / "model.safetensors"
    bare = run(["inspect", str(model), "--card"], folder).out.decode()
    assert "## Robustness" not in bare
    scores = run([*COMMAND, *GREEDY, "--robustness", "--json"], folder).out
    (folder / "scores").write_bytes(scores)
    card = run(["inspect", str(model), "--card", "--scores", "scores"], folder).out.decode()
    of_suite = card.split("## Robustness\n\n")[1].split("\n\n## Hashes")[0]
    assert of_suite.startswith("The source lines of t.en, perturbed (robustness suite 3, seed 1, 6 lines of 7; search:")
    rows = [line.split(" | ")[0].removeprefix("| ") for line in of_suite.split("\n") if line.startswith("| ")]
    assert rows == ["source lines", "---", "plain", *BY_NAME]

    found = json.loads(scores)
    in_run = {**found["robustness"], **{key: found[key] for key in ("test_set", "search", "model_sha256")}}
    (folder / "robustness.json").write_text(json.dumps(in_run))
    assert of_suite in run(["inspect", str(model), "--card"], folder).out.decode()
    in_run["rows"][1]["chrf_plain"] = 12.5
    for spoilt, says in (
        (json.dumps({**in_run, "model_sha256": ["0" * 64]}), b"is of another model than"),
        (json.dumps({**in_run, "rows": [{"name": "plain"}]}), b"cannot be read, or was not written by tfm"),
        (json.dumps({**in_run, "lines": -1}), b"cannot be read, or was not written by tfm"),
        ("[]", b"cannot be read, or was not written by tfm"),
        ("", b"cannot be read, or was not written by tfm"),
    ):
        (folder / "robustness.json").write_text(spoilt)
        ran = run(["inspect", str(model), "--card"], folder)
        assert (ran.code, ran.out.decode()) == (0, bare)
        assert says in ran.err
    (folder / "robustness.json").unlink()
    (folder / "scores").write_text(json.dumps({**found, "robustness": {"rows": []}}))
    refused(["inspect", str(model), "--scores", "scores"], folder, code=2, says=["--scores scores: not what"])


def test_an_export_keeps_the_table_of_the_run(folder: Path) -> None:
    pytest.importorskip("ctranslate2")
    found = json.loads(run([*COMMAND, *GREEDY, "--robustness", "--json"], folder).out)
    in_run = {**found["robustness"], **{key: found[key] for key in ("test_set", "search", "model_sha256")}}
    (folder / "robustness.json").write_text(json.dumps(in_run))
    assert run(["export", "ctranslate2", "--checkpoint", "model.safetensors", "--output", "out"], folder).code == 0
    assert "## Robustness\n\nThe source lines of t.en" in (folder / "out" / "README.md").read_text()
    assert "## Robustness\n\nThe source lines of t.en" in run(["inspect", "out", "--card"], folder).out.decode()
