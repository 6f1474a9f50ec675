"""CSV: what Python's csv and spreadsheets write is read as it was, and what does not fit is refused by its line."""

import csv
import gzip
import io
import random
from collections.abc import Sequence

import pytest

from tests.data.formats.toy_tables import Folder, Pairs
from transformer_cli.config.data import OnBad
from transformer_cli.errors import DataError

PAIRS = [
    ("Good morning.", "Bonjour."),
    ('He said "yes", twice.', "Il a dit « oui », deux fois."),
    ("one; two", "un ; deux"),
    ("a\tb", "tabulation"),
    ("first line\nsecond line", "deux\r\nlignes"),
    ('"', '""'),
    ("naïve ☂", "\u2028 séparateur"),
    ("", "vide"),
    ("1,2,3", "1;2;3"),
]


def flat(text: str) -> str:
    return text.replace("\r\n", " ").replace("\n", " ").replace("\t", " ")


def written(rows: Sequence[Sequence[str]], delimiter: str = ",", quoting: int = csv.QUOTE_MINIMAL) -> str:
    file = io.StringIO(newline="")
    kinds = {csv.QUOTE_MINIMAL: csv.QUOTE_MINIMAL, csv.QUOTE_ALL: csv.QUOTE_ALL}
    csv.writer(file, delimiter=delimiter, quoting=kinds[quoting]).writerows(rows)
    return file.getvalue()


def drawn(seed: int, n: int = 200) -> Pairs:
    draw = random.Random(seed)
    return [draw.choice(PAIRS) for _ in range(n)]


def flattened(pairs: Pairs) -> Pairs:
    return [(flat(source), flat(target)) for source, target in pairs]


@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("mark", ["", "\ufeff", "sep"])
def test_what_csv_writes_is_read_as_it_was(folder: Folder, delimiter: str, quoting: int, mark: str) -> None:
    rows = drawn(1)
    first = f"sep={delimiter}\r\n" if mark == "sep" else mark
    table = first + written([("en", "fr"), *rows], delimiter, quoting)
    assert folder.pairs(folder.write("a.csv", table)) == flattened(rows)
    packed = gzip.compress(table.encode())
    assert folder.pairs(folder.write("b.csv.gz", packed)) == flattened(rows)


def test_columns_are_found_by_their_names_in_any_order_and_among_others(
    folder: Folder, caplog: pytest.LogCaptureFixture
) -> None:
    rows = drawn(2)
    for header, order in ((("id", "fr", "de", "en"), (3, 1)), (("English", "note", "French"), (0, 2))):
        table = [["x"] * len(header) for _ in rows]
        for row, pair in zip(table, rows, strict=True):
            row[order[0]], row[order[1]] = pair
        name = folder.write("a.csv", written([header, *table]))
        assert folder.pairs(name) == flattened(rows)
    assert "a.csv: source is 'English', target 'French'" in caplog.text
    name = folder.write("b.csv", written([("key", "Text (old)", "Texte"), *([("k", *pair) for pair in rows])]))
    assert folder.pairs(name, columns=["Text (old)", "texte"]) == flattened(rows)
    assert folder.pairs(name, columns=["Texte", 1], header=True)[0] == flattened(rows)[0][::-1]


def test_a_table_without_the_languages_in_its_header_shows_its_columns(folder: Folder) -> None:
    name = folder.write("a.csv", "key,before,after\n" + "k,one,un\n" * 9)
    with pytest.raises(DataError, match=r"a\.csv: has 3 columns \('key' \| 'before' \| 'after'\)\. Say which hold"):
        folder.pairs(name)
    with pytest.raises(DataError, match=r"no column is called 'befor'; did you mean `before`\? \(columns: 'key' \| 'b"):
        folder.pairs(name, columns=["befor", "after"])
    assert folder.pairs(name, columns=["before", "after"]) == [("one", "un")] * 9


