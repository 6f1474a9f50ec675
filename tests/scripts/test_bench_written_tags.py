"""scripts/bench_written_tags.py: text with tags, and what becomes of tags that a model writes."""

import sys
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from tests.conftest import ROOT
from tests.support.each import each
from transformer_cli.data.numbered_tags import counted_tags, without_tags

sys.path.insert(0, str(ROOT / "scripts"))
import bench_written_tags as bench


def test_phrases_are_tagged_that_are_translations_of_each_other(tmp_path: Path) -> None:
    source, target = "I bought a red car.", "J'ai acheté une voiture rouge."
    for name, line in (("a.en", source), ("a.fr", target), ("a.links", "0-0 1-1 2-2 3-4 4-3")):
        (tmp_path / name).write_text(f"{line}\n" * 400, encoding="utf-8")
    bench.main(["text", *(str(tmp_path / name) for name in ("a.en", "a.fr", "a.links")), str(tmp_path / "out")])
    texts = [(tmp_path / f"out.{side}").read_text(encoding="utf-8").splitlines() for side in ("en", "fr")]
    assert 120 < len(texts[0]) == len(texts[1]) < 280  # a half of 400, where a phrase was found
    pairs = set(zip(*texts, strict=True))
    assert ("I bought a <1> red </1> car.", "J'ai acheté une voiture <1> rouge </1>.") in pairs
    assert ("I bought a <1/> red car.", "J'ai acheté une voiture <1/> rouge.") in pairs
    for one, other in pairs:
        assert (without_tags(one).split(), without_tags(other).split()) == (source.split(), target.split())
        assert counted_tags(one) == counted_tags(other)


def test_a_phrase_with_another_s_words_in_its_translation_is_not_taken() -> None:
    links = [(0, 1), (1, 0), (2, 1)]  # that of the first word is the third one's, too
    found = {bench.linked_phrase(["a", "b", "c"], ["B", "AC"], links, Random(seed)) for seed in range(200)}
    assert found == {None, ((1, 1), (0, 0)), ((0, 2), (0, 1))}


@each(
    "words, spans, text",
    [
        ("a b c.", [(0, 2), (1, 2)], "<1>a <2>b c</2></1>."),
        ('say "yes" now', [(1, 1)], 'say "<1>yes</1>" now'),
        ("a b c", [(0, 0), (1, 2)], "<1>a</1> <2>b c</2>"),
    ],
)
def test_outer_tags_have_the_lower_numbers_and_punctuation_stays_outside(
    words: str, spans: Sequence[tuple[int, int]], text: str
) -> None:
    assert bench.with_tags(words.split(), spans) == text


def test_written_tags_count_if_each_is_there_once_and_they_are_nested() -> None:
    text, tags = bench.numbered("<b>a <i>b</i></b> <img> c")
    assert text == "<1>a <2>b</2></1> <3/> c"
    assert bench.named("<3/> <2>B</2> <1>A</1>", tags) == "<img> <i>B</i> <b>A</b>"
    for wrong in (
        "<3/> <1>A</1>",
        "<1>A <2>B</1></2> <3/>",
        "<1>A</1> <1>A</1> <2>B</2> <3/>",
        "</1>A<1> <2>B</2> <3/>",
    ):
        assert bench.named(wrong, tags) is None


def test_a_table_has_each_way(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(bench, "ways", lambda path, rows, glued: iter([(path, [target for _, _, target in rows])]))
    bench.main(["measure", str(ROOT / "benchmarks/alignment/tags_en_fr.tsv"), "--model", "one=reference"])
    assert capsys.readouterr().out.splitlines()[-1] == "| one | reference | 100.0 | 100.0 | 204 of 204 |"
