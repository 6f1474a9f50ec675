"""Languages that the command line does not give are those that the columns or the names of files name."""

import gzip
from pathlib import Path

import pytest

from transformer_cli.config.compose import load_config
from transformer_cli.errors import ConfigError

FILES = {
    "a.csv": "fr,en\nun,one\n",
    "b.tsv": "id\tEnglish\tGerman\n1\tone\teins\n",
    "c.jsonl": '{"id": 1, "translation": {"en": "one", "fr": "un"}}\n',
    "d.csv": "id,en,fr,de\n1,one,un,eins\n",
    "e.jsonl": '{"query": "one", "answer": "un"}\n',
    "x.en": "one\n",
    "x.fr": "un\n",
    "plain.csv": "one,un\ntwo,deux\n",
}


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        Path(name).write_text(text, encoding="utf-8")
    Path("a.csv.gz").write_bytes(gzip.compress(FILES["a.csv"].encode()))


@pytest.mark.parametrize(
    ("settings", "languages"),
    [
        (["data.train=a.csv"], ("fr", "en")),
        (["data.train=a.csv", "data.source_lang=en"], ("en", "fr")),
        (["data.train=a.csv", "data.target_lang=fr"], ("en", "fr")),
        (["data.train=a.csv.gz"], ("fr", "en")),
        (["data.train=b.tsv"], ("en", "de")),
        (["data.train=c.jsonl"], ("en", "fr")),
        (["data.train=[x.en,x.fr]"], ("en", "fr")),
        (["data.train=[x.fr,x.en,a.csv]"], ("fr", "en")),
        (["data.train=d.csv", "data.source_lang=de", "data.target_lang=en"], ("de", "en")),
    ],
)
@pytest.mark.parametrize("command", ["train", "prepare", "doctor"])
def test_languages_are_those_that_the_files_name(command: str, settings: list[str], languages: tuple[str, str]) -> None:
    data = load_config(command, ["data=files", *settings]).data
    assert (data.source_lang, data.target_lang) == languages


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            ["data.train=d.csv"],
            r"^data\.source_lang: not set, and d\.csv has en, fr, de\. Set data\.source_lang and data\.t",
        ),
        (
            ["data.train=d.csv", "data.source_lang=fr"],
            r"^data\.target_lang: not set, and d\.csv has en, fr, de\. Set data",
        ),
        (
            ["data.train=e.jsonl"],
            r"names no two languages \(columns: 'query' \| 'answer'\).*data\.columns=\[query,answer\]",
        ),
        (["data.train=plain.csv"], r"^data\.source_lang: not set\. Give it as data\.source_lang=VALUE"),
        (["data.train=x"], r"^data\.source_lang: not set\. Give it as data\.source_lang=VALUE"),
        ([], r"^data\.source_lang: not set\. Give it as data\.source_lang=VALUE"),
    ],
)
def test_where_they_name_none_or_more_than_two_the_error_says_what_to_set(settings: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_config("train", ["data=files", *settings])
