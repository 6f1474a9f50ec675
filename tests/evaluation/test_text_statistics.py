"""What `tfm evaluate` counts beside the scores. Expected values are counted by hand, or are sacrebleu's."""

import gzip
import json
from collections import Counter
from pathlib import Path

import pytest
from sacrebleu.metrics.bleu import BLEU

from tests.support.contract import run
from tests.support.each import each
from transformer_cli.evaluation.metrics import Translations
from transformer_cli.evaluation.text_statistics import Losses, TextStatistics, is_copy, text_statistics
from transformer_cli.evaluation.verbatim import links, numbers, without_number


@each(
    "text",
    [
        *("1,000.5", "1.000,5", "1 000,5", "1\u00a0000,5", "1\u202f000,5", "1'000.5", "1’000,5", "1000.5"),
        *(
            "١٬٠٠٠٫٥",
            "١٠٠٠٫٥",
            "۱۰۰۰٫۵",
            "१,०००.५",
            "１，０００．５",
            "１０００．５",
            "CHF 1'000.5.",
            "есть 1 000,5 кг",
            "有1,000.5克",
        ),
    ],
)
def test_a_number_is_the_same_in_every_format(text: str) -> None:
    assert numbers(text) == Counter({"1000": 1, "5": 1})


@each(
    "text, expected",
    [
        ("", []),
        ("three cats", []),
        ("1,00,000 and 12,34,567", ["100000", "1234567"]),  # India
        ("1,000,000 1.000.000 1 000 000", ["1000000"] * 3),
        ("100, 200, 300", ["100", "200", "300"]),
        ("in 1990 200 people", ["1990", "200"]),  # a blank only between groups of three
        ("10:30, 10.30", ["10", "30"] * 2),
        ("12.05.2024", ["12", "5", "2024"]),
        ("5/12/2024", ["5", "12", "2024"]),
        ("007 0 00", ["7", "0", "0"]),
        ("mp3 007", ["3", "7"]),
        ("B2B in the 1990s, the 2nd", ["2", "1990", "2"]),
        ("see https://example.com/2024?id=7 and a1@b2.org, 3", ["3"]),  # those of links belong to the links
    ],
)
def test_numbers_are_found(text: str, expected: list[str]) -> None:
    assert numbers(text) == Counter(expected)


@each(
    "text, expected",
    [
        ("(https://a.de/b?x=1&y=2), or www.x.org!", ["https://a.de/b?x=1&y=2", "www.x.org"]),
        ("访问https://example.com查看，或www.x.cn。", ["https://example.com", "www.x.cn"]),
        ("Mail me.too+x@mail.example.co.uk.", ["me.too+x@mail.example.co.uk"]),
        ("« http://a.fr/é » ftp://b", ["http://a.fr/", "ftp://b"]),
        ("e.g. this.that @home a@b http:// www", []),
    ],
)
def test_urls_and_addresses_are_found_without_the_punctuation_behind_them(text: str, expected: list[str]) -> None:
    assert links(text) == Counter(expected)


def test_a_number_is_taken_out_in_the_format_that_it_has_there() -> None:
    assert without_number("ein 250.000 zwei 250.000", "250000") == "ein  zwei 250.000"
    assert without_number("ein 25 zwei", "250000") == "ein 25 zwei"


SOURCES = [
    "It costs 1,000.5 or 30.",
    "See https://example.com/a now.",
    "The cat sat on the mat.",
    "He came home.",
    "",
    "He said <unk> to her.",
    "Room 5, floor 12.",
]
REFERENCES = [
    "Es kostet 1.000,5 oder 30.",
    "Siehe https://example.com/a jetzt.",
    "Die Katze saß auf der Matte.",
    "Er kam heim.",
    "",
    "Er sagte es ihr.",
    "Zimmer fünf, Stock 12.",
]
HYPOTHESES = [
    "Es kostet 1 000,5 oder dreißig.",  # 30 is lost
    "Siehe https://example.com/b jetzt.",  # the URL is lost
    "the cat sat on the mat.",  # a copy
    "",  # empty
    "",  # as it should be
    "Er sagte <unk> ⁇ zu ihr.",  # one of them is in the source, the other is not
    "Zimmer 5, Stock Stock Stock Stock Stock 12.",  # a loop
]


