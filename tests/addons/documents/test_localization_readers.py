"""Translated files of localisation, as the Translate Toolkit reads them: each text once, the others as before."""

from collections.abc import Sequence
from typing import Any

import pytest

from tests.addons.documents import test_json, test_key_values, test_stringsdict, test_ts, test_xliff, test_yaml
from tests.addons.documents import test_tmx as tmx
from tests.support.marked import MARK, in_order, unmarked
from transformer_cli.addons.documents.document import translate_document

storage = pytest.importorskip("translate.storage", reason="needs the Translate Toolkit")


def _read(module: str, name: str, document: str) -> list[tuple[str, str, str]]:
    store: Any = getattr(pytest.importorskip(f"translate.storage.{module}"), name)()
    store.parse(document.encode())
    return [(str(one.getid()), str(one.source), str(one.target or "")) for one in store.units if not one.isheader()]


def _is_of(unit: str, version: str) -> bool:
    return f"document:{version}" in unit and not any(prefix in unit for prefix in ("mq:", "sdl:", "mtc:"))


BILINGUAL: list[tuple[str, str, str, Sequence[str]]] = [
    ("xliff", "xliff", "xlifffile", [test_xliff.unit(before) for before, _ in test_xliff.WRITTEN.values()]),
    ("xliff", "xliff", "xlifffile", [one for one in test_xliff.KEPT.values() if _is_of(one, "1.2")]),
    ("xliff", "xliff2", "Xliff2File", [one for one in test_xliff.KEPT.values() if _is_of(one, "2.0")]),
    (
        *("ts", "ts2", "tsfile"),
        [
            test_ts.message(f"<source>{source}</source>{test_ts.UNFINISHED}{before}</translation>", attributes)
            for source, before, _, attributes in test_ts.WRITTEN
            if before or "numerus" not in attributes  # it reads no plural without forms
        ],
    ),
]
KEYS: list[tuple[str, str, str, Sequence[str]]] = [
    ("properties", "properties", "javafile", [before for before, _ in test_key_values.PROPERTIES]),
    ("stringsdict", "stringsdict", "StringsDictFile", [test_stringsdict.FILES, test_stringsdict.TWO]),
    ("strings", "properties", "stringsutf8file", [before for before, _ in test_key_values.STRINGS]),
    ("json", "jsonl10n", "JsonNestedFile", [one for one, _ in test_json.WRITTEN if one.lstrip("\ufeff")[0] == "{"]),
    (
        *("yaml", "yaml", "YAMLFile"),
        [one for one, _ in test_yaml.WRITTEN if "..." not in one and "-01-" not in one],  # it refuses these
    ),
]


@pytest.mark.parametrize(("format_name", "module", "name", "documents"), BILINGUAL)
def test_missing_translations_are_added(format_name: str, module: str, name: str, documents: Sequence[str]) -> None:
    for document in documents:
        after = translate_document(document, format_name, in_order).text
        for old, new in zip(_read(module, name, document), _read(module, name, after), strict=True):
            assert old[:2] == new[:2]
            if not old[2] and new[2]:
                assert MARK in new[2]
                assert MARK * 2 not in new[2]
                assert "".join(unmarked(new[2]).split()) == "".join(new[1].split())


@pytest.mark.parametrize(("format_name", "module", "name", "documents"), KEYS)
def test_values_are_translated(format_name: str, module: str, name: str, documents: Sequence[str]) -> None:
    for document in documents:
        after = translate_document(document, format_name, in_order).text
        for old, new in zip(_read(module, name, document), _read(module, name, after), strict=True):
            assert old[0] == new[0]
            assert unmarked(new[1]) == old[1]


def test_a_memory_has_both_languages() -> None:
    read = pytest.importorskip("translate.storage.tmx").tmxfile
    for before, _ in tmx.WRITTEN:
        if "xml:lang" in before:
            after = translate_document(tmx.memory(before), "tmx", in_order, languages=("en", "de")).text
            store = read(sourcelanguage="en", targetlanguage="de")
            store.parse(after.encode())
            assert [unmarked(one.target) for one in store.units] == [one.source for one in store.units]
