"""JSON lines: what json writes is read as it was, and a record that is no pair is refused by its line."""

import json
import random
from typing import Any

import pytest

from tests.data.formats.toy_tables import Folder
from transformer_cli.config.data import OnBad
from transformer_cli.errors import DataError

PAIRS = [
    ("Good morning.", "Bonjour."),
    ('"a" \\ b', "« a » \\ b"),
    ("two\nlines\tand a tab", "deux\r\nlignes"),
    ("☂ \U0001f600 é", "\u2028\u0085"),
    ("", "vide"),
]
FLAT = [(a.replace("\n", " ").replace("\t", " "), b.replace("\r\n", " ")) for a, b in PAIRS]


@pytest.mark.parametrize("ascii_only", [True, False])
@pytest.mark.parametrize("kind", ["lines", "an array", "a pretty array"])
@pytest.mark.parametrize("nested", [True, False])
def test_what_json_writes_is_read_as_it_was(folder: Folder, ascii_only: bool, kind: str, nested: bool) -> None:
    draw = random.Random(1)
    order = [draw.randrange(len(PAIRS)) for _ in range(2000)]
    records: list[Any] = []
    for n, index in enumerate(order):
        source, target = PAIRS[index]
        texts = {"fr": target, "en": source} if n % 2 else {"en": source, "fr": target}
        records.append({"id": n, "translation": texts, "score": 0.5} if nested else {"id": n, **texts, "tags": ["x"]})
    if kind == "lines":
        text = "\n\n".join(json.dumps(record, ensure_ascii=ascii_only) for record in records)
    else:
        text = json.dumps(records, ensure_ascii=ascii_only, indent=2 if "pretty" in kind else None)
    assert folder.pairs(folder.write("a.json", text)) == [FLAT[index] for index in order]
    assert folder.pairs(folder.write("export", text)) == [FLAT[index] for index in order]


def test_columns_are_named_by_their_keys(folder: Folder) -> None:
    records = [{"query": "one", "meta": {"answer": "un"}, "note": None}] * 3
    name = folder.write("a.jsonl", "".join(f"{json.dumps(record)}\n" for record in records))
    assert folder.pairs(name, columns=["query", "meta.answer"]) == [("one", "un")] * 3
    assert folder.pairs(name, columns=[1, 0]) == [("un", "one")] * 3
    with pytest.raises(
        DataError, match=r"none of its columns are called as en and fr: 'query' \| 'meta\.answer' \| 'no"
    ):
        folder.pairs(name)
    with pytest.raises(DataError, match=r"no column is called 'querry'; did you mean `query`\?"):
        folder.pairs(name, columns=["querry", "note"])
    with pytest.raises(
        DataError, match=r"has 3 columns .* data\.columns=\[0, 7\] counts from 0\. Choose two of 0 to 2"
    ):
        folder.pairs(name, columns=[0, 7])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"en": "a"}', r"line 1,202: has no 'fr', but 'en'\. Correct the line, or drop"),
        ('{"en": "a", "fr": null}', r"line 1,202: 'fr' is 'null', not a text"),
        ('{"en": ["a"], "fr": "b"}', r"""line 1,202: 'en' is '\["a"\]', not a text"""),
        ('{"en": "a", "fr": "\\ud800"}', r"line 1,202: 'fr' has half of a surrogate pair"),
        ('{"en": "a", "fr": "b"', r"line 1,202: not JSON \(Expecting ',' delimiter at character 22\)"),
        ("[1, 2]", r"line 1,202: no JSON object, but '\[1, 2\]'"),
        ("Plain text.", r"line 1,202: not JSON \(Expecting value at character 1\): 'Plain text\.'"),
    ],
)
def test_a_record_that_is_no_pair_is_refused_by_its_line_or_left_out(folder: Folder, line: str, message: str) -> None:
    good = '{"en": "one", "fr": "un"}\n'
    name = folder.write("a.jsonl", f"{good * 1200}\n{line}\n{good}")
    with pytest.raises(DataError, match=rf"a\.jsonl: {message}"):
        folder.pairs(name)
    assert folder.pairs(name, on_bad=OnBad.skip) == [("one", "un")] * 1201


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"a\.json: is empty"),
        ("[]", r"a\.json: has no JSON objects\. Write one a line"),
        ('[{"en": "a", "fr": "b"}', r"a\.json: record 2: not JSON, or the array does not end\. Write each object on a"),
        ('[{"en": "a", "fr": "b"}, {"en": oops}]', r"a\.json: record 2: not JSON"),
        ('{\n "en": "a",\n "fr": "b"\n}\n', r"a\.json: has no JSON objects"),
        ('{"only": "one"}\n', r"a\.json: has 1 column \('only'\), and a pair needs two"),
    ],
)
def test_a_file_that_holds_no_pairs_is_refused(folder: Folder, text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        folder.pairs(folder.write("a.json", text))


def test_labels_may_be_numbers(folder: Folder) -> None:
    lines = [json.dumps({"text": f"Text {n}.", "label": label}) for n, label in enumerate((1, 0, True, "good"))]
    name = folder.write("a.jsonl", "\n".join(lines))
    config = {"task": "classification", "source_lang": "text", "target_lang": "label"}
    assert folder.pairs(name, **config) == [
        ("Text 0.", "1"),
        ("Text 1.", "0"),
        ("Text 2.", "true"),
        ("Text 3.", "good"),
    ]
