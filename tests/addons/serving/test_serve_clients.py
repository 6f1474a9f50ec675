"""Real clients of other servers, unchanged, and the requests of those that cannot be installed here."""

from collections.abc import Iterator
from urllib.error import HTTPError

import pytest

from tests.addons.serving.toy_server import Running, StandIn, running, stand_in_server

deepl = pytest.importorskip("deepl")
libretranslatepy = pytest.importorskip("libretranslatepy")


@pytest.fixture(scope="module")
def served() -> Iterator[Running]:
    """de → en in capitals, and en → de with the words reversed."""
    with running(stand_in_server(StandIn(), StandIn("en", "de", reverses=True))) as server:
        yield server


# ---- libretranslatepy


def test_libretranslatepy_translates_detects_and_lists(served: Running) -> None:
    client = libretranslatepy.LibreTranslateAPI(served.url, api_key="any")
    assert client.translate("Schöner Hund & Katze", "de", "en") == "SCHÖNER HUND & KATZE"
    assert client.translate("Der Hund schläft auf dem Sofa", "auto", "en") == "DER HUND SCHLÄFT AUF DEM SOFA"
    assert client.detect("The dog sleeps on the sofa")[0]["language"] == "en"
    assert client.languages() == [
        {"code": "en", "name": "English", "targets": ["de"]},
        {"code": "de", "name": "German", "targets": ["en"]},
    ]
    with pytest.raises(HTTPError) as raised:
        client.translate("x", "de", "fr")
    assert raised.value.code == 400
    raised.value.close()


# ---- deepl


@pytest.fixture
def translator(served: Running) -> Iterator[deepl.DeepLClient]:
    client = deepl.DeepLClient("key", server_url=served.url, send_platform_info=False)
    yield client
    client.close()


def test_the_deepl_client_translates_a_text_and_a_list(translator: deepl.DeepLClient) -> None:
    result = translator.translate_text("ein Hund", source_lang="DE", target_lang="EN-US")
    assert (result.text, result.detected_source_lang, result.billed_characters) == ("EIN HUND", "DE", 8)
    results = translator.translate_text(["Das ist ein Hund", "a dog is here"], target_lang="DE")
    assert [(one.text, one.detected_source_lang) for one in results][1] == ("here is dog a", "EN")


def test_the_deepl_client_keeps_tags(translator: deepl.DeepLClient) -> None:
    result = translator.translate_text(
        "<p>ein <b>alter</b> Hund</p>", source_lang="de", target_lang="en-gb", tag_handling="html"
    )
    assert result.text == "<p>EIN <b>ALTER</b> HUND</p>"
    result = translator.translate_text('ein <x id="1"/> Hund', target_lang="DE", source_lang="EN", tag_handling="xml")
    assert result.text.count('<x id="1"/>') == 1


def test_the_deepl_client_lists_languages_and_usage(translator: deepl.DeepLClient) -> None:
    assert [(one.code, one.name) for one in translator.get_source_languages()] == [("DE", "German"), ("EN", "English")]
    found = {one.code: one.supports_formality for one in translator.get_target_languages()}
    assert found == {"DE": False, "EN-GB": False, "EN-US": False}
    usage = translator.get_usage()
    assert usage.character.valid
    assert not usage.any_limit_reached
    assert len(translator.get_glossary_languages()) == 2
    assert translator.list_glossaries() == []


def test_the_deepl_client_gets_its_own_errors(translator: deepl.DeepLClient) -> None:
    with pytest.raises(deepl.DeepLException, match=r"Bad request, message: formality: 'more' is not taken"):
        translator.translate_text("Hund", target_lang="EN-US", formality="more")
    with pytest.raises(
        deepl.DeepLException, match=r"message: target_lang: 'FR' is not supported\. Choose one of EN, DE"
    ):
        translator.translate_text("Hund", target_lang="FR")
    with pytest.raises(deepl.DeepLException, match="Not found, message: Glossary not found"):
        translator.translate_text("Hund", source_lang="DE", target_lang="EN-US", glossary="abc")


# ---- API keys, where each client writes them


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    keys = tmp_path_factory.mktemp("keys") / "keys"
    keys.write_text("right\n")
    keys.chmod(0o600)
    with running(stand_in_server(api_keys=str(keys))) as server:
        yield server