def test_a_quote_that_never_ends_is_named_by_the_line_where_it_opens(folder: Folder) -> None:
    """It is refused where bad rows are skipped, too: all rows behind it would be one."""
    for tail in ("three,trois\n" * 5, "three,trois\n" * 50_000):
        name = folder.write("a.csv", 'en,fr\none,un\n"two,deux\n' + tail)
        for on_bad in OnBad:
            with pytest.raises(DataError, match=r"a\.csv:3: a quote that opens in this row does not end, up to line"):
                folder.pairs(name, on_bad=on_bad)
    assert folder.pairs(name, quoted=False)[:2] == [("one", "un"), ('"two', "deux")]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            "three, four,trois\n",
            r"a\.csv: line 3: 3 columns, but the first row has 2: 'three, four,trois'\. Put fields",
        ),
        ('"three" four,trois\n', r"a\.csv: line 3: quotes that do not fit .*\. Double the quotes in a field, or drop"),
        ("alone\n", r"a\.csv: line 3: 1 columns, but the first row has 2: 'alone'\."),
        ("three\rtrois,x\n", r"a\.csv: line 3: a \\r that ends no line\. Convert the ends of lines, as `tr "),
        (b"\xff,trois\n", r"a\.csv:3: byte 0xff at column 1 is not UTF-8; it looks like Latin-1.*data\.on_bad=skip"),
    ],
)
def test_a_row_that_does_not_fit_is_refused_by_its_line_or_left_out(
    folder: Folder, caplog: pytest.LogCaptureFixture, row: str | bytes, message: str
) -> None:
    bad = row if isinstance(row, bytes) else row.encode()
    name = folder.write("a.csv", b"en,fr\none,un\n" + bad + b"four,quatre\n")
    with pytest.raises(DataError, match=message):
        folder.pairs(name)
    assert folder.pairs(name, on_bad=OnBad.skip) == [("one", "un"), ("four", "quatre")]
    assert "1 pairs dropped" in caplog.text


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"a\.csv: is empty"),
        ("en,fr\n1,2\n".encode("utf-16"), r"a\.csv: is UTF-16LE, not UTF-8\. Convert it with `iconv"),
        (b"My export\n\nen,fr\none,un\n", r"a\.csv: line 3: 2 columns, but the first row has 1: .* before the table"),
        (b"One sentence.\nAnother one.\n", r"a\.csv: has 1 column \('One sentence\.'\), and a pair needs two"),
    ],
)
def test_a_file_that_is_no_table_is_refused(folder: Folder, content: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        folder.pairs(folder.write("a.csv", content))


def test_a_header_alone_is_no_pair(folder: Folder) -> None:
    assert folder.pairs(folder.write("a.csv", "en,fr\n")) == []


def test_a_column_of_numbers_is_no_text(folder: Folder) -> None:
    """Two tables of an id and a text, one for each side, are not taken for pairs of numbers and texts."""
    for name in ("en.csv", "fr.csv"):
        folder.write(name, "id,text\n" + "".join(f"{n},This is {n}.\n" for n in range(30)))
    with pytest.raises(DataError, match=r"en\.csv: column 0 of its two holds numbers \('0' \| '1' .*\), not texts"):
        folder.pairs(["en.csv", "fr.csv"])


def test_a_first_row_of_other_words_is_pointed_at(folder: Folder, caplog: pytest.LogCaptureFixture) -> None:
    rows = "".join(f"This is {n}.,C'est {n}.\n" for n in range(30))
    assert len(folder.pairs(folder.write("a.csv", f"question,reply\n{rows}"))) == 31
    assert "a.csv: the first row is read as a pair: 'question' | 'reply'. If it is a header, set data.header=true" in (
        caplog.text
    )
    assert len(folder.pairs("a.csv", header=True)) == 30
    assert "read as a pair" not in caplog.records[-1].message


def test_names_with_the_language_in_them_are_a_header(folder: Folder) -> None:
    rows = "un,one\n" * 9
    for header in ("text_fr,text_en", "french_text,english_text", "fra,eng", "fr-FR,en-GB"):
        assert folder.pairs(folder.write("a.csv", f"{header}\n{rows}")) == [("one", "un")] * 9, header


def test_a_header_without_a_language_of_the_corpus_is_refused(folder: Folder) -> None:
    for name, text in (("a.csv", "en,fr\none,un\n"), ("b.tsv", "English\tGerman\none\teins\n")):
        folder.write(name, text)
        with pytest.raises(
            DataError, match=rf"{name}:1: the columns are called '.*data\.target_lang=es\. Set these, or"
        ):
            folder.pairs(name, target_lang="es")
        assert len(folder.pairs(name, target_lang="es", header=False)) == 2
        assert len(folder.pairs(name, target_lang="es", columns=[0, 1], header=True)) == 1


def test_a_table_with_the_languages_of_each_row_is_not_read_as_it_stands(folder: Folder) -> None:
    """The rows of such a table may be in any languages."""
    folder.write("a.csv", "source_lang,target_lang,source,target\n" + "en,fr,Hello you.,Bonjour toi.\n" * 9)
    with pytest.raises(
        DataError, match=r"a\.csv: none of its columns are called as en and fr: 'source_lang' \| 'target_"
    ):
        folder.pairs("a.csv")
    assert folder.pairs("a.csv", columns=["source", "target"]) == [("Hello you.", "Bonjour toi.")] * 9


@pytest.mark.parametrize(
    ("header", "is_french_first"),
    [
        ("Französisch;Englisch", True),
        ("Anglais;Français", False),
        ("FRANÇAIS;ENGLISH", True),
        ("Inglés;Francés;Notas", False),
        ("Nr.;Français;Englisch", True),
    ],
)
def test_columns_may_be_called_by_names_that_the_language_has_elsewhere(
    folder: Folder, header: str, is_french_first: bool
) -> None:
    row = {"Nr.": "1", "Notas": "-"}
    names = header.split(";")
    languages = [name for name in names if name not in row]
    row |= zip(languages, ("oui", "yes") if is_french_first else ("yes", "oui"), strict=True)
    folder.write("a.csv", f"{header}\n" + 3 * (";".join(row[name] for name in names) + "\n"))
    assert folder.pairs("a.csv") == [("yes", "oui")] * 3
