"""The HTTP APIs: what is asked and what is answered, with stand-ins whose translations are known."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.addons.serving.toy_server import BREAK, Running, StandIn, running, stand_in_server, toy_server
from tests.support.each import each
from tests.toy.run import written_model
from transformer_cli import api
from transformer_cli.addons.documents.document import translate_document
from transformer_cli.addons.documents.formats import formats, names_by_ending
from transformer_cli.addons.serving.detection import detect
from transformer_cli.addons.serving.downloads import Downloads
from transformer_cli.config.decode import DecodeConfig
from transformer_cli.decoding.results import TranslateOptions
from transformer_cli.languages import matched

JSON = {"Content-Type": "application/json"}
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
DECODE = DecodeConfig(n_best=2)
LIMITS = {"texts": 3, "characters": 50, "body_bytes": 5000}


@pytest.fixture(scope="module")
def served() -> Iterator[Running]:
    """de → en in capitals."""
    with running(stand_in_server(limits=LIMITS)) as server:
        yield server


@pytest.fixture(scope="module")
def both() -> Iterator[Running]:
    """de → en in capitals, en → de with the words reversed, and fr → en in capitals."""
    with running(stand_in_server(StandIn(), StandIn("en", "de", reverses=True), StandIn("fr"))) as server:
        yield server


def multipart(*fields: tuple[str, bytes], file: tuple[str, bytes] | None = None) -> tuple[bytes, dict[str, str]]:
    """The body of a form with a boundary, and its headers."""
    parts = [b'Content-Disposition: form-data; name="%s"\r\n\r\n%s' % (name.encode(), value) for name, value in fields]
    if file is not None:
        head = f'Content-Disposition: form-data; name="file"; filename="{file[0]}"\r\nContent-Type: text/plain'
        parts.append(b"%s\r\n\r\n%s" % (head.encode(), file[1]))
    body = b"".join(b"--limit\r\n%s\r\n" % part for part in parts) + b"--limit--\r\n"
    return body, {"Content-Type": "multipart/form-data; boundary=limit"}


# ---- Language codes


@each(
    "asked, known, code",
    [
        ("EN-us", ["de", "en"], "en"),
        ("de_AT", ["de", "en"], "de"),
        ("pt_BR", ["pt-PT", "pt-BR"], "pt-BR"),
        ("pt-BR", ["pt_PT"], None),  # another country's
        ("pt", ["pt_BR"], "pt_BR"),
        ("pt", ["pt_BR", "pt_PT"], None),  # which one is not said
        ("pt", ["pt_BR", "pt"], "pt"),
        ("zh-Hans", ["zh"], "zh"),
        ("zh-CN", ["zh"], "zh"),
        ("zh-Hant", ["zh"], None),  # other characters
        ("zh-TW", ["zh-Hans", "zh_Hant"], "zh_Hant"),
        ("zt", ["zh-Hant"], "zh-Hant"),  # as LibreTranslate writes it
        ("pb", ["pt-BR"], "pt-BR"),
        ("sr@latin", ["sr"], None),
        ("sr@latin", ["sr", "sr-Latn"], "sr-Latn"),
        ("nb-NO", ["no"], "no"),
        ("iw", ["he"], "he"),
        ("de", ["den"], None),
        ("", ["de"], None),
        ("-", ["de"], None),
        ("d" * 10_000, ["de"], None),
    ],
)
def test_a_clients_code_is_that_of_a_model(asked: str, known: list[str], code: str | None) -> None:
    assert matched(asked, known) == code


def test_a_script_that_a_language_is_not_usually_written_in_is_another(served: Running) -> None:
    assert (matched("fr_Cyrl", ["fr"]), matched("pa-Arab", ["pa"]), matched("ru_Latn", ["ru"])) == (None, None, None)
    assert (matched("fr_Latn", ["fr"]), matched("pan_Guru", ["pa"]), matched("ja-Jpan", ["ja"])) == ("fr", "pa", "ja")
    status, answer = served.ask("/translate", {"q": "x", "source": "de-Cyrl", "target": "en"})
    assert status == 400
    assert "; for de-Cyrl there is de. Choose" in answer["error"]


def test_languages_are_detected_among_those_that_are_loaded() -> None:
    german = detect("Der Hund liegt auf dem Sofa.", ["en_US", "de", "fr"])
    assert (german[0].language, german[0].confidence > 0.9) == ("de", True)
    assert sum(one.confidence for one in german) == pytest.approx(1)
    assert detect("The <b>dog</b> lies on the sofa.", ["de", "en_US"])[0].language == "en_US"
    assert {one.confidence for one in detect("123 😀", ["de", "en"])} == {0.0}, "nothing says which"
    assert [one.language for one in detect("Hund", ["hsb", "de"])] == ["de"], "it does not know Upper Sorbian"


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("這是一個美好的一天。", "zho_Hant"),
        ("这是一个美好的一天。", "zho_Hans"),
        ("中文", "zho_Hans"),  # written so in both: the first
        ("Добар дан, како сте данас?", "srp_Cyrl"),
    ],
)
def test_of_a_language_in_two_scripts_that_of_the_text_is_detected(text: str, language: str) -> None:
    codes = ["eng_Latn", "srp_Latn", "srp_Cyrl", "zho_Hans", "zho_Hant"]
    first, *others = detect(text, codes)
    assert first.language == language
    assert sum(one.confidence for one in (first, *others)) == pytest.approx(1)


def test_texts_of_a_list_are_detected_one_by_one_and_each_has_its_model(both: Running) -> None:
    texts = ["Der Hund liegt auf dem Sofa", "Le chien est sur le canapé"]
    status, answer = both.ask("/translate", {"q": texts, "source": "auto", "target": "en"})
    assert status == 200
    assert answer["translatedText"] == [text.upper() for text in texts]
    assert [one["language"] for one in answer["detectedLanguage"]] == ["de", "fr"]
    assert all(90 < one["confidence"] <= 100 for one in answer["detectedLanguage"])
    _, own = both.ask("/api/translate", {"text": texts, "target": "en"})
    assert [one["source"] for one in own["translations"]] == ["de", "fr"]
    assert own["model"]["name"] == "de-en, fr-en"


def test_what_is_surely_in_the_target_language_is_left_as_it_is(both: Running) -> None:
    text = "The dog lies on the sofa and sleeps."
    status, answer = both.ask("/translate", {"q": text, "source": "auto", "target": "en"})
    assert (status, answer["translatedText"], answer["detectedLanguage"]["language"]) == (200, text, "en")
    _, own = both.ask("/api/translate", {"text": text, "target": "en"})
    assert own["translations"][0]["flags"] == ["copied"]
    assert own["model"] is None


def test_one_source_language_needs_no_detection(served: Running) -> None:
    status, answer = served.ask("/translate", {"q": "the dog", "source": "auto", "target": "en"})
    assert (status, answer["detectedLanguage"]) == (200, {"confidence": 100.0, "language": "de"})


# ---- LibreTranslate


def test_alternatives_are_lists_of_other_translations(served: Running) -> None:
    ask = {"source": "de", "target": "en", "alternatives": 2}
    assert served.ask("/translate", {"q": "Hund", **ask})[1] == {
        "translatedText": "HUND",
        "alternatives": ["HUND (1)", "HUND (2)"],
    }
    _, answer = served.ask("/translate", {"q": ["a", "b"], **ask, "alternatives": "1"})
    assert answer == {"translatedText": ["A", "B"], "alternatives": [["A (1)"], ["B (1)"]]}


def test_html_keeps_its_tags_and_placeholders(served: Running) -> None:
    ask = {"q": "<p>ein <i>Hund</i> {x} &amp; 3</p>", "source": "de", "target": "en", "format": "html"}
    assert served.ask("/translate", ask) == (200, {"translatedText": "<p>EIN <i>HUND</i> {x} &amp; 3</p>"})


def test_forms_say_the_same_as_json(served: Running) -> None:
    url_encoded = f"q={quote('für & wider')}&source=de&target=en".encode()
    assert served.ask("/translate", url_encoded, headers=FORM) == (200, {"translatedText": "FÜR & WIDER"})
    assert served.ask("/translate", "q=für&source=de&target=en".encode(), headers=FORM)[1] == {"translatedText": "FÜR"}
    body, headers = multipart(("q", "für dich".encode()), ("source", b"de"), ("target", b"en"))
    assert served.ask("/translate", body, headers=headers) == (200, {"translatedText": "FÜR DICH"})
    assert served.ask("/translate?q=x&source=de&target=en", b"")[1] == {"translatedText": "X"}
    as_form = json.dumps({"q": "x", "source": "de", "target": "en"}).encode()
    assert served.ask("/translate", as_form, headers=FORM)[1] == {"translatedText": "X"}, "as curl --data sends it"
    lines = served.ask("/translate", b"q=a%0D%0Ab&source=de&target=en", headers=FORM)[1]
    assert lines == {"translatedText": "A\nB"}, "browsers write each line end like this"


def test_languages_and_settings(both: Running) -> None:
    assert both.ask("/languages")[1] == [
        {"code": "en", "name": "English", "targets": ["de"]},
        {"code": "fr", "name": "French", "targets": ["en"]},
        {"code": "de", "name": "German", "targets": ["en"]},
    ]
    _, settings = both.ask("/frontend/settings")
    assert sorted(settings) == [  # as LibreTranslate 1.6 answers
        *("apiKeys", "charLimit", "filesTranslation", "frontendTimeout", "keyRequired", "language", "suggestions"),
        "supportedFilesFormat",
    ]
    assert (settings["charLimit"], settings["keyRequired"], settings["suggestions"]) == (20_000, False, False)
    assert settings["language"]["target"] == {"code": "en", "name": "English"}
    assert both.ask("/health") == (200, {"status": "ok"})
    assert "/translate" in both.ask("/spec")[1]["paths"]
    assert both.ask("/suggest", {"q": "a", "s": "b"}) == (403, {"error": "this server takes no suggestions"})


def test_many_languages_are_listed_as_languages_and_not_as_pairs() -> None:
    codes = [f"x{a}{b}_Latn" for a in "abcdefghij" for b in "abcdefghij"]
    with running(stand_in_server(StandIn("+".join(codes), "+".join(codes)))) as many:
        _, found = many.ask("/languages")
        assert len(found) == 100
        assert all(len(one["targets"]) == 99 for one in found)
        _, models = many.ask("/api/models")
        (only,) = models["models"]
        assert list(only["sources"]) == list(only["targets"]) == codes
        assert only["tags"] == []
        status, error = many.ask("/api/translate", {"text": "a b", "source": "xaa_Latn", "target": "xaa_Cyrl"})
        assert status == 400
        assert len(str(error)) < 700


def test_detect_names_targets_as_well(served: Running) -> None:
    for found in (served.ask("/detect", {"q": "The dog"}), served.ask("/detect?q=The%20dog")):
        assert (found[0], found[1][0]["language"]) == (200, "en")


@each(
    "name, content, written",
    [
        ("a b.txt", "ein Hund\r\n\r\n- {x} zwei\r\n", "EIN HUND\r\n\r\n- {x} ZWEI\r\n"),
        ("b.txt", "a <b>\x0cb \x0b c\rd e\u2028f\r", "A <b>\x0cB \x0b C\rD E\u2028F\r"),
        ("f.vtt", "WEBVTT\n\n00:01.000 --> 00:02.000\nein\n", "WEBVTT\n\n00:01.000 --> 00:02.000\nEIN\n"),
        ("ü.HTML", "<p>ein <b>Hund</b></p>", "<p>EIN <b>HUND</b></p>"),
        ("../../x.xml", '\ufeff<a b="c">ein Hund</a>', '\ufeff<a b="c">EIN HUND</a>'),
    ],
)
def test_a_file_is_translated_and_fetched(served: Running, name: str, content: str, written: str) -> None:
    body, headers = multipart(("source", b"de"), ("target", b"en"), file=(name, content.encode()))
    status, answer = served.ask("/translate_file", body, headers=headers)
    assert status == 200
    assert answer["translatedFileUrl"].startswith(f"{served.url}/download_file/")
    path = answer["translatedFileUrl"].removeprefix(served.url)
    assert served.ask(path) == (200, written.encode())
    assert served.ask(f"{path}x")[0] == 404


def test_every_format_of_files_is_listed_and_known(served: Running) -> None:
    assert set(names_by_ending().values()) == set(formats()) - {"wrapped"}  # .txt is that of lines
    assert served.ask("/frontend/settings")[1]["supportedFilesFormat"] == list(names_by_ending())


def test_files_that_cannot_be_translated(served: Running) -> None:
    languages = (("source", b"de"), ("target", b"en"))
    body, headers = multipart(*languages, file=("a.doc", b"x"))
    assert (
        "no format has the ending '.doc'. Choose one of ."
        in served.ask("/translate_file", body, headers=headers)[1]["error"]
    )
    body, headers = multipart(*languages, file=("a.txt", b"\xff"))
    assert (
        "file:1: byte 0xff at column 1 is not UTF-8" in served.ask("/translate_file", body, headers=headers)[1]["error"]
    )
    page = '<html><meta charset="iso-8859-1">Hund</html>'
    body, headers = multipart(*languages, file=("a.html", page.encode()))
    assert "says that its encoding is iso-8859-1" in served.ask("/translate_file", body, headers=headers)[1]["error"]
    body, headers = multipart(*languages)
    assert served.ask("/translate_file", body, headers=headers)[1]["error"].startswith("file: is missing")


def test_translated_files_are_kept_for_a_while_and_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Downloads(10)
    tokens = [kept.add(f"{n}", bytes(4)) for n in range(3)]
    assert [kept.get(token) is not None for token in tokens] == [False, True, True]
    later = time.monotonic() + 601
    monkeypatch.setattr(time, "monotonic", lambda: later)
    assert kept.get(tokens[2]) is None


# ---- DeepL


def test_deepl_forms_repeat_text(served: Running) -> None:
    body = b"auth_key=k&text=ein+Hund&text=zwei&target_lang=en-gb&split_sentences=0&show_billed_characters=1"
    assert served.ask("/v2/translate", body, headers=FORM)[1] == {
        "translations": [
            {"detected_source_language": "DE", "text": "EIN HUND", "billed_characters": 8},
            {"detected_source_language": "DE", "text": "ZWEI", "billed_characters": 4},
        ]
    }


@each(
    "change, says",
    [
        ({"target_lang": None}, "target_lang: is missing. Give the code of a language, as DE"),
        ({"text": []}, "text: is empty. Give a text, or several"),
        ({"text": [1]}, "text[0]: 1 is no text"),
        ({"tag_handling": "rtf"}, "tag_handling: 'rtf' is not taken. Choose one of html, xml"),
        ({"tag_handling": {}}, "tag_handling: {} is not taken. Choose one of html, xml"),
        (
            {"model_type": []},
            "model_type: [] is not taken. Choose one of quality_optimized, prefer_quality_optimized, latency_optimized",
        ),
        ({"ignore_tags": {}}, "ignore_tags: {} is no text"),
        ({"formality": "less"}, "formality: 'less' is not taken. Choose one of default, prefer_more, prefer_less"),
        ({"style_id": "x"}, "style_id: not on this server. Leave it out"),
        ({"show_billed_characters": 7}, "show_billed_characters: 7 is neither true nor false"),
        (
            {"text": ["<x>a</x>"], "ignore_tags": ["x"]},
            "ignore_tags: <x> has content, and what is in tags is translated",
        ),
        (
            {"text": ["<X>a</x>"], "ignore_tags": "b, x", "tag_handling": "html"},
            "ignore_tags: <X> has content, and what is in tags is translated",
        ),
        ({"target_lang": "FR"}, "target_lang: 'FR' is not supported. Choose one of EN"),
        ({"source_lang": "FR"}, "source_lang: 'FR' is not supported. Choose one of DE"),
        (
            {"split_sentences": "paragraphs"},
            "split_sentences: 'paragraphs' is not taken. Choose one of 0, 1, nonewlines",
        ),
        ({"split_sentences": ["1"]}, "split_sentences: ['1'] is not taken. Choose one of 0, 1, nonewlines"),
        (
            {"model_type": "best"},
            "model_type: 'best' is not taken. Choose one of quality_optimized, prefer_quality_optimized,"
            " latency_optimized",
        ),
        ({"tag_handling_version": "v3"}, "tag_handling_version: 'v3' is not taken. Choose one of v1, v2"),
        ({"preserve_formatting": "no"}, "preserve_formatting: 'no' is neither true nor false"),
        ({"custom_instructions": ["short"]}, "custom_instructions: not on this server. Leave it out"),
    ],
)
def test_what_deepl_has_and_this_server_has_not(served: Running, change: dict[str, Any], says: str) -> None:
    ask = {"text": ["Hund"], "target_lang": "EN", **change}
    assert served.ask("/v2/translate", ask) == (400, {"message": says})


def asked_of_deepl(server: Running, text: str, **options: Any) -> dict[str, Any]:
    status, answer = server.ask("/v2/translate", {"text": [text], "source_lang": "EN", "target_lang": "DE", **options})
    assert status == 200, answer
    (found,) = answer["translations"]
    assert isinstance(found, dict)
    return found


@each(
    "split, expected",
    [
        (None, "two one\nfour three\r\n\r\nsix five"),
        ("1", "two one\nfour three\r\n\r\nsix five"),
        (1, "two one\nfour three\r\n\r\nsix five"),
        ("nonewlines", "four three two one\r\n\r\nsix five"),
        ("0", "four three two one\r\n\r\nsix five"),
        (False, "four three two one\r\n\r\nsix five"),
    ],
)
def test_split_sentences_says_whether_a_line_end_ends_a_sentence(both: Running, split: Any, expected: str) -> None:
    """The model reverses words, which shows which of them were one text."""
    options = {} if split is None else {"split_sentences": split}
    assert asked_of_deepl(both, "one two\nthree four\r\n\r\nfive six", **options)["text"] == expected


def test_line_ends_of_markup_are_white_space_for_deepl(both: Running) -> None:
    found = asked_of_deepl(both, "<p>one\ntwo</p>", tag_handling="html", split_sentences="nonewlines")
    assert found["text"].split() == ["<p>two", "one</p>"]


@pytest.mark.parametrize(
    ("asked", "used"),
    [
        ("quality_optimized", "quality_optimized"),
        ("prefer_quality_optimized", "quality_optimized"),
        ("latency_optimized", "latency_optimized"),
    ],
)
def test_the_model_type_is_named_where_one_was_asked_for(both: Running, asked: str, used: str) -> None:
    assert asked_of_deepl(both, "one", model_type=asked)["model_type_used"] == used
    assert "model_type_used" not in asked_of_deepl(both, "one")


@each(
    "text, expected",
    [
        ("one <b>two</b> three", "three <b>two</b> one"),
        ("one &amp; two", "two &amp; one"),
        ("one < two", "two < one"),
        ("one {name}", "{name} one"),
    ],
)
def test_what_looks_like_a_tag_is_kept_in_plain_text(both: Running, text: str, expected: str) -> None:
    assert asked_of_deepl(both, text)["text"] == expected
    for more in ({}, {"format": "text"}, {"alternatives": 2}):
        _, answer = both.ask("/translate", {"q": text, "source": "en", "target": "de", **more})
        assert answer["translatedText"] == expected


def test_the_confidence_of_our_own_api_is_that_of_the_detection(both: Running) -> None:
    _, answer = both.ask("/api/translate", {"text": "one two", "target": "de"})
    (found,) = answer["translations"]
    assert 0 < found["detection_confidence"] <= 1
    assert "confidence" not in found


def test_deepl_lists_the_variants_that_its_client_wants(both: Running) -> None:
    _, targets = both.ask("/v2/languages?type=target")
    assert [one["language"] for one in targets] == ["DE", "EN-GB", "EN-US"]
    named = {"Content-Type": "application/json"}  # which some programs send with every request
    assert both.ask("/v2/languages?type=target", headers=named) == (200, targets)
    assert both.ask("/v2/languages", {"type": "x"}) == (400, {"message": "type: 'x' is neither source nor target"})


# ---- OpenNMT-py


def test_opennmt_answers_by_rank(both: Running) -> None:
    with running(stand_in_server(decode=DECODE)) as server:
        status, ranks = server.ask("/translator/translate", [{"src": "ein Hund"}, {"src": ""}, {"src": " zwei"}])
    assert status == 200
    assert [[one["tgt"] for one in rank] for rank in ranks] == [
        ["EIN HUND", "", " ZWEI"],
        ["EIN HUND (1)", "", " ZWEI (1)"],
    ]
    assert ranks[1][2] == {"src": " zwei", "tgt": " ZWEI (1)", "n_best": 2, "pred_score": -2.0}
    assert both.ask("/translator/health") == (200, {"status": "ok"})


@each(
    "body, says",
    [
        ({"src": "a"}, "the body is no list of objects"),
        ([], "the body is no list of objects"),
        ([{"id": 0}], "[0].src: is missing. Give a text"),
        ([{"src": "a", "id": {}}], "[0].id: {} is no whole number from 0 up"),
        ([{"src": "a", "id": False}], "[0].id: False is no whole number from 0 up"),
        ([{"src": "a", "id": 9}], "id: 9 is no model. Choose one of /translator/models, 0 to 2"),
        ([{"src": "a", "id": 0}, {"src": "b", "id": 1}], "id: several models in one request. Send one for each"),
    ],
)
def test_opennmt_errors_have_its_shape(both: Running, body: Any, says: str) -> None:
    status, answer = both.ask("/translator/translate", body)
    assert (status, answer["status"]) == (400, "error")
    assert answer["error"].startswith(says)


# ---- Our own


def test_texts_are_translated_line_by_line_with_their_white_space(served: Running) -> None:
    status, answer = served.ask("/api/translate", {"text": "  ein Hund\n\nzwei\r\n", "source": "de"})
    assert (status, answer["translations"][0]["text"]) == (200, "  EIN HUND\n\nZWEI\r\n")


def test_own_formats_and_placeholders(both: Running) -> None:
    ask = {"source": "en", "target": "de", "text": "<i>one</i> two {name}"}
    _, answer = both.ask("/api/translate", {**ask, "format": "html", "token_scores": True})
    assert answer["translations"][0]["text"] == "{name} two <i>one</i>"
    assert len(answer["translations"][0]["tokens"]) == 3
    _, answer = both.ask("/api/translate", {**ask, "text": "see https://x.org/a now", "placeholders": True})
    assert answer["translations"][0]["text"] == "now https://x.org/a see"
    status, answer = both.ask("/api/translate", {**ask, "format": "pdf"})
    assert (status, answer["error"].partition(".")[0]) == (400, "format: 'pdf' is none")
    status, answer = both.ask("/api/translate", {**ask, "format": "html", "prefix": "a"})
    assert (status, answer["error"]) == (400, "prefix: not with mark-up or placeholders. Leave one of them out")


def test_placeholders_of_plain_text_survive_where_a_client_cannot_ask_for_it(tmp_path: Path) -> None:
    text, wanted = "a b {name} c", "{name}"
    with running(toy_server(written_model(tmp_path))) as server:
        _, plain = server.ask("/api/translate", {"text": text, "source": "en"})
        assert wanted not in plain["translations"][0]["text"], "the model itself loses it"
        _, libre = server.ask("/translate", {"q": text, "source": "en", "target": "fr"})
        assert libre["translatedText"].count(wanted) == 1
        _, deepl = server.ask("/v2/translate", {"text": [text], "source_lang": "EN", "target_lang": "FR"})
        assert deepl["translations"][0]["text"].count(wanted) == 1


def test_html_is_that_of_tfm_translate(tmp_path: Path) -> None:
    file, page = written_model(tmp_path), "<p>a <b>b c</b> d</p>\n<p>e <i>f {x}</i></p>"
    alone = api.load(file, engine="torch", device="cpu", options=TranslateOptions(alignments=True), n_best=1)
    expected = translate_document(page, "html", alone.translate).text
    alone.close()
    with running(toy_server(file, decode=DecodeConfig())) as server:
        _, answer = server.ask("/translate", {"q": page, "source": "en", "target": "fr", "format": "html"})
    assert answer == {"translatedText": expected}
    assert expected != page


def test_a_real_model_answers(tmp_path: Path) -> None:
    with running(toy_server(written_model(tmp_path))) as server:
        ask = {"text": ["a b", "", "a\0b"], "alignments": True}
        status, answer = server.ask("/api/translate", ask)
        assert (status, answer["model"]["source"], answer["model"]["target"]) == (200, "en", "fr")
        assert [one["text"] == "" for one in answer["translations"]] == [False, True, False]
        _, plain = server.ask("/translate", {"q": "a b", "source": "en-GB", "target": "FR"})
        assert plain == {"translatedText": answer["translations"][0]["text"]}
        html = {"q": "<p>a <b>b</b></p>", "source": "en", "target": "fr", "format": "html"}
        _, marked = server.ask("/translate", html)
        assert marked["translatedText"].count("<b>") == marked["translatedText"].count("</b>") == 1
        ranked = {"q": "a b", "source": "en", "target": "fr", "alternatives": 2}
        assert len(server.ask("/translate", ranked)[1]["alternatives"]) > 0, "though the server is set to greedy search"


# ---- What nobody should send


HOSTILE = {
    "nothing": (b"", "q: is missing"),
    "a list": (b"[1]", "the body is no JSON object"),
    "a number": (b'"q": 5', "q: 5 is no text"),
    "a number among texts": (b'"q": ["a", 5]', "q[1]: 5 is no text"),
    "nested lists": (b'"q": [["a"]]', "q[0]: ['a'] is no text"),
    "no text": (b'"q": null', "q: is missing"),
    "no texts": (b'"q": []', "q: is missing"),
    "half a character": (b'"q": "a\\ud800b"', "q: \\ud800 is half of a character"),
    "a key twice": (b'"q": "a", "q": "b"', "the body is no JSON (the key 'q' occurs twice)"),
    "not a number": (b'"q": "a", "alternatives": NaN', "the body is no JSON (NaN is no number)"),
    "infinity": (b'"q": "a", "alternatives": 1e999', "alternatives: inf is no whole number from 0 up"),
    "less than nothing": (b'"q": "a", "alternatives": -1', "alternatives: -1 is no whole number from 0 up"),
    "too many": (b'"q": "a", "alternatives": 16', "alternatives=16: more than the 15 that this server allows"),
    "true": (b'"q": "a", "alternatives": true', "alternatives: True is no whole number from 0 up"),
    "rather deep lists": (b'"q": ' + b"[" * 900 + b"]" * 900, "q[0]: [[[[[[[...]]]]]]] is no text"),
    "deep objects": (
        b'"q": ' + b'{"q":' * 500 + b"1" + b"}" * 500,
        "q: {'q': {'q': {'q': {'q': {'q': {'q': {...}}}}}}} is no text",
    ),
    "Latin-1": ('{"q": "ü"}'.encode("latin-1"), "the body is not UTF-8, at byte 8. Send UTF-8"),
    "UTF-16": ('{"q": "a"}'.encode("utf-16"), "the body is not UTF-8, at byte 1. Send UTF-8"),
    "four texts": (b'"q": ["a", "b", "c", "d"]', "4 texts, and a request may have 3"),
    "a long text": (b'"q": "%s"' % (b"a" * 51), "a text of 51 characters, and it may have 50"),
    "a large body": (b'"q": "%s"' % (b"a" * 5000), "a body of more than 5,000 bytes"),
    "an object for a number": (b'"q": "a", "alternatives": {}', "alternatives: {} is no whole number from 0 up"),
    "no format": (b'"q": "a", "format": []', "format: [] is neither text nor html"),
    "another format": (b'"q": "a", "format": ["html"]', "format: ['html'] is neither text nor html"),
    "a language that is none": (b'{"q": "a", "target": "en", "source": 7}', "source: 7 is no text"),
    "two languages": (b"q=a&source=de&source=en&target=en", "source: ['de', 'en'] is no text"),
    "a form in Latin-1": (b"q=f%FCr&source=de&target=en", "the form is not UTF-8. Send UTF-8"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_wrong_is_said_once(served: Running, name: str, caplog: pytest.LogCaptureFixture) -> None:
    body, says = HOSTILE[name]
    if body.startswith(b'"q"'):
        body = b'{"source": "de", "target": "en", %s}' % body
    kind = FORM if body.startswith(b"q=") else JSON if body else {}
    status, answer = served.ask("/translate", body, headers=kind)
    assert answer["error"].startswith(says)
    assert status == (413 if "may have" in says or "bytes" in says else 400)
    assert caplog.text == ""


def test_json_that_is_nested_too_deep(both: Running) -> None:
    for path in ("/translate", "/v2/translate", "/translator/translate", "/api/translate"):
        status, answer = both.ask(path, b"[" * 100_000 + b"]" * 100_000)
        assert (status, answer.get("error") or answer["message"]) == (
            400,
            "the body's JSON is nested too deep. Send less",
        )


def test_forms_that_cannot_be_read(served: Running) -> None:
    body, headers = multipart(("q", b"a"), ("source", b"de"), ("target", b"en"))
    for kind in ("multipart/form-data", "multipart/form-data; boundary=other"):
        status, answer = served.ask("/translate", body, headers={"Content-Type": kind})
        assert (status, answer["error"].startswith("the form cannot be read (")) == (400, True)
    status, answer = served.ask("/translate", body[:-40], headers=headers)
    assert (status, answer["error"]) == (400, "target: is missing. Give the code of a language, as de")
    many = b"&".join(b"%d=" % n for n in range(1000))
    assert served.ask("/translate", many, headers=FORM)[0] == 400


@each(
    "path, body, shape",
    [
        ("/translate", {"q": BREAK, "source": "de", "target": "en"}, {"error"}),
        ("/v2/translate", {"text": [BREAK], "target_lang": "EN"}, {"message"}),
        ("/translator/translate", [{"src": BREAK}], {"error", "status"}),
        ("/api/translate", {"text": BREAK}, {"error"}),
    ],
)
def test_a_fault_has_the_shape_of_the_api(path: str, body: Any, shape: set[str], served: Running) -> None:
    status, answer = served.ask(path, body)
    assert (status, set(answer)) == (500, shape)
    assert set(served.ask(path)[1]) == shape, "as has another method"
