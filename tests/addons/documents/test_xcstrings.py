"""String catalogues of Xcode: texts that lack the target language get it, and nothing else of the file changes."""

import json
from typing import Any

import pytest

from tests.addons.documents.test_markup_properties import echo
from tests.support.each import each
from tests.support.marked import in_order, reversed_order
from transformer_cli.addons.documents.document import translate_document
from transformer_cli.addons.documents.plural_categories import categories_of, needs_number
from transformer_cli.errors import DataError
from transformer_cli.languages import NAMES

# As Xcode 15 writes it: https://developer.apple.com/documentation/xcode/localizing-and-varying-text-with-a-string-catalog
XCODE = """{
  "sourceLanguage" : "en",
  "strings" : {
    "" : {

    },
    "%lld" : {

    },
    "A cat" : {

    },
    "A dog" : {
      "comment" : "In the list",
      "extractionState" : "manual",
      "localizations" : {
        "ca" : {
          "stringUnit" : {
            "state" : "translated",
            "value" : "Un gos"
          }
        },
        "fr" : {
          "stringUnit" : {
            "state" : "translated",
            "value" : "Un chien"
          }
        }
      },
      "shouldTranslate" : true
    },
    "Two" : {
      "localizations" : {
        "ca" : {
          "stringUnit" : {
            "state" : "translated",
            "value" : "Dos"
          }
        }
      }
    }
  },
  "version" : "1.0"
}"""
NEW = """"de" : {
          "stringUnit" : {
            "state" : "needs_review",
            "value" : "TEXT"
          }
        }"""


def translated(text: str, language: str = "de") -> str:
    return translate_document(text, "xcstrings", in_order, languages=("en", language)).text


def catalogue(*entries: str, languages: str = "") -> str:
    strings = ", ".join(f'"k{n}": {one}' for n, one in enumerate(entries))
    return f'{{"sourceLanguage": "en", "strings": {{{strings}{languages}}}, "version": "1.0"}}'


def unit(value: str, state: str = "translated") -> dict[str, Any]:
    return {"stringUnit": {"state": state, "value": value}}


def localized(source: Any, target: Any = None, language: str = "de", **entry: Any) -> Any:
    """The translation of an entry with these localizations."""
    localizations = {"en": source} | ({} if target is None else {language: target})
    document = catalogue(json.dumps({"localizations": localizations, **entry}))
    found = json.loads(translated(document, language))["strings"]["k0"]
    assert found["localizations"]["en"] == source
    return found["localizations"].get(language)


def plural(**forms: str) -> dict[str, Any]:
    return {"variations": {"plural": {name: unit(value) for name, value in forms.items()}}}


def values(localization: Any) -> Any:
    """The texts of a localization without their states, all of which are to be reviewed."""
    if "stringUnit" in localization and len(localization) == 1:
        assert localization["stringUnit"]["state"] == "needs_review"
        return localization["stringUnit"]["value"]
    return {key: values(one) if isinstance(one, dict) else one for key, one in localization.items()}


def test_what_is_added_is_laid_out_as_xcode_does_it() -> None:
    found = translated(XCODE)
    expected = XCODE.replace(
        '"A cat" : {\n\n    }',
        '"A cat" : {\n      "localizations" : {\n        ' + NEW.replace("TEXT", "Aж catж") + "\n      }\n    }",
    )
    expected = expected.replace('"fr" : {', NEW.replace("TEXT", "Aж dogж") + ',\n        "fr" : {')
    last = '"value" : "Dos"\n          }\n        }'
    assert found == expected.replace(last, f"{last},\n        {NEW.replace('TEXT', 'Twoж')}")
    xcode = json.dumps(json.loads(found), indent=2, ensure_ascii=False, separators=(",", " : "))
    assert xcode.replace("{}", "{\n\n    }") == found
    assert translated(found) == found


