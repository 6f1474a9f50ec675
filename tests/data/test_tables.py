"""Tables as programs write them: fields in quotes, header rows, and text that only has quotes in it."""

import csv
import io
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from transformer_cli.cli import main
from transformer_cli.config.compose import load_config
from transformer_cli.config.data import DataConfig, OnBad, TokenizerConfig
from transformer_cli.data.column_names import is_header
from transformer_cli.data.corpus import load_text
from transformer_cli.data.lines import Lines
from transformer_cli.data.moses import tokenized_lines
from transformer_cli.data.prepare import prepare
from transformer_cli.data.readers import READERS
from transformer_cli.data.readers.quoting import is_quoted, unquoted
from transformer_cli.errors import ConfigError, DataError

# Sentences with all that makes csv write quotes, and some that do not need any.
PAIRS = [
    ("Good morning.", "Guten Morgen."),
    ('He said "yes" twice.', "Er sagte zweimal „ja“."),
    ('"No", she said.', '"Nein", sagte sie.'),
    ("a\tb", "tab"),
    ("one\ntwo", "eins\nzwei"),
    ('"', '""'),
    ("1, 2, 3", "1 und 2"),
    ("It's 5\" wide", "5 Zoll"),
    ('"Quite."', '"Durchaus."'),
    ('all of it: "\t\n"', "alles"),
]


def flat(text: str) -> str:
    return text.replace("\t", " ").replace("\n", " ")


def written(rows: Sequence[Sequence[str]], quoting: Any) -> str:
    file = io.StringIO(newline="")
    csv.writer(file, delimiter="\t", quoting=quoting, lineterminator="\r\n").writerows(rows)
    return file.getvalue()


def config(path: Path, text: str, **changes: Any) -> DataConfig:
    path = path / "table.tsv"
    path.write_bytes(text.encode())
    return DataConfig(**{"source_lang": "en", "target_lang": "de", "train": str(path), **changes})


def pairs_of(data: DataConfig) -> list[tuple[str, str]]:
    text = load_text(data, "train")
    assert text is not None
    return list(text.each())


@pytest.mark.parametrize("quoting", [csv.QUOTE_ALL, csv.QUOTE_MINIMAL, csv.QUOTE_NONNUMERIC])
def test_what_csv_writes_is_read_as_it_was(tmp_path: Path, caplog: pytest.LogCaptureFixture, quoting: Any) -> None:
    draw = random.Random(1)
    rows = [draw.choice(PAIRS) for _ in range(300)]
    data = config(tmp_path, written(rows, quoting))
    assert pairs_of(data) == [(flat(source), flat(target)) for source, target in rows]
    assert caplog.text.count("fields in quotes, which were read as csv writes them") == 1


def test_what_a_spreadsheet_writes_is_read_as_it_was(tmp_path: Path) -> None:
    """It puts fields with commas in quotes, too."""
    sentences = [(f"Yes, {n} of them.", f"Ja, {n} davon.") if n % 3 else (f"{n} of them.", f"{n}") for n in range(40)]
    rows = "".join("\t".join(f'"{field}"' if "," in field else field for field in row) + "\n" for row in sentences)
    assert pairs_of(config(tmp_path, rows)) == sentences


@pytest.mark.parametrize("header", ["", "en\tnote\tde\n"])
def test_a_tab_in_a_column_that_is_not_taken_moves_no_other(tmp_path: Path, header: str) -> None:
    rows = [(f"{n} cats", f"first{chr(9)}second" if n % 3 else "plain", f"{n} Katzen") for n in range(40)]
    data = config(tmp_path, header + written(rows, csv.QUOTE_MINIMAL), columns=["en", "de"] if header else [0, 2])
    assert pairs_of(data) == [(source, target) for source, _, target in rows]


PLAIN = [
    'He said "yes".\tEr sagte "ja".\n"Well", he began.\t"Nun", begann er.\n' * 20,
    '"Yes, sir."\t"Jawohl, Herr."\nNo, not I.\tNein, nicht ich.\nGo!\tGeh!\n' * 20,
    '5" wide\t5" breit\n' * 3 + "plain\ttext\n" * 30,
    '"open\tdie Klammer\n' * 50,
    "no quotes at all\tkeine\n" * 9,
    "plain\ttext\n" * 500 + '"Hello."\t"Hallo."\n' * 3,
]


@pytest.mark.parametrize("text", PLAIN)
def test_text_that_merely_has_quotes_stays_as_it_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    data = config(tmp_path, text)
    assert pairs_of(data) == [tuple(line.split("\t")) for line in text.split("\n")[:-1]]
    assert caplog.text == ""


