"""Archives and folders that are named as a whole: the pair or the table in them, or an error that names all."""

import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.data.formats.toy_tables import Folder
from transformer_cli.errors import DataError

PAIR = {"LICENSE": "Do as you like.\n", "X.en-fr.en": "one\ntwo\n", "X.en-fr.fr": "un\ndeux\n", "README": "Words.\n"}
PAIRS = [("one", "un"), ("two", "deux")]


def packed(path: Path, name: str, files: dict[str, str]) -> str:
    if name.endswith(".zip"):
        with zipfile.ZipFile(path / name, "w", zipfile.ZIP_DEFLATED) as archive:
            for member, text in files.items():
                archive.writestr(member, text)
        return name
    with tarfile.open(path / name, "w:gz") as tar:
        for member, text in files.items():
            info = tarfile.TarInfo(member)
            info.size = len(text.encode())
            tar.addfile(info, io.BytesIO(text.encode()))
    return name


@pytest.mark.parametrize("name", ["en-fr.txt.zip", "en-fr.tgz"])
@pytest.mark.parametrize(
    "files",
    [
        {**PAIR, "X.en-fr.ids": "1\n2\n", "__MACOSX/X.en-fr.en": "", ".hidden.fr": ""},
        {"README": "", "table.csv": "fr,en\nun,one\ndeux,two\n"},
        {"LICENSE": "", "data/table.TSV": "one\tun\ntwo\tdeux\n"},
        {"a.jsonl": '{"fr": "un", "en": "one"}\n{"fr": "deux", "en": "two"}\n'},
    ],
    ids=["pair", "csv", "tsv", "jsonl"],
)
def test_an_archive_of_one_corpus_is_that_corpus(folder: Folder, name: str, files: dict[str, str]) -> None:
    archive = packed(folder.path, name, files)
    assert folder.pairs(archive) == PAIRS
    assert folder.pairs(archive, source_lang="fr", target_lang="en") in ([pair[::-1] for pair in PAIRS], PAIRS)
    folder.write("b.tsv", "three\ttrois\n")
    assert folder.pairs([archive, "b.tsv"]) == [*PAIRS, ("three", "trois")]


def test_the_pair_of_an_archive_is_read_in_the_direction_of_the_corpus(folder: Folder) -> None:
    archive = packed(folder.path, "a.zip", PAIR)
    assert folder.pairs(archive, source_lang="fr", target_lang="en") == [pair[::-1] for pair in PAIRS]
    both = {"languages": ["en", "fr"], "source_lang": "fr", "target_lang": "en"}
    assert folder.pairs(archive, **both) == [pair[::-1] for pair in PAIRS]


def test_an_archive_of_several_corpora_or_none_names_them(folder: Folder) -> None:
    several = packed(folder.path, "a.zip", {**PAIR, "test.en": "x\n", "test.fr": "y\n"})
    with pytest.raises(DataError) as caught:
        folder.pairs(several)
    assert "a.zip: holds 2 corpora: 'X.en-fr.en and X.en-fr.fr', 'test.en and test.fr'. Name one, as" in str(
        caught.value
    )
    assert folder.pairs("a.zip::X.en-fr") == folder.pairs(["a.zip::X.en-fr.en", "a.zip::X.en-fr.fr"]) == PAIRS
    with pytest.raises(
        DataError, match=r"a\.zip: holds no pair of files that end in en and de, and no table: 'LICENSE'"
    ):
        folder.pairs(several, target_lang="de")