def test_other_layouts_are_kept() -> None:
    lines = '{\r\n\t"version": "1.0",\r\n\t"sourceLanguage": "en",\r\n\t"strings": {\r\n\t\t"A": {}\r\n\t}\r\n}\r\n'
    added = '{\n\t\t\t"localizations": {\n\t\t\t\t"de": {\n\t\t\t\t\t"stringUnit": {\n'
    added += '\t\t\t\t\t\t"state": "needs_review",\n\t\t\t\t\t\t"value": "Aж"\n\t\t\t\t\t}\n\t\t\t\t}\n\t\t\t}\n\t\t}'
    assert translated(lines) == lines.replace("{}", added.replace("\n", "\r\n"))
    short = '{"sourceLanguage":"en","strings":{"A":{}},"version":"1.0"}'
    added = '{"localizations":{"de":{"stringUnit":{"state":"needs_review","value":"Aж"}}}}'
    assert translated(short) == short.replace("{}", added)


@each(
    "source, written",
    [
        ("Hi %1$@, %2$lld files, %@", "%@ж filesж, %2$lldж %1$@ж, Hiж"),
        ("%#@count@ of %1$#@all@", "%1$#@all@ж ofж %#@count@ж"),
        ("%arg files", "filesж %argж"),
        ("a ^[%lld new file](inflect: true) here", "hereж ^[fileж newж %lldж](inflect: true) aж"),
        ("see [our page](https://x.y/z?a=b) now", "nowж [pageж ourж](https://x.y/z?a=b) seeж"),
        ("100 % sure", "sureж % 100ж"),
        ('a "b" \\ c', 'cж \\ "bж" aж'),
        ("One\n\nTwo", "Oneж\n\nTwoж"),
        ("Open ${applicationName}", "${applicationName} Openж"),
    ],
)
def test_variables_and_links_are_kept(source: str, written: str) -> None:
    document = catalogue(json.dumps({"localizations": {"en": unit(source)}}))
    found = translate_document(document, "xcstrings", reversed_order, languages=("en", "de")).text
    assert json.loads(found)["strings"]["k0"]["localizations"]["de"]["stringUnit"]["value"] == written


FORMS = {"one": "One file", "other": "%lld files"}


@each(
    "language, forms, written",
    [
        ("de", FORMS, {"one": "Oneж fileж", "other": "%lldж filesж"}),
        ("ja", FORMS, {"other": "%lldж filesж"}),
        # 21 and 31 have the form of 1 in Russian, so that its text needs the number.
        ("ru", FORMS, dict.fromkeys(("few", "many", "one", "other"), "%lldж filesж")),
        ("pl", FORMS, {"one": "Oneж fileж"} | dict.fromkeys(("few", "many", "other"), "%lldж filesж")),
        (
            "uk",
            {"one": "%lld file", "other": "%lld files"},
            {"one": "%lldж fileж"} | dict.fromkeys(("few", "many", "other"), "%lldж filesж"),
        ),
        ("fr", {"zero": "No file", **FORMS}, {"one": "Oneж fileж", "other": "%lldж filesж", "zero": "Noж fileж"}),
        ("x-klingon", FORMS, {"one": "Oneж fileж", "other": "%lldж filesж"}),
    ],
)
def test_a_translation_has_the_plural_forms_of_its_language(
    language: str, forms: dict[str, str], written: dict[str, str]
) -> None:
    found = localized(plural(**forms), language=language)
    assert values(found) == {"variations": {"plural": written}}
    assert list(found["variations"]["plural"]) == sorted(written)


def test_devices_and_substitutions_are_as_in_the_source() -> None:
    devices = {"variations": {"device": {"iphone": unit("Tap"), "other": plural(one="A cat", other="Cats")}}}
    assert values(localized(devices)) == {
        "variations": {"device": {"iphone": "Tapж", "other": values(localized(plural(one="A cat", other="Cats")))}}
    }
    source = {
        **unit("%#@files@ in %2$#@folders@"),
        "substitutions": {
            "files": {"argNum": 1, "formatSpecifier": "lld", **plural(one="%arg file", other="%arg files")},
            "folders": {"argNum": 2, "formatSpecifier": "lld", **plural(other="%arg")},
        },
    }
    found = localized(source)
    assert found["stringUnit"] == {"state": "needs_review", "value": "%#@files@ж inж %2$#@folders@ж"}
    files = {"plural": {"one": "%argж fileж", "other": "%argж filesж"}}
    folders = {"plural": {"one": "%arg", "other": "%arg"}}
    assert values({"substitutions": found["substitutions"]}) == {
        "substitutions": {
            "files": {"argNum": 1, "formatSpecifier": "lld", "variations": files},
            "folders": {"argNum": 2, "formatSpecifier": "lld", "variations": folders},
        }
    }


