"""Tables are told from text: no text of one side is taken for one, and tables of all kinds stand in one list."""

import gzip

import pytest

from tests.data.formats.toy_tables import Folder
from transformer_cli.data.registry import FORMATS
from transformer_cli.errors import ConfigError

ODD = {
    "JSON": '{"en": "a", "fr": "b"}',
    "an array of JSON": '[{"en": "a"},',
    "commas": "one,two,three",
    "one comma": "one,two",
    "semicolons": "one;two",
    "mark-up": "<tmx version='1.4'>",
    "XML": '<?xml version="1.0"?>',
    "a title": "<title>News</title>",
    "PO": 'msgid "word"',
    "quotes": '"open',
    "header": "en,fr",
    "sep": "sep=;",
}


@pytest.mark.parametrize("endings", [(".en", ".fr"), (".txt", "2.txt"), (".en.gz", ".fr.gz"), ("", "2")])
@pytest.mark.parametrize("line", ODD.values(), ids=ODD)
def test_two_files_of_odd_text_are_a_pair_line_by_line(folder: Folder, line: str, endings: tuple[str, str]) -> None:
    names = [f"odd{ending}" for ending in endings]
    for number, name in enumerate(names):
        text = "".join(f"{line} {n} {number}\n" if n else f"{line}\n" for n in range(50))
        folder.write(name, gzip.compress(text.encode()) if name.endswith(".gz") else text)
    pairs = folder.pairs(names)
    assert pairs == [(f"{line} {n} 0", f"{line} {n} 1") if n else (line, line) for n in range(50)]
    if names == ["odd.en", "odd.fr"]:
        assert folder.pairs("odd") == pairs


def test_tables_and_pairs_of_files_stand_in_one_list(folder: Folder) -> None:
    folder.write("a.csv", "en,fr\none,un\n")
    folder.write("b.en", "two\n")
    folder.write("b.fr", "deux\n")
    folder.write("c.tsv", "three\ttrois\n")
    expected = {"a.csv": ("one", "un"), "b": ("two", "deux"), "c.tsv": ("three", "trois")}
    for order in (("a.csv", "b", "c.tsv"), ("b", "c.tsv", "a.csv"), ("c.tsv", "a.csv", "b")):
        names = [part for name in order for part in (["b.en", "b.fr"] if name == "b" else [name])]
        assert folder.pairs(names) == [expected[name] for name in order]
    with pytest.raises(ConfigError, match=r"data\.train: b\.fr has no file of translations after it"):
        folder.pairs(["b.fr", "a.csv", "b.en"])


def test_a_table_that_is_named_alone_is_known_by_its_content(folder: Folder) -> None:
    for text in ("en;fr\nyes, it is;oui\n", "fr,en\noui,yes\n"):
        folder.write("export.txt", text)
        assert folder.pairs("export.txt")[0][1] == "oui"


def test_each_format_says_what_it_is() -> None:
    for name, one in FORMATS.items():
        assert one.what.startswith(("a ", "an ")), name
        assert all(ending == ending.lower() and ending.startswith(".") for ending in one.endings), name
        for head in (b"", b"Plain text.\nOf two lines.\n", bytes(range(256))):
            assert not one.recognises(head), name
