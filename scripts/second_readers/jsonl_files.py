"""JSON lines and arrays of objects, read by `datasets` of Hugging Face; records that are no pairs."""

import json
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

from second_readers import Case, pairs

PROGRAM = """
import datasets
found = datasets.load_dataset("json", data_files=case["path"], split="train", cache_dir=case["cache"])
pairs = []
for row in found:
    texts = []
    for name in case["columns"]:
        value = row
        for key in name.split("."):
            value = value[key]
        texts.append(value)
    assert all(isinstance(text, str) for text in texts), "a null"
    pairs.append(texts)
return pairs
"""


def CASES(folder: Path, random: Random, n: int) -> Iterator[Case]:
    for number, (is_ascii, is_nested, kind) in enumerate(
        product((True, False), (True, False), ("lines", "\r\n", "array", "x"))
    ):
        records: list[dict[str, Any]] = []
        for index, (source, target) in enumerate(pairs(random, n, "\n\t\u2028\U0001f600\x0b")):
            texts = {"en": source, "fr": target} if index % 2 else {"fr": target, "en": source}
            records.append({"id": index, "translation": texts} if is_nested else {"id": index, **texts, "score": 0.5})
        name = ("translation.en", "translation.fr") if is_nested else ("en", "fr")
        if kind == "array":
            text = json.dumps(records, ensure_ascii=is_ascii)
        else:
            end = "\r\n" if kind == "\r\n" else "\n"
            text = "".join(f"{json.dumps(record, ensure_ascii=is_ascii)}{end}" for record in records)
        yield _case(folder, f"{number}", text, name)
    good = '{"en": "one", "fr": "un"}\n' * 5
    for title, text in {
        "other keys in each": good + '{"en": "two", "fr": "deux", "note": "new"}\n',
        "a missing key": good + '{"en": "two"}\n',
        "null": good + '{"en": "two", "fr": null}\n',
        "a number": good + '{"en": "two", "fr": 2}\n',
        "a list": good + '{"en": "two", "fr": ["deux"]}\n',
        "an object for a text": good + '{"en": "two", "fr": {"text": "deux"}}\n',
        "a broken line": good + '{"en": "two", "fr": "deux"\n' + good,
        "a line of text": good + "two deux\n",
        "a line of a list": good + '["two", "deux"]\n',
        "blank lines": f"\n{good}\n\n{good}",
        "no end of line": good.removesuffix("\n"),
        "a key twice": good + '{"en": "no", "en": "two", "fr": "deux"}\n',
        "half of a surrogate pair": good + '{"en": "two", "fr": "\\ud800"}\n',
        "escapes": good + '{"en": "\\u0074wo \\/ \\"", "fr": "d\\u00e9\\ud83d\\ude00"}\n',
        "empty": "",
    }.items():
        yield _case(folder, title, text, ("en", "fr"))


def _case(folder: Path, name: str, text: str, columns: tuple[str, str]) -> Case:
    path = folder / f"jsonl-{name.replace(' ', '-')}.jsonl"
    path.write_text(text, encoding="utf-8", newline="")
    return Case(name, str(path), columns)