def test_phrases_of_a_shortcut_are_translated_each() -> None:
    phrases = {"stringSet": {"state": "new", "values": ["Open ${applicationName}", "Start it"]}}
    assert localized(phrases) == {
        "stringSet": {"state": "needs_review", "values": ["Openж ${applicationName}", "Startж itж"]}
    }


@each(
    "target",
    [
        unit("Eine Katze"),
        unit("Eine Katze", "needs_review"),
        unit("", "translated"),
        unit("Eine Katze", "a state of tomorrow"),
        plural(one="Eine Katze", other="Katzen"),
    ],
)
def test_a_translation_stays(target: Any) -> None:
    assert localized(unit("A cat"), target) == target


@each(
    "source, target, written",
    [
        (unit("A cat"), unit("A cat", "new"), unit("Aж catж", "needs_review")),
        (unit("A cat"), unit("", "new"), unit("Aж catж", "needs_review")),
        (unit("A cat"), {}, unit("Aж catж", "needs_review")),
        (plural(**FORMS), unit("", "new"), localized(plural(**FORMS))),
        (
            plural(**FORMS),
            {"variations": {"plural": {"one": unit("", "new"), "other": unit("%lld Dateien")}}},
            {"variations": {"plural": {"one": unit("Oneж fileж", "needs_review"), "other": unit("%lld Dateien")}}},
        ),
        (
            {"variations": {"device": {"mac": unit("Click"), "other": unit("Tap")}}},
            {"variations": {"plural": {"other": unit("", "new")}}},
            {"variations": {"plural": {"other": unit("Tapж", "needs_review")}}},
        ),
        (
            unit("%lld files"),
            {"variations": {"plural": {"one": unit("", "new"), "other": unit("", "new")}}},
            {"variations": {"plural": dict.fromkeys(("one", "other"), unit("%lldж filesж", "needs_review"))}},
        ),
    ],
)
def test_what_is_new_is_translated(source: Any, target: Any, written: Any) -> None:
    assert localized(source, target) == written


@each("entry", [{"shouldTranslate": False}, {"extractionState": "stale"}])
def test_what_is_not_to_be_translated_and_what_the_program_has_no_longer_stays(entry: Any) -> None:
    assert localized(unit("A cat"), **entry) is None


@each("key", ["settings.title", "SETTINGS_TITLE", "%@", "12", "a.b-c.d"])
def test_a_key_that_is_no_text_is_not_translated(key: str) -> None:
    document = f'{{"sourceLanguage": "en", "strings": {{"{key}": {{}}}}, "version": "1.0"}}'
    assert translated(document) == document


def test_the_language_is_written_as_the_file_has_it_and_may_be_translated_from() -> None:
    entries = [json.dumps({"localizations": one}) for one in ({"pt-BR": unit("Um gato")}, {"en": unit("A dog")})]
    assert '"pt-BR": {"stringUnit"' in translated(catalogue(*entries), "pt").split("k1")[1]
    found = translate_document(catalogue(*entries), "xcstrings", in_order, languages=("pt", "de")).text
    assert [one["localizations"].get("de") for one in json.loads(found)["strings"].values()] == [
        unit("Umж gatoж", "needs_review"),
        None,
    ]
    # The key of the first is its English text.
    assert translate_document(catalogue(*entries), "xcstrings", in_order, languages=("pt", "en")).text == catalogue(
        *entries
    )


def test_a_translation_that_equals_its_source_is_written() -> None:
    document = catalogue(json.dumps({"localizations": {"en": unit("Sport")}}))
    found = translate_document(document, "xcstrings", echo, languages=("en", "de")).text
    assert json.loads(found)["strings"]["k0"]["localizations"]["de"] == unit("Sport", "needs_review")