def test_keys_of_libretranslatepy(guarded: Running) -> None:
    assert libretranslatepy.LibreTranslateAPI(guarded.url, api_key="right").translate("Hund", "de", "en") == "HUND"
    for key in ("wrong", None):
        with pytest.raises(HTTPError) as raised:
            libretranslatepy.LibreTranslateAPI(guarded.url, api_key=key).translate("Hund", "de", "en")
        assert raised.value.code == 403
        raised.value.close()
    assert guarded.ask("/frontend/settings")[1]["keyRequired"] is True


def test_keys_of_the_deepl_client(guarded: Running) -> None:
    client = deepl.DeepLClient("right", server_url=guarded.url, send_platform_info=False)
    assert client.translate_text("Hund", source_lang="DE", target_lang="EN-GB").text == "HUND"
    client.close()
    client = deepl.DeepLClient("wrong", server_url=guarded.url, send_platform_info=False)
    for ask in (client.get_usage, client.get_source_languages, lambda: client.translate_text("a", target_lang="EN-GB")):
        with pytest.raises(deepl.AuthorizationException, match="this API key is not valid"):
            ask()
    client.close()
    status, answer = guarded.ask("/v2/translate", {"text": ["Hund"], "target_lang": "EN", "auth_key": "right"})
    assert (status, answer["translations"][0]["text"]) == (200, "HUND")


def test_keys_of_opennmt_and_our_own_are_in_headers(guarded: Running) -> None:
    for path, body in (("/translator/translate", [{"src": "a"}]), ("/api/translate", {"text": "a"})):
        assert guarded.ask(path, body)[0] == 401
        assert guarded.ask(path, body, headers={"Authorization": "Bearer right"})[0] == 200
        assert guarded.ask(path, body, headers={"X-API-Key": "right"})[0] == 200
    assert guarded.ask("/translator/models")[0] == 401


# ---- Weblate, weblate/machinery/libretranslate.py and deepl.py


def test_weblate_as_libretranslate(served: Running) -> None:
    _, languages = served.ask("/languages")
    assert {"de", "en"} <= {one["code"] for one in languages}
    body = {"api_key": "", "q": ["ein Hund", "zwei"], "source": "de", "target": "en"}
    assert served.ask("/translate", body) == (200, {"translatedText": ["EIN HUND", "ZWEI"]})


def test_weblate_as_deepl(served: Running) -> None:
    headers = {"Authorization": "DeepL-Auth-Key k", "Accept": "application/json; charset=utf-8"}
    _, sources = served.ask("/v2/languages?type=source", headers=headers)
    _, targets = served.ask("/v2/languages?type=target", headers=headers)
    assert {one["language"] for one in sources} == {"DE", "EN"}
    assert {one["language"] for one in targets} == {"DE", "EN-GB", "EN-US"}
    pairs = [{"source_lang": "de", "target_lang": "en"}, {"source_lang": "en", "target_lang": "de"}]
    assert served.ask("/v2/glossary-language-pairs", headers=headers) == (200, {"supported_languages": pairs})
    body = {
        "text": ['ein <x id="4"></x> Hund &amp; mehr'],
        "source_lang": "DE",
        "target_lang": "EN",
        "formality": "default",
        "tag_handling": "xml",
        "ignore_tags": ["x"],
        "context": "a sign",
    }
    status, answer = served.ask("/v2/translate", body, headers=headers)
    assert status == 200
    assert answer["translations"] == [{"detected_source_language": "DE", "text": 'EIN <x id="4"></x> HUND &amp; MEHR'}]


# ---- OmegaT's plug-in for LibreTranslate, and clients of OpenNMT-py's server


def test_omegat_as_libretranslate(served: Running) -> None:
    body = {"q": "ein Hund", "source": "de", "target": "en", "format": "text"}
    assert served.ask("/translate", body) == (200, {"translatedText": "EIN HUND"})


def test_clients_of_opennmt(served: Running) -> None:
    _, models = served.ask("/translator/models")
    number = next(one["model_id"] for one in models if (one["source"], one["target"]) == ("en", "de"))
    status, answer = served.ask("/translator/translate", [{"src": "a dog", "id": number}, {"src": " ", "id": number}])
    assert status == 200
    assert [[one["tgt"] for one in rank] for rank in answer] == [["dog a", " "]]
    assert answer[0][0] == {"src": "a dog", "tgt": "dog a", "n_best": 1, "pred_score": -1.0}
