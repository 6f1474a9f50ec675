"""scripts/bench_alignment.py: the alignment error rate, symmetrised links and placed tags, by hand."""

import sys
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import ROOT

sys.path.insert(0, str(ROOT / "scripts"))
import bench_alignment as bench
import tag_placement as tags

ALIGNMENT = ROOT / "benchmarks" / "alignment"
TAGGED = [ALIGNMENT / "tags_en_fr.tsv", ALIGNMENT / "tags_en_de.tsv"]
each_file = pytest.mark.parametrize("tagged", TAGGED, ids=lambda path: path.stem)


def test_the_error_rate_is_that_of_och_and_ney() -> None:
    found, sure, possible = [{(0, 0), (1, 1), (2, 2)}], [{(0, 0), (3, 3)}], [{(1, 1)}]
    # A and S have one link in common, A and P two: 1 - (1 + 2) / (3 + 2); precision 2 of 3, recall 1 of 2.
    assert bench.error_rate(found, sure, possible).row() == "66.7 % | 50.0 % | 40.0 %"
    assert bench.error_rate(sure, sure, possible).row() == "100.0 % | 100.0 % | 0.0 %"


def test_the_parts_are_those_of_lengths_and_of_words_and_punctuation() -> None:
    pairs = [("a red car .", "une voiture rouge ."), ("w " * 11, "v " * 30)]
    found = {name: [len(links) for links in of_pairs] for name, of_pairs in bench.parts(pairs)}
    assert found == {
        "to 10 words": [16, 0],
        "to 18 words": [0, 0],
        "to 26 words": [0, 0],
        "from 27 words": [0, 330],
        "words": [9, 330],
        "punctuation": [7, 0],
    }


def test_gold_links_are_sure_or_possible_and_count_from_one(tmp_path: Path) -> None:
    (tmp_path / "gold").write_text("1-1 2p3\n\n")
    assert bench.read_gold(tmp_path / "gold", 1) == ([{(0, 0)}, set()], [{(1, 2)}, set()])


def test_links_grow_from_those_of_both_directions() -> None:
    assert bench.symmetrised({(0, 0), (1, 1), (3, 5)}, {(0, 0), (2, 1)}) == {(0, 0), (1, 1), (2, 1), (3, 5)}
    assert bench.symmetrised({(0, 0), (0, 2)}, {(0, 0)}) == {(0, 0)}


def test_tags_are_compared_by_the_letters_before_and_within() -> None:
    row = ("pair", "a <b>red</b> car<img>.", "une voiture <b>rouge</b> <img>.")
    for placed, right in (("une voiture<b> rouge</b><img> .", 2), ("une <b>voiture</b> rouge<img>.", 1)):
        total, found, wrong = bench.score([row], [placed])
        assert (total["pair"], found["pair"], wrong) == (2, right, [0] * (right < 2))


@each_file
def test_both_sides_of_the_tagged_sentences_have_the_same_tags(tagged: Path) -> None:
    rows = bench.read_rows(tagged)
    assert len(rows) == 150
    for _, source, target in rows:
        assert bench.tags_of(source).spans.keys() == bench.tags_of(target).spans.keys(), source


@each_file
def test_no_tagged_sentence_is_there_twice(tagged: Path) -> None:
    rows = bench.read_rows(tagged)
    for side in (1, 2):
        assert len({bench.tags_of(row[side]).text for row in rows}) == len(rows)


def test_the_kinds_of_tags_have_the_same_shares_in_each_language() -> None:
    of_french, of_german = (bench.score(bench.read_rows(path), [""] * 150)[0] for path in TAGGED)
    assert of_french == of_german