def test_everything_is_counted_where_there_are_sources() -> None:
    found = text_statistics(Translations(HYPOTHESES, [REFERENCES], SOURCES))
    n_words, n_reference = 6 + 3 + 6 + 0 + 0 + 6 + 8, 5 + 3 + 6 + 3 + 0 + 4 + 4
    assert found == TextStatistics(
        n_lines=7,
        length_ratio=n_words / n_reference,
        length_unit="words",
        n_loops=1,
        n_copies=1,
        n_empty=2,
        n_empty_wrongly=1,
        n_unknown=1,
        numbers=Losses(n_lines=2, n_lost=1, n_lost_in_reference=1),
        links=Losses(n_lines=1, n_lost=1, n_lost_in_reference=0),
        compared_with="source",
    )
    assert found.as_dict()["numbers"] == {"lines": 2, "lost": 1, "lost_in_reference": 1}
    first, *rows = found.lines()
    assert first.startswith("length ratio 1.160 in words")
    assert rows == [
        "loops: 1 of 7 lines (14.3 %)",
        "empty lines: 1 of 7 lines (14.3 %)",
        "unknown signs: 1 of 7 lines (14.3 %)",
        "copies of the source: 1 of 7 lines (14.3 %)",
        "numbers lost: 1 of 2 lines (50.0 %) with some in the source; the reference loses some in 1",
        "URLs lost: 1 of 1 line (100.0 %) with some in the source; the reference loses some in 0",
    ]


def test_without_sources_the_reference_has_what_may_be_lost_and_copies_are_not_counted() -> None:
    found = text_statistics(Translations(HYPOTHESES, [REFERENCES]))
    assert (found.n_copies, found.compared_with) == (None, "reference")
    assert found.numbers == Losses(n_lines=2, n_lost=1)
    assert found.as_dict()["urls"] == {"lines": 1, "lost": 1}
    assert found.n_unknown == 1


def test_of_several_references_all_must_have_what_is_lost() -> None:
    other = [*REFERENCES]
    other[0] = "Es kostet tausend oder 30."
    assert text_statistics(Translations(HYPOTHESES, [REFERENCES, other])).numbers == Losses(n_lines=2, n_lost=1)
    other[0] = "Es kostet tausend oder dreißig."
    assert text_statistics(Translations(HYPOTHESES, [REFERENCES, other])).numbers == Losses(n_lines=1, n_lost=0)


def test_what_is_well_takes_one_line() -> None:
    found = text_statistics(Translations(REFERENCES[:3], [REFERENCES[:3]], SOURCES[:3]))
    assert found.lines() == [
        "length ratio 1.000 in words; no loops, no empty lines, no unknown signs, no copies of the source,"
        " numbers kept (1 line), URLs kept (1 line)"
    ]


def test_a_text_without_any_words_has_no_length_ratio() -> None:
    found = text_statistics(Translations(["", "a"], [["", ""]]))
    assert (found.length_ratio, found.n_empty, found.n_empty_wrongly) == (None, 1, 0)
    assert found.lines()[0].startswith("length ratio none; ")


def test_without_blanks_length_is_counted_in_characters_and_a_copy_is_found() -> None:
    sources, references = ["他在读一本书。", "早上好。"], ["He reads a book.", "Good morning."]
    found = text_statistics(Translations(references, [sources]))
    assert (found.length_unit, found.length_ratio) == ("characters", (13 + 12) / (7 + 4))
    assert is_copy("他在读一本书。", sources[0])
    assert not is_copy("彼は本を読んでいる。", sources[0])
    assert text_statistics(Translations(["한국어 말이다"], [["한국어 말이다"]])).length_unit == "words"


@pytest.mark.parametrize("n_references", [1, 2])
def test_the_length_ratio_is_that_of_bleu_where_its_tokens_are_words(shared_data: Path, n_references: int) -> None:
    with gzip.open(shared_data / "multi30k" / "train.de.gz", "rt", encoding="utf-8") as file:
        lines = [
            "".join(c for c in line if c.isalpha() or c == " ").strip()
            for line, _ in zip(file, range(600), strict=False)
        ]
    hypotheses, references = lines[:200], [lines[200 * k : 200 * (k + 1)] for k in range(1, n_references + 1)]
    expected = BLEU(tokenize="none").corpus_score(hypotheses, references)
    found = text_statistics(Translations(hypotheses, references))
    assert found.length_ratio == pytest.approx(expected.sys_len / expected.ref_len, rel=1e-12)


def test_evaluate_prints_them_under_the_scores_and_in_the_json(tmp_path: Path) -> None:
    for name, lines in (("s.en", SOURCES), ("r.de", REFERENCES), ("h.de", HYPOTHESES)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    command = ["evaluate", "--hypotheses", "h.de", "--reference", "r.de", "metrics=[chrf]"]
    for more, sources in (([], []), (["--source", "s.en"], SOURCES)):
        expected = text_statistics(Translations(HYPOTHESES, [REFERENCES], sources))
        _, score, *printed = run([*command, *more], tmp_path).out.decode().removesuffix("\n").split("\n")
        assert score.startswith("chrF2")
        assert printed == expected.lines()
        assert json.loads(run([*command, *more, "--json"], tmp_path).out)["statistics"] == expected.as_dict()