def test_every_plain_table_of_these_pieces_is_plain_and_every_quoted_one_is_quoted() -> None:
    draw = random.Random(2)
    for _ in range(300):
        rows = [[draw.choice(PAIRS)[draw.random() < 0.5] for _ in range(2)] for _ in range(draw.randint(5, 40))]
        lines = Lines("table", written(rows, csv.QUOTE_ALL).replace("\r", "").split("\n")[:-1])
        assert is_quoted(lines, [0, 1])
        assert [row.split("\t") for _, row in unquoted(lines)] == [list(map(flat, row)) for row in rows]


def test_a_row_that_does_not_fit_is_refused_by_its_line_or_skipped(tmp_path: Path) -> None:
    rows = [f'"Nr. {n}"\t"No. {n}"\n' for n in range(40)]
    rows[20] = '"Nr. 20"\t"never closed\n'
    with pytest.raises(DataError, match=r"table\.tsv:21: quotes that do not fit, in a table with fields in quotes: "):
        pairs_of(config(tmp_path, "".join(rows)))
    found = pairs_of(config(tmp_path, "".join(rows), on_bad=OnBad.skip))
    assert found == [(f"Nr. {n}", f"No. {n}") for n in range(40) if n != 20]


def test_the_key_decides_where_it_is_set(tmp_path: Path) -> None:
    text = '"a"\t"b"\n' * 5
    assert pairs_of(config(tmp_path, text, quoted=False)) == [('"a"', '"b"')] * 5
    assert pairs_of(config(tmp_path, 'a "x"\tb\n"c"\td\n', quoted=True, on_bad=OnBad.skip)) == [("c", "d")]


# ---- Header rows


@pytest.mark.parametrize(
    "row",
    [
        *("en\tde", "English\tGerman", "EN-us\tde_DE", "en_GB\tde-at", "source\ttarget", "Source Text\tTarget Text"),
        '"src"\t"trg"',
    ],
)
def test_a_header_is_left_out_with_a_line_unless_it_is_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, row: str
) -> None:
    sides = "\t".join('"x"' if '"' in row else "x" for _ in range(2)) + "\n"
    text = f"{row}\n{sides * 9}"
    changes = {"source_lang": "en-US", "target_lang": "de_DE"} if "us" in row else {}
    assert pairs_of(config(tmp_path, text, **changes)) == [("x", "x")] * 9
    assert caplog.text.count("the first row is a header and was left out") == 1
    assert len(pairs_of(config(tmp_path, text, header=False, **changes))) == 10


def test_a_header_that_names_the_languages_the_other_way_around_is_followed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text = "German\tEnglish\n" + "Hallo.\tHello.\n" * 9
    assert pairs_of(config(tmp_path, text)) == [("Hello.", "Hallo.")] * 9
    assert "table.tsv: source is 'English', target 'German'" in caplog.text
    with pytest.raises(DataError, match=r":1: the columns are 'German' \| 'English', .* Set data\.columns=\[1,0\]"):
        pairs_of(config(tmp_path, text, columns=[0, 1]))
    assert pairs_of(config(tmp_path, text, columns=[1, 0]))[0] == ("Hello.", "Hallo.")


def test_what_is_no_header_is_a_pair(tmp_path: Path) -> None:
    for first, second in [("Text", "Text"), ("English", "Englisch"), ("Hello.", "Hallo."), ("en", "fr"), ("", "")]:
        assert not is_header(first, second, "en", "de")
    assert len(pairs_of(config(tmp_path, "Hello.\tHallo.\n" * 3, header=True))) == 2


def test_columns_and_labels_are_read_from_quoted_tables_with_headers(tmp_path: Path) -> None:
    text = 'id\tde\ten\n1\t"a ""b"""\t"c\td"\n2\t"e"\t"f"\n'
    assert pairs_of(config(tmp_path, text, columns=[2, 1])) == [("c d", 'a "b"'), ("f", "e")]
    labels = 'label\ttext\n"good"\t"It was ""great"""\n"bad"\t"Not\tso"\n'
    for header in ("label\ttext", "sentiment\treview", "Intent\tUtterance"):
        text = labels.replace("label\ttext", header)
        found = pairs_of(config(tmp_path, text, task="classification", source_lang="text", target_lang="label"))
        assert found == [('It was "great"', "good"), ("Not so", "bad")]


def test_headers_of_two_files_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name, first in (("a.en", "English"), ("a.de", "German")):
        (tmp_path / name).write_text(f"{first}\nx\ny\n")
    data = config(tmp_path, "", train=str(tmp_path / "a"))
    assert len(pairs_of(data)) == 3
    assert "begin with 'English' and 'German'. If these are headers, remove both lines" in caplog.text