@each_file
def test_every_aligner_has_a_row(tagged: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bench.main(["tags", str(tagged)])
    rows = {
        row.split(" | ")[0]: float(row.split(" | ")[1].split()[0]) for row in capsys.readouterr().out.split("\n")[2:-1]
    }
    assert list(rows) == ["| position", "| tfm align"]
    assert rows["| position"] < rows["| tfm align"]


@each_file
def test_own_translations_are_scored_without_tags_and_by_the_letters_within(
    tagged: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def translations(path: str, rows: list[tuple[str, str, str]]) -> list[tuple[str, list[str]]]:
        targets = [target for _, _, target in rows]
        return [("whole", targets), ("without tags", [tags.tags_of(target).text for target in targets])]

    monkeypatch.setattr(bench, "own_translations", translations)
    bench.main(["own", str(tagged), "--model", "toy=runs/toy"])
    assert capsys.readouterr().out.split("\n")[2:-1] == [
        "| toy | whole | 100.0 | 100.0 | 204 of 204 |",
        "| toy | without tags | 100.0 | 100.0 | 0 of 204 |",
    ]


def test_the_links_of_eflomal_are_those_of_words_and_a_line_for_each_pair(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The tokens of `a cake?` and `un gâteau ?` are 3 and 3, and the words 2 and 3."""
    (tmp_path / "en").write_text("a cake?\n\nyes.\n", encoding="utf-8")
    (tmp_path / "fr").write_text("un gâteau ?\n\noui.\n", encoding="utf-8")
    links = [{(0, 0), (1, 1), (2, 2)}, {(0, 0), (1, 1)}]
    monkeypatch.setattr(bench, "of_eflomal", lambda folder: lambda work: (links, links))
    bench.main(["links", str(tmp_path / "en"), str(tmp_path / "fr"), "--eflomal", "eflomal"])
    assert capsys.readouterr().out == "0-0 1-1 1-2\n\n0-0\n"


# ---- Bergamot


def test_all_pieces_of_a_word_have_the_link_of_the_largest_weight() -> None:
    target = ["un", " vé", "lo", "."]
    weights = np.array([[0.9, 0.1, 0.0], [0.6, 0.4, 0.0], [0.2, 0.8, 0.0], [0.0, 0.4, 0.6]])
    assert tags.hard_links(target, weights) == [0, 1, 1, 2]
    weights[1] = 0.9, 0.1, 0.0
    assert tags.hard_links(target, weights) == [0, 0, 0, 2]


def test_a_space_takes_the_place_of_a_tag_between_two_words() -> None:
    text, stretches = tags.stretches_of("A <b>red</b>, <i>old <b>car</b></i><img>.")
    assert text == "A red , old car ."
    covered = [(text[one.start : one.end], one.tags) for one in stretches]
    assert covered == [
        ("", ()),
        ("A ", ()),
        ("red", (("b", 0),)),
        (", ", ()),
        ("old ", (("i", 0),)),
        ("car", (("i", 0), ("b", 1))),
        ("", (("img", 0),)),
        (".", ()),
        ("", ()),
    ]


@pytest.mark.parametrize(
    ("links", "placed"),
    [
        ([0, 2, 1, 3], "une voiture <b>rouge</b> .<img>"),
        ([0, 1, 2, 3], "une <b>voiture</b> rouge .<img>"),
        ([1, 2, 1, 3], "<b>une</b> voiture <b>rouge</b> .<img>"),
        ([0, 3, 1, 2], "une <img>voiture <b>rouge</b> ."),
    ],
)
def test_a_target_piece_has_the_tags_of_the_source_piece_that_it_is_linked_to(links: list[int], placed: str) -> None:
    _, stretches = tags.stretches_of("a <b>red</b> car <img>.")
    alignment = tags.SoftAlignment(["a", " red", " car", " ."], ["une", " voiture", " rouge", " ."], np.eye(4)[links])
    assert tags.placed_by_bergamot(stretches, alignment) == placed


# ---- LibreTranslate


FRENCH = {
    "a red car .": "une voiture rouge .",
    "a": "un",
    "red": "rouge",
    "car .": "auto .",
    "red car": "voiture rouge",
    ".": ".",
    "car": "voiture",
    "a dear car .": "une voiture chère .",
    "dear": "cher",
}


@pytest.mark.parametrize(
    ("source", "by_search", "by_tag"),
    [
        ("a <b>red</b> car .", "une voiture <b>rouge</b> .", "un <b>rouge</b> auto ."),
        ("a <b>red</b> <i>car</i> .", "une <i>voiture</i> <b>rouge</b> .", "un <b>rouge</b> <i>voiture</i> ."),
        ("a <b>red <i>car</i></b> .", "un <b><i>voiture</i> rouge</b> .", "un <b>rouge <i>voiture</i></b> ."),
        ("a <b>dear</b> car .", "un <b>cher</b> auto .", "un <b>cher</b> auto ."),
        ("a <b>red</b> <img> car .", "un <b>rouge</b> <img> auto .", "un <b>rouge</b> <img> auto ."),
        ("a red car .", "une voiture rouge .", "une voiture rouge ."),
    ],
)
def test_the_text_of_tags_is_translated_by_itself(source: str, by_search: str, by_tag: str) -> None:
    tree = tags.tree_of(source)
    known = {text: FRENCH.get(text, "nothing") for text in tags.fragments(tree)}
    assert tags.tag_by_tag(tree, known) == by_tag
    assert tags.placed_by_search(tree, known) == by_search
