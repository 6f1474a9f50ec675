"""Text for a language model in a column of JSON lines, Parquet, CSV and tables with tabs."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.each import each
from transformer_cli.cli import main
from transformer_cli.config.data import DataConfig, OnBad
from transformer_cli.data.corpus import load_text, stream_text
from transformer_cli.errors import ConfigError, DataError

TEXTS = ["The first text.", 'It has "quotes", and commas.', "two\nlines\tand a tab", "", "É ☂"]
READ = [text.replace("\n", " ").replace("\t", " ") for text in TEXTS]


def config(train: Path | list[Path], **changes: Any) -> DataConfig:
    names = [str(path) for path in train] if isinstance(train, list) else str(train)
    return DataConfig(
        **{"task": "language_model", "source_lang": "none", "target_lang": "text", "train": names, **changes}
    )


def texts(train: Path | list[Path], **changes: Any) -> list[str]:
    text = load_text(config(train, **changes), "train")
    assert text is not None
    assert text.sources == text.targets
    return text.targets


def json_lines(path: Path, key: str = "text", **others: Any) -> Path:
    path.write_text("".join(f"{json.dumps({'id': n, key: text, **others})}\n" for n, text in enumerate(TEXTS)))
    return path


@each("key, columns", [("text", []), ("text", ["text"]), ("sentence", []), ("body", ["body"]), ("body", [1])])
def test_the_texts_of_json_lines_are_read(tmp_path: Path, key: str, columns: list[Any]) -> None:
    path = json_lines(tmp_path / "a.jsonl", key)
    assert texts(path, columns=columns) == READ


def test_nested_keys_packed_files_and_text_beside_them(tmp_path: Path) -> None:
    nested = tmp_path / "nested.jsonl"
    nested.write_text("".join(f"{json.dumps({'page': {'body': text}})}\n" for text in TEXTS))
    assert texts(nested, columns=["page.body"]) == READ
    (tmp_path / "plain.txt").write_text("a line\n")
    assert texts([json_lines(tmp_path / "a.jsonl"), tmp_path / "plain.txt"]) == [*READ, "a line"]


def test_training_text_is_spooled_as_it_is_read(tmp_path: Path) -> None:
    found = stream_text(config(json_lines(tmp_path / "a.jsonl")), tmp_path)
    assert [target for _, target in found.each()] == READ
    assert [lines.spooled is not None for _, files in found.corpora for lines in files] == [True]


@each(
    "columns, message",
    [
        ([], r"a\.jsonl: not one of its columns alone is called text: 'id' \| 'body' \| 'lang'\. Say which holds the"),
        (["txt"], r"data\.columns=\[txt\]: no column is called 'txt' \(columns: 'id' \| 'body' \| 'lang'\)"),
        ([3], r"a\.jsonl: has 3 columns .* data\.columns=\[3\] counts from 0\. Choose one of 0 to 2"),
        (["id"], r"line 1: 'id' is '0', not a text"),
    ],
)
def test_an_error_names_the_keys_that_are_there(tmp_path: Path, columns: list[Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        texts(json_lines(tmp_path / "a.jsonl", "body", lang="en"), columns=columns)


def test_a_row_without_the_text_is_an_error_or_left_out(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "one"}\n{"title": "two"}\n{"text": "three"}\n')
    with pytest.raises(DataError, match=r"line 2: has no 'text', but 'title'"):
        texts(path)
    assert texts(path, on_bad=OnBad.skip) == ["one", "three"]


def test_a_csv_is_a_table_where_a_column_is_named_and_else_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('id,text\n1,"one, and more"\n2,two\n3,three\n')
    assert texts(path, columns=["text"]) == ["one, and more", "two", "three"]
    assert texts(path, columns=[1]) == ["one, and more", "two", "three"]
    assert texts(path, columns=[1], header=False)[0] == "text"
    assert texts(path)[:2] == ["id,text", '1,"one, and more"']
    (tmp_path / "a.tsv").write_text("1\tone\n2\ttwo\n")
    assert texts(tmp_path / "a.tsv", columns=[1]) == ["one", "two"]


def test_parquet_and_its_folders_are_read(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow", reason="needs the extra `parquet`")
    import pyarrow.parquet as parquet

    (tmp_path / "saved").mkdir()
    for n in range(2):
        table = arrow.table({"url": ["x"] * len(TEXTS), "text": TEXTS})
        parquet.write_table(table, tmp_path / "saved" / f"train-0000{n}-of-00002.parquet")
    assert texts(tmp_path / "saved" / "train-00000-of-00002.parquet") == READ
    assert texts(tmp_path / "saved") == READ * 2


@each("columns", [["text", "id"], [0, 1]])
def test_two_columns_are_refused(columns: list[Any]) -> None:
    with pytest.raises(ConfigError, match=r"must be one, of the text\. Choose one, as in data\.columns=\[text\]"):
        config(Path("a.jsonl"), columns=columns)


def test_it_is_prepared_listed_and_refused_by_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.jsonl").write_text("".join(f'{{"text": "The text of line {n}."}}\n' for n in range(100)))
    Path("a.txt").write_text("a line\n" * 100)
    assert main(["prepare", "--list", "a.jsonl"]) == 0
    assert "Train on it with: tfm train data=text data.train=a.jsonl data.columns=[text]" in capsys.readouterr().out
    command = ["prepare", "data=text", "data.tokenizer.vocab_size=40"]
    assert main([*command, "data.train=a.jsonl", "data.columns=[text]"]) == 0
    assert main([*command, "data.train=a.txt", "data.columns=[0]"]) == 2
    assert "data.columns=[0]: no table is named, but other files. Leave it out" in capsys.readouterr().err
