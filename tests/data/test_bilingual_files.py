"""Translation memories and their kin as corpora: in either direction, packed, beside others, and broken."""

import gzip
import zipfile
from pathlib import Path
from typing import Any

import pytest

from transformer_cli.cli import main
from transformer_cli.config.data import DataConfig
from transformer_cli.data.corpus import load_text

PAIRS = [(f"Sentence {number}.", f"Satz {number}.") for number in range(300)]
TMX = (
    '<tmx version="1.4"><header srclang="en"/><body>'
    + "".join(
        f"<tu><tuv xml:lang='de-DE'><seg>{target}</seg></tuv><tuv xml:lang='en-US'><seg>{source}</seg></tuv></tu>\n"
        for source, target in PAIRS
    )
    + "</body></tmx>"
)
XLIFF = (
    '<xliff version="1.2"><file source-language="en" target-language="de"><body>'
    + "".join(
        f"<trans-unit><source>{source}</source><target>{target}</target></trans-unit>" for source, target in PAIRS
    )
    + "</body></file></xliff>"
)
PO = 'msgid ""\nmsgstr "Language: de\\n"\n\n' + "\n".join(
    f'msgid "{source}"\nmsgstr "{target}"\n' for source, target in PAIRS
)
QT = (
    '<TS version="2.1" language="de" sourcelanguage="en"><context>'
    + "".join(
        f"<message><source>{source}</source><translation>{target}</translation></message>" for source, target in PAIRS
    )
    + "</context></TS>"
)
FILES = {"memory.tmx": TMX, "text.sdlxliff": XLIFF, "messages.po": PO, "app_de.ts": QT}


def pairs(train: object, **changes: Any) -> list[tuple[str, str]]:
    text = load_text(DataConfig(**{"source_lang": "en", "target_lang": "de", "train": train, **changes}), "train")
    assert text is not None
    return list(text.each())


@pytest.mark.parametrize("name", FILES)
def test_each_is_read_in_the_direction_of_the_corpus(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text(FILES[name], encoding="utf-8")
    exchanged = [(target, source) for source, target in PAIRS]
    assert pairs(str(path)) == PAIRS
    assert pairs(str(path), source_lang="de", target_lang="en") == exchanged
    both = {"languages": ["en", "de"]}
    assert pairs(str(path), **both) == PAIRS
    assert pairs(str(path), source_lang="de", target_lang="en", **both) == exchanged


def test_the_content_decides_whatever_a_file_is_called(tmp_path: Path) -> None:
    for name, text in FILES.items():
        path = tmp_path / f"{name}.txt"
        path.write_text(text, encoding="utf-8")
        assert pairs(str(path)) == PAIRS


def test_packed_files_and_members_are_read(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "memory.tmx.gz", "wb") as packed:
        packed.write(TMX.encode("utf-16"))
    assert pairs(str(tmp_path / "memory.tmx.gz")) == PAIRS
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        for name, text in FILES.items():
            archive.writestr(f"inside/{name}", text)
    for name in FILES:
        assert pairs(f"{tmp_path / 'all.zip'}::inside/{name}") == PAIRS


def test_several_are_one_corpus_each_beside_pairs_of_files(tmp_path: Path) -> None:
    (tmp_path / "memory.tmx").write_text(TMX, encoding="utf-8")
    (tmp_path / "messages.po").write_text(PO, encoding="utf-8")
    (tmp_path / "corpus.en").write_text("one\n", encoding="utf-8")
    (tmp_path / "corpus.de").write_text("eins\n", encoding="utf-8")
    names = ["memory.tmx", "corpus.en", "corpus.de", "messages.po"]
    found = pairs([str(tmp_path / name) for name in names], weights=[1, 2, 1])
    assert found == [*PAIRS, ("one", "eins"), *PAIRS]


def test_a_text_in_tsonga_is_no_file_of_qt(tmp_path: Path) -> None:
    (tmp_path / "corpus.en").write_text("one\n", encoding="utf-8")
    (tmp_path / "corpus.ts").write_text("n'we\n", encoding="utf-8")
    names = [str(tmp_path / "corpus.en"), str(tmp_path / "corpus.ts")]
    assert pairs(names, target_lang="ts") == [("one", "n'we")]


def test_a_file_of_several_targets_goes_with_the_tag_of_its_language(tmp_path: Path) -> None:
    (tmp_path / "memory.tmx").write_text(TMX, encoding="utf-8")
    (tmp_path / "french.tmx").write_text(TMX.replace("de-DE", "fr"), encoding="utf-8")
    names = [str(tmp_path / name) for name in ("memory.tmx", "french.tmx")]
    found = pairs(names, target_lang="de+fr", tags=["<2de>", "<2fr>"])
    assert found == [(f"{tag} {source}", target) for tag in ("<2de>", "<2fr>") for source, target in PAIRS]


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ("labels", "holds texts beside their translations, which data.task=classification does not train on"),
        (
            "text",
            "holds texts beside their translations, which data.task=language_model does not train on. Name a text file",
        ),
    ],
)
def test_other_tasks_do_not_train_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], task: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("memory.tmx").write_text(TMX, encoding="utf-8")
    assert main(["prepare", f"data={task}", "data.train=memory.tmx"]) == 3
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (TMX[:-40], "the file ends here, within an element. Fetch or export it again"),
        (TMX.replace("<tmx", '<!DOCTYPE tmx [<!ENTITY a "b">]>\n<tmx'), "declares the entity 'a'"),
        (TMX.replace("de-DE", "fr"), "has no texts in data.target_lang=de, but fr (300), en-US (300)"),
    ],
)
def test_what_cannot_be_read_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], text: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("memory.tmx").write_text(text, encoding="utf-8")
    languages = ["data.source_lang=en", "data.target_lang=de"]
    assert main(["prepare", "data=files", "data.train=memory.tmx", *languages]) == 3
    assert message in capsys.readouterr().err
    assert [path.name for path in Path("data/files").iterdir() if not path.name.endswith(".lock")] == []


@pytest.mark.parametrize(
    ("name", "languages"),
    [
        ("memory.tmx", "data.source_lang=de-DE data.target_lang=en-US"),
        ("text.sdlxliff", "data.source_lang=en data.target_lang=de"),
        ("messages.po", "data.source_lang=LANGUAGE data.target_lang=de"),
    ],
)
def test_a_list_of_contents_names_the_languages_that_the_file_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, languages: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).write_text(FILES[name], encoding="utf-8")
    assert main(["prepare", "--list", name]) == 0
    printed = capsys.readouterr().out
    assert f"{name}: a " in printed
    assert ", 300 units\n" in printed
    assert f"Train on it with: tfm train data=files {languages} data.train={name}\n" in printed