@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
@pytest.mark.parametrize("delimiter", [",", ";"])
def test_a_table_of_csv_is_not_read_as_the_text_of_one_side(tmp_path: Path, delimiter: str, quoting: Any) -> None:
    """Each row would be a sentence, with both languages in it; also in capitals, and with one such file of two."""
    with (tmp_path / "A.CSV").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, delimiter=delimiter, quoting=quoting).writerows(PAIRS * 20)
    n_lines = (tmp_path / "A.CSV").read_bytes().count(b"\n")
    (tmp_path / "b.de").write_text("Ein Satz.\n" * n_lines, encoding="utf-8")
    two = DataConfig(source_lang="en", target_lang="de", root=str(tmp_path))
    text = load_text(replace(two, train=["A.CSV", "A.CSV"]), "train")
    assert text is not None
    assert list(text.each()) == [(flat(source), flat(target)) for source, target in PAIRS * 40]
    for files in (["A.CSV", "b.de"], ["b.de", "A.CSV"]):
        with pytest.raises(ConfigError, match=r"data.train: b\.de has no file of translations after it"):
            load_text(replace(two, train=files), "train")
    with pytest.raises(DataError, match=r"A\.CSV: is a table with \w+ between its columns.*Leave out data\.reader"):
        load_text(replace(two, train=["A.CSV", "b.de"], reader="parallel"), "train")


@pytest.mark.parametrize("sentence", ["It is {}, but not {}.", "{}", "No comma here: {} {}", '"{}," she said, "{}."'])
def test_sentences_in_files_called_csv_are_sentences(tmp_path: Path, sentence: str) -> None:
    """Sentences with one comma each are no table either."""
    lines = [sentence.format(word, word * 2) for word in ("warm", "cold", "quiet", "new") * 30]
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    text = load_text(
        DataConfig(source_lang="en", target_lang="de", root=str(tmp_path), train=["a.csv", "b.csv"]), "train"
    )
    assert text is not None
    assert text.sources == lines


def test_a_table_is_known_by_its_ending_in_capitals_too(tmp_path: Path) -> None:
    for name in ("a.TSV", "b.Tsv"):
        (tmp_path / name).write_text(f"one {name}\teins\n", encoding="utf-8")
    text = load_text(
        DataConfig(source_lang="en", target_lang="de", root=str(tmp_path), train=["a.TSV", "b.Tsv"]), "train"
    )
    assert text is not None
    assert (text.sources, text.targets) == (["one a.TSV", "one b.Tsv"], ["eins", "eins"])


def test_keys_of_tables_need_one(tmp_path: Path) -> None:
    for name in ("a.en", "a.de"):
        (tmp_path / name).write_text("x\n")
    overrides = ["data=files", "data.source_lang=en", "data.target_lang=de", f"data.train={tmp_path / 'a'}"]
    for setting in ("data.quoted=true", "data.header=false"):
        data = load_config("prepare", [*overrides, setting]).data
        for task in ("translation", "language_model"):
            with pytest.raises(ConfigError, match=f"^{setting}: no table is named"):
                READERS["files"](replace(data, task=task)).check()


# ---- Text that Moses has tokenized

RAW = [('It\'s a well-known "case".', "Das ist ein altbekannter „Fall“."), ("Don't [shout]!", "Nicht schreien!")]
TOKENS = [
    ("It &apos;s a well @-@ known &quot; case &quot; .", "Das ist ein altbekannter „ Fall “ ."),
    ("Don &apos;t &#91; shout &#93; !", "Nicht schreien !"),
]


def test_tokens_of_moses_are_told_once_and_undone(tmp_path: Path) -> None:
    rows = [(f"{n} {source}", f"{n} {target}") for n in range(30) for source, target in TOKENS]
    text = "".join(f"{source}\t{target}\n" for source, target in rows)
    size = TokenizerConfig(vocab_size=60)
    data = config(tmp_path, text, cache=str(tmp_path / "cache"), tokenizer=size)
    found = [line for line in prepare(data).warnings if "Moses" in line]
    assert len(found) == 1
    assert found[0].startswith("data.train: tokenized by Moses (`&apos;`, `&quot;`, `@-@` in 50% of the lines)")
    assert found[0].endswith("Set data.detokenize=true")
    raw = replace(data, detokenize=True)
    assert pairs_of(raw) == [(f"{n} {source}", f"{n} {target}") for n in range(30) for source, target in RAW]
    prepared = prepare(raw)
    assert [line for line in prepared.warnings if "Moses" in line] == []
    assert {*prepared.dev.sources} < {f"{n} {source}" for n in range(30) for source, _ in RAW}


def test_a_few_entities_in_plain_text_are_no_tokens_of_moses() -> None:
    plain = ["AT&amp;T", "say &quot;yes&quot;", "a@-@b", "it&apos;s"] * 50 + ["what &apos;s"] * 2
    assert tokenized_lines(plain) == 0
    assert tokenized_lines([*plain, "what &apos;s"]) == 3


def test_scores_of_tokenized_files_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, side in (("h.de", 0), ("r.de", 0), ("s.en", 1)):
        (tmp_path / name).write_text("".join(f"{pair[side]}\n" for pair in TOKENS * 5))
    assert main(["evaluate", "--hypotheses", "h.de", "--reference", "r.de"]) == 0
    assert capsys.readouterr().err.count("h.de and r.de: tokenized by Moses") == 1