@pytest.mark.parametrize(
    ("text", "languages", "says"),
    [
        ("{", ("en", "de"), "1: is no JSON: Expecting property name"),
        ("[]", ("en", "de"), "1: is no string catalogue of Xcode: it has no sourceLanguage, or no object of strings."),
        ('{"sourceLanguage": "en", "strings": []}', ("en", "de"), "1: is no string catalogue of Xcode"),
        (catalogue("{}"), ("", ""), "1: has texts in en. Name the language to translate into, by --to"),
        (catalogue("{}"), ("fr", "de"), "1: has texts in en, and none in fr. Name the language to translate from, by"),
    ],
)
def test_what_cannot_be_read_is_refused(text: str, languages: tuple[str, str], says: str) -> None:
    with pytest.raises(DataError) as caught:
        translate_document(text, "xcstrings", in_order, languages=languages)
    assert str(caught.value).startswith(f"the document:{says}")


@each(
    "code, written",
    [
        *(("deu_Latn", "de"), ("pt_br", "pt-BR"), ("zho_Hans", "zh-Hans"), ("zh-hant", "zh-Hant")),
        *(("srp_Cyrl", "sr"), ("sr@latin", "sr-Latn"), ("x-klingon", "x-klingon"), ("iw", "he")),
    ],
)
def test_a_language_that_the_file_lacks_is_written_as_bcp_47_has_it(code: str, written: str) -> None:
    (entry,) = json.loads(translated(catalogue(json.dumps({"localizations": {"en": unit("A")}})), code))[
        "strings"
    ].values()
    assert list(entry["localizations"]) == sorted(["en", written])


def test_a_source_without_the_form_for_other_numbers_has_the_last_that_it_has() -> None:
    assert values(localized(plural(one="A cat"), language="ja")) == {"variations": {"plural": {"other": "Aж catж"}}}


def test_variations_too_deep_within_each_other_are_refused() -> None:
    deep = '{"variations": {"plural": {"other": ' * 100 + json.dumps(unit("A")) + "}}}" * 100
    with pytest.raises(DataError, match=r"the document:1: .* is too deep within variations"):
        translated(catalogue(f'{{"localizations": {{"en": {deep}}}}}'))
    devices = {"variations": {"device": {"other": plural(one="%arg file", other="%arg files")}}}
    source = {**unit("%#@a@ here"), "substitutions": {"a": {"argNum": 1, "formatSpecifier": "lld", **devices}}}
    assert localized(source)["substitutions"]["a"]["variations"]["device"]["other"]["variations"]["plural"]["one"]


def test_objects_too_deep_within_each_other_are_refused() -> None:
    deep = '{"a": ' * 990 + "1" + "}" * 990
    with pytest.raises(DataError, match="too deep within each other"):
        translated(catalogue(f'{{"localizations": {{"en": {deep}}}}}'))


@each("entry", ["1", "null", '"A"', "[]", '{"localizations": []}', '{"localizations": {"en": 1, "de": "x"}}'])
def test_an_entry_of_another_form_is_no_error(entry: str) -> None:
    json.loads(translated(catalogue(entry)))


def test_plural_categories_are_those_of_cldr() -> None:
    babel = pytest.importorskip("babel", reason="needs Babel")
    for language in NAMES:
        try:
            rule = babel.Locale(language).plural_form
        except babel.UnknownLocaleError:
            continue
        if not rule.tags:  # has one form, or is not in CLDR
            assert categories_of(language, []) in (["other"], ["one", "other"]), language
            continue
        often = {tag for tag in rule.tags if sum(rule(n) == tag for n in range(1001)) > 5}
        tags = {*rule.tags, "other"} - ({"many"} if language in ("ca", "es", "fr", "gl", "it", "pt") else set())
        assert categories_of(language, []) == sorted(tags), language
        for tag in ("zero", "one"):
            assert needs_number(tag, language) == (tag in often), (language, tag)
