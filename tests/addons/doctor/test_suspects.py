"""`tfm doctor --suspects N`: wrong pairs in made-up text come out first, with their lines and the reasons."""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from transformer_cli.addons.doctor import suspects
from transformer_cli.addons.doctor.suspects import Suspects, find_suspects
from transformer_cli.cli import main
from transformer_cli.config.compose import load_config
from transformer_cli.data.cleaning import clean_corpora
from transformer_cli.data.cleaning.base import FILTERS, Languages, PairTexts
from transformer_cli.data.lines import Lines
from transformer_cli.data.readers import Corpus, reader_of
from transformer_cli.data.readers.builtin import read_builtin
from transformer_cli.errors import ConfigError

Pairs = list[tuple[str, str]]


@pytest.fixture(scope="module")
def pairs() -> Pairs:
    """2,000 English-French pairs, all of them translations."""
    return read_builtin("demo_en_fr", "train")[:2000]


def longest(pairs: Pairs, row: int) -> int:
    """The row of the longest pair of the ten from `row` on: faults of short lines are not always certain."""
    return max(range(row, row + 10), key=lambda one: len(pairs[one][0]))


def faulty(pairs: Pairs) -> tuple[Pairs, dict[int, str]]:
    """The pairs with twelve faults, and by row the filter that is to find each."""
    rows = [longest(pairs, 100 + 150 * number) for number in range(12)]
    broken, expected = list(pairs), {}
    english = "The dog of the neighbour sleeps in the garden all day long."
    german = "Der alte Mann wartet seit dem frühen Morgen vor dem Haus."
    faults: list[tuple[str, Callable[[str, str], tuple[str, str]]]] = [
        ("word_alignment", lambda s, t: (s, pairs[longest(pairs, 1900)][1])),
        ("word_alignment", lambda s, t: (s, pairs[longest(pairs, 1960)][1])),  # with little in common
        ("swapped", lambda s, t: (t, s)),
        ("swapped", lambda s, t: (t, s)),
        ("copies", lambda s, t: (s, s)),
        ("copies", lambda s, t: (t, t.lower())),
        ("language", lambda s, t: (s, german)),
        ("language", lambda s, t: (s, english)),
        ("empty", lambda s, t: (s, "...")),
        ("length_ratio", lambda s, t: (s, "Oui.")),
        ("mojibake", lambda s, t: (s, f"{t} déjà".encode().decode("cp1252"))),
        ("markup", lambda s, t: (f'<p class="x">{s}</p>', t)),
    ]
    for row, (name, spoil) in zip(rows, faults, strict=True):
        broken[row], expected[row] = spoil(*pairs[row]), name
    return broken, expected


def arguments(folder: Path, *more: str) -> list[str]:
    return ["data=files", f"data.cache={folder}/cache", "data.source_lang=en", "data.target_lang=fr", *more]


def write(folder: Path, pairs: Pairs, name: str = "train") -> str:
    """Write two files; the names of both."""
    names = [f"{folder}/{name}.{language}" for language in ("en", "fr")]
    for side, file in enumerate(names):
        Path(file).write_text("".join(f"{pair[side]}\n" for pair in pairs), encoding="utf-8")
    return ",".join(names)


def found_in(folder: Path, pairs: Pairs, n: int, *more: str) -> Suspects:
    config = load_config("doctor", arguments(folder, f"data.train=[{write(folder, pairs)}]", *more))
    return find_suspects(config.data, n)


def first_reasons(found: Suspects) -> dict[int, str]:
    """The filter that is most certain, by the line of the source."""
    return {suspect.source.number: suspect.reasons[0].filter for suspect in found.worst}


def test_twelve_faults_are_the_suspects_each_with_its_line_and_its_reason(pairs: Pairs, tmp_path: Path) -> None:
    broken, expected = faulty(pairs)
    found = found_in(tmp_path, broken, 12)
    assert first_reasons(found) == {row + 1: name for row, name in expected.items()}
    assert (found.n_read, found.n_found) == (2000, 12)
    for suspect in found.worst:
        row = suspect.source.number - 1
        assert suspect.texts == broken[row]
        assert str(suspect.source) == f"{tmp_path}/train.en:{row + 1}"
        assert str(suspect.target) == f"{tmp_path}/train.fr:{row + 1}"
    scores = [suspect.score for suspect in found.worst]
    assert scores == sorted(scores, reverse=True)
    # A copy is in the language of the other side, too. The faults of translations are the last.
    assert [suspect.reasons[0].filter for suspect in found.worst[:2]] == ["copies", "copies"]
    assert {suspect.reasons[0].filter for suspect in found.worst[-2:]} == {"markup", "mojibake"}


def test_fewer_are_the_first_of_more_whatever_the_parts(
    pairs: Pairs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken, _ = faulty(pairs)
    found = found_in(tmp_path, broken, 12)
    monkeypatch.setattr(clean_corpora, "PART", 170)
    fewer = found_in(tmp_path, broken, 4)
    assert fewer.worst == found.worst[:4]
    assert fewer.n_by_filter == found.n_by_filter


@pytest.mark.slow
def test_several_processes_find_what_one_does(pairs: Pairs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken, _ = faulty(pairs)
    one = found_in(tmp_path, broken, 12)
    monkeypatch.setattr(clean_corpora, "PART", 300)
    monkeypatch.setattr(suspects, "n_workers", lambda n_pairs: 2)
    assert found_in(tmp_path, broken, 12).worst == one.worst


def test_in_clean_text_no_pair_is_suspect(pairs: Pairs, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--suspects", "5", *arguments(tmp_path, f"data.train=[{write(tmp_path, pairs)}]")]) == 0
    assert capsys.readouterr().out == "none of 2,000 training pairs is suspect\n"


def test_shifted_lines_are_named_with_those_of_their_translations(pairs: Pairs, tmp_path: Path) -> None:
    block = range(500, 540)
    shifted = list(pairs)
    for row in block:
        shifted[row] = pairs[row][0], pairs[row - 1 if row > block[0] else block[-1]][1]
    found = found_in(tmp_path, shifted, 60)
    moved = [suspect for suspect in found.worst if suspect.reasons[0].what.startswith("with its translation in")]
    assert len(moved) > len(block) / 4
    for suspect in moved:
        line = suspect.target.number
        assert suspect.reasons[0].what == f"with its translation in line {line + 1}"
        assert line - 1 in block
    assert {suspect.source.number - 1 for suspect in found.worst} <= set(block)


def test_filters_of_auto_are_asked_but_for_those_that_data_clean_leaves_out(pairs: Pairs, tmp_path: Path) -> None:
    broken, _ = faulty(pairs)
    found = found_in(tmp_path, broken, 12, "data.clean=[auto,-copies,-language]")
    assert not {"copies", "language"} & found.n_by_filter.keys()
    assert found.n_by_filter["swapped"] == 2


# ---- Where pairs are


def test_rows_of_a_table_and_lines_of_the_second_corpus_are_numbered_in_their_files(
    pairs: Pairs, tmp_path: Path
) -> None:
    tables = tmp_path / "a.csv", tmp_path / "b.tsv"
    for table, mark, some in zip(tables, (",", "\t"), (pairs[:150], pairs[150:300]), strict=True):
        rows = [mark.join(f'"{side}"' for side in pair) for pair in (("fr", "en"), *((t, s) for s, t in some))]
        table.write_text("\n".join(rows), encoding="utf-8")
    rows = tables[0].read_text(encoding="utf-8").split("\n")
    rows[41] = '"I see the red house there.","I see the red house there."'
    tables[0].write_text("\n".join(rows), encoding="utf-8")
    rows = tables[1].read_text(encoding="utf-8").split("\n")
    rows[77] = '"Les enfants sont allés à la plage."\t"Les enfants sont allés à la plage."'
    tables[1].write_text("\n".join(rows), encoding="utf-8")
    config = load_config("doctor", arguments(tmp_path, f"data.train=[{tables[0]},{tables[1]}]"))
    found = find_suspects(config.data, 5)
    assert [str(suspect.source) for suspect in found.worst] == [f"{tables[0]}: row 42", f"{tables[1]}:78"]
    assert all(suspect.source == suspect.target for suspect in found.worst)


def test_lines_are_counted_with_those_that_cannot_be_read(pairs: Pairs, tmp_path: Path) -> None:
    broken = [*pairs[:200], ("Yes, the cat sleeps here.", "Yes, the cat sleeps here."), *pairs[200:300]]
    names = write(tmp_path, broken)
    english = Path(names.split(",")[0])
    english.write_bytes(english.read_bytes().replace(f"{pairs[10][0]}\n".encode(), b"\xff\n", 1))
    config = load_config("doctor", arguments(tmp_path, f"data.train=[{names}]", "data.on_bad=skip"))
    found = find_suspects(config.data, 5)
    assert (found.n_read, [suspect.source.number for suspect in found.worst]) == (300, [201])


def test_pairs_that_are_in_no_file_are_numbered() -> None:
    corpus = reader_of(load_config("doctor", ["data=demo_en_fr"]).data).corpora("train")
    assert corpus is not None
    lines, pair = next(suspects._numbered(corpus[0], []))
    assert lines == ()
    assert pair == read_builtin("demo_en_fr", "train")[0]
    assert set(map(str, suspects._Places(corpus[0], [], "demo_en_fr").of(1200, ()))) == {"demo_en_fr: pair 1,200"}


def test_the_readers_of_plugins_may_read_ahead(tmp_path: Path) -> None:
    def ahead(files: Sequence[Lines]) -> Iterator[tuple[str, str]]:
        return iter([(line, line) for line in list(files[0].each())])

    lines = Lines("text", ["a", "b"])
    assert list(suspects._numbered(Corpus((), ahead), [lines])) == [((), ("a", "a")), ((), ("b", "b"))]


# ---- What is printed


def test_text_has_places_reasons_and_texts_without_what_a_terminal_obeys(
    pairs: Pairs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = "The cat sleeps \x1b[31min the red house. " * 8
    names = write(tmp_path, [*pairs[:30], (line, line), *pairs[30:300]])
    assert main(["doctor", "--suspects", "1", *arguments(tmp_path, f"data.train=[{names}]")]) == 0
    first, blank, place, *reasons, source, target = capsys.readouterr().out.splitlines()
    assert first == "1 of 301 training pairs are suspect (copies 1, language 1)"
    assert (blank, place) == ("", f"1. {tmp_path}/train.en:31 and {tmp_path}/train.fr:31")
    assert reasons[0] == "   with the same sentence on both sides (copies, 1.00)"
    assert source == target
    assert source.startswith("   | The cat sleeps \\x1b[31min the red house.")
    assert source.endswith("…")
    assert len(source) < 200


def test_json_has_whole_texts_and_the_numbers_of_lines(
    pairs: Pairs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = write(tmp_path, [*pairs[:30], ("A cat sleeps here. " * 40,) * 2, *pairs[30:300]])
    assert main(["doctor", "--suspects", "3", "--json", *arguments(tmp_path, f"data.train=[{names}]")]) == 0
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert (report["pairs"], report["found"], report["found_by_filter"]) == (301, 1, {"copies": 1, "language": 1})
    (suspect,) = report["suspects"]
    assert suspect["source"] == {"file": f"{tmp_path}/train.en", "line": 31, "text": "A cat sleeps here. " * 40}
    assert suspect["target"] == suspect["source"] | {"file": f"{tmp_path}/train.fr"}
    assert [reason["filter"] for reason in suspect["reasons"]] == ["copies", "language"]
    assert suspect["score"] == pytest.approx(sum(reason["certainty"] for reason in suspect["reasons"]), abs=1e-4)


@pytest.mark.parametrize("n", ["0", "-3"])
def test_no_suspects_or_fewer_cannot_be_asked_for(n: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", f"--suspects={n}", *arguments(tmp_path)]) == 2
    assert f"suspects={n}" in capsys.readouterr().err


def test_what_is_no_translation_is_refused(tmp_path: Path) -> None:
    config = load_config("doctor", ["data=demo_summaries", f"data.cache={tmp_path}"])
    with pytest.raises(ConfigError, match=r"^suspects=3: data=demo_summaries has no translations.* Leave it out$"):
        find_suspects(config.data, 3)


# ---- How certain filters are


def test_the_certainty_of_a_filter_grows_with_the_fault(pairs: Pairs) -> None:
    text = PairTexts([source for source, _ in pairs], [target for _, target in pairs], np.arange(len(pairs)))
    ratio = FILTERS["length_ratio"](Languages("en", "fr"), 6)
    ratio.learn(text)
    source = "x" * 60
    lines = PairTexts([source] * 4, ["y" * n for n in (10, 6, 3, 1)], np.arange(4))
    assert ratio.apply(lines).dropped.all()
    found = ratio.suspicion(lines).tolist()
    assert found == sorted(found)
    assert 0.5 <= found[0] < found[-1] < 1

    words = FILTERS["word_alignment"](Languages("en", "fr"), 0.5)
    words.learn(text)
    unrelated = PairTexts(text.sources[:400], text.targets[1000:1400], text.numbers[:400] * 1000)
    dropped = unrelated.pick(words.apply(unrelated).dropped)
    found = words.suspicion(dropped).tolist()
    assert len(found) > 200
    assert 0.5 <= min(found) < max(found) <= 1
