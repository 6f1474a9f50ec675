"""Glossaries: by DeepL's own client, on the disk, across API keys, and what nobody should send."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.addons.serving.toy_server import DECODE, Running, StandIn, running, stand_in_server, toy_server
from tests.support.each import each
from tests.support.forked import run
from tests.toy.run import written_model
from transformer_cli.addons.serving.errors import RequestError
from transformer_cli.addons.serving.glossaries import Dictionary, GlossaryStore, read_entries
from transformer_cli.addons.serving.keys import LimitsConfig
from transformer_cli.errors import ConfigError

deepl = pytest.importorskip("deepl")
Entries = deepl.api_data.MultilingualGlossaryDictionaryEntries

UNKNOWN = "96ab91fd-e715-41a1-adeb-5d701f84a483"
HUND = Dictionary({"Hund": "dog"})
FIRST, SECOND = "first-key", "second-key"


@pytest.fixture(scope="module")
def served() -> Iterator[Running]:
    """de → en and back in capitals, fr → de through en."""
    models = StandIn(), StandIn("en", "de"), StandIn("fr", "en")
    limits = {"glossaries": 50, "glossary_bytes": 1000, "term_characters": 20}
    with running(stand_in_server(*models, limits=limits, pivot="en")) as server:
        yield server


@pytest.fixture
def client(served: Running) -> Iterator[deepl.DeepLClient]:
    """DeepL's client, without glossaries of an earlier test."""
    one = deepl.DeepLClient("any key", server_url=served.url, send_platform_info=False)
    for old in one.list_multilingual_glossaries():
        one.delete_multilingual_glossary(old)
    yield one
    one.close()


def created(server: Running, headers: dict[str, str] | None = None, **changes: Any) -> tuple[int, Any]:
    ask = {"name": "pets", "source_lang": "de", "target_lang": "en", "entries": "Hund\tdog", "entries_format": "tsv"}
    return server.ask("/v2/glossaries", {**ask, **changes}, headers=headers)


def translated(client: deepl.DeepLClient, text: str, glossary: Any, source: str = "DE", target: str = "EN-US") -> str:
    found = client.translate_text(text, source_lang=source, target_lang=target, glossary=glossary)
    return str(found.text)


# ---- What DeepL's client does


def test_a_glossary_is_made_listed_read_used_and_deleted(client: deepl.DeepLClient) -> None:
    made = client.create_glossary("pets", "DE", "EN", {"Hund": "hound", "rote Katze": "red cat"})
    assert (made.name, made.source_lang, made.target_lang, made.entry_count) == ("pets", "DE", "EN", 2)
    assert [one.glossary_id for one in client.list_glossaries()] == [made.glossary_id]
    assert client.get_glossary(made.glossary_id).creation_time == made.creation_time
    assert client.get_glossary_entries(made) == {"Hund": "hound", "rote Katze": "red cat"}
    assert translated(client, "ein Hund und eine rote Katze", made) == "EIN hound UND EINE red cat"
    assert translated(client, "ein Hund und eine Katze", made.glossary_id) == "EIN hound UND EINE KATZE"
    client.delete_glossary(made)
    with pytest.raises(deepl.DeepLException, match="Not found, message: Glossary not found"):
        translated(client, "ein Hund", made)


def test_a_csv_names_languages_and_quotes_what_has_a_comma(client: deepl.DeepLClient) -> None:
    made = client.create_glossary_from_csv("pets", "DE", "EN", 'Hund,"dog, big",de,en\n"ein ""x""",y\nchat,cat,fr,en\n')
    assert client.get_glossary_entries(made) == {"Hund": "dog, big", 'ein "x"': "y"}


def test_a_multilingual_glossary_is_changed_by_dictionaries(client: deepl.DeepLClient) -> None:
    both = [Entries("DE", "EN", {"Hund": "hound"}), Entries("EN", "DE", {"hound": "Hund"})]
    made = client.create_multilingual_glossary("pets", both)
    assert [(one.source_lang, one.target_lang, one.entry_count) for one in made.dictionaries] == [
        ("DE", "EN", 1),
        ("EN", "DE", 1),
    ]
    assert translated(client, "ein Hund", made) == "EIN hound"
    assert translated(client, "a hound", made.glossary_id, "EN", "DE") == "A Hund"
    more = Entries("DE", "EN", {"Hund": "dog", "Katze": "cat"})
    changed = client.update_multilingual_glossary_dictionary(made, more)
    assert sorted(one.entry_count for one in changed.dictionaries) == [1, 2]
    assert translated(client, "Hund und Katze", made) == "dog UND cat"
    assert client.update_multilingual_glossary_name(made, "animals").name == "animals"
    assert (
        client.replace_multilingual_glossary_dictionary(made, Entries("DE", "EN", {"Maus": "mouse"})).entry_count == 1
    )
    assert translated(client, "Hund und Maus", made) == "HUND UND mouse"
    (listed,) = client.get_multilingual_glossary_entries(made, "DE", "EN-GB").dictionaries
    assert (listed.source_lang, listed.target_lang, listed.entries) == ("de", "en", "Maus\tmouse")
    client.delete_multilingual_glossary_dictionary(made, source_lang="EN", target_lang="DE")
    assert len(client.get_multilingual_glossary(made.glossary_id).dictionaries) == 1
    with pytest.raises(deepl.GlossaryNotFoundException, match="Dictionary not found"):
        client.get_multilingual_glossary_entries(made, "EN", "DE")


def test_of_several_glossaries_the_first_counts_first(client: deepl.DeepLClient, served: Running) -> None:
    made = [client.create_glossary(str(n), "DE", "EN", {"Hund": f"dog{n}", f"x{n}": f"y{n}"}) for n in (1, 2)]
    ids = [one.glossary_id for one in made]
    ask = {"text": ["Hund x1 x2"], "source_lang": "DE", "target_lang": "EN"}
    for written in (ids, ",".join(ids)):
        status, answer = served.ask("/v2/translate", {**ask, "glossary_ids": written})
        assert (status, answer["translations"][0]["text"]) == (200, "dog1 y1 y2")
    assert served.ask("/v2/translate", {**ask, "glossary_ids": ids * 3}) == (
        400,
        {"message": "glossary_ids: 6, and a request may have 5"},
    )
    assert served.ask("/v2/translate", {**ask, "glossary_ids": ids, "glossary_id": ids[0]}) == (
        400,
        {"message": "glossary_id: not together with glossary_ids. Leave one of them out"},
    )


def test_the_pairs_of_glossaries_are_those_that_need_no_pivot(client: deepl.DeepLClient) -> None:
    pairs = {(one.source_lang, one.target_lang) for one in client.get_glossary_languages()}
    assert pairs == {("de", "en"), ("en", "de"), ("fr", "en")}


def test_what_version_2_cannot_say_of_a_glossary_it_does_not_list(client: deepl.DeepLClient) -> None:
    both = [Entries("DE", "EN", {"a": "b"}), Entries("EN", "DE", {"b": "a"})]
    made = client.create_multilingual_glossary("pets", both)
    assert client.list_glossaries() == []
    with pytest.raises(deepl.DeepLException, match="this glossary has 2 dictionaries, and one in version 2"):
        client.get_glossary(made.glossary_id)


def test_markup_and_a_server_that_is_set_to_greedy_search_have_terms_too(tmp_path: Path) -> None:
    """The toy model has the letters a to h as words."""
    with running(toy_server(written_model(tmp_path), decode=DECODE)) as server:
        made = created(server, source_lang="en", target_lang="fr", entries="a b\tb a\nc\tc")[1]
        ask = {"source_lang": "en", "target_lang": "fr", "glossary_id": made["glossary_id"]}
        for more in ({}, {"tag_handling": "html"}):
            status, answer = server.ask("/v2/translate", {"text": ["d a b"], **ask, **more})
            assert status == 200
            assert "b a" in answer["translations"][0]["text"]


# ---- On the disk


def test_glossaries_survive_the_server_and_a_deleted_one_is_gone(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "glossaries"
    with running(stand_in_server(glossaries=str(folder))) as server:
        kept, gone = created(server)[1], created(server)[1]
        assert server.ask(f"/v2/glossaries/{gone['glossary_id']}", method="DELETE")[0] == 204
        patch = {
            "dictionaries": [{"source_lang": "de", "target_lang": "en", "entries": "a\tb", "entries_format": "tsv"}]
        }
        assert server.ask(f"/v3/glossaries/{kept['glossary_id']}", patch, method="PATCH")[0] == 200
    (folder / ".tfm-0123456789ab.12345678.tmp").write_bytes(b"left by a process that was killed")
    with running(stand_in_server(glossaries=str(folder))) as server:
        assert server.ask("/v2/glossaries") == (200, {"glossaries": [{**kept, "entry_count": 2}]})
        entries = server.ask(f"/v2/glossaries/{kept['glossary_id']}/entries")
        assert entries == (200, b"Hund\tdog\na\tb")
    assert sorted(file.name for file in folder.iterdir()) == [f"{kept['glossary_id']}.json", "lock"]


def test_without_a_folder_they_end_with_the_server() -> None:
    with running(stand_in_server()) as server:
        assert created(server)[0] == 201
    with running(stand_in_server()) as server:
        assert server.ask("/v3/glossaries") == (200, {"glossaries": []})


@each(
    "content",
    [
        b"",
        b"\xff",
        b"[]",
        b"{}",
        b'{"format": "tfm glossary 1", "id": "%s", "dictionaries": [7]}' % UNKNOWN.encode(),
        b'{"format": "tfm glossary 9", "id": "%s", "dictionaries": []}' % UNKNOWN.encode(),
    ],
)
def test_a_file_that_is_no_glossary_is_named_at_the_start(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / f"{UNKNOWN}.json"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=r"is no glossary of `tfm serve`. Restore it from a backup, or remove it"):
        GlossaryStore(LimitsConfig(), tmp_path)
    file.unlink()
    GlossaryStore(LimitsConfig(), tmp_path).close()


def test_a_folder_that_is_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"file: cannot be used \(.+\). Give a folder that can be written"):
        GlossaryStore(LimitsConfig(), tmp_path / "file")


def test_two_servers_do_not_share_a_folder(tmp_path: Path) -> None:
    first = GlossaryStore(LimitsConfig(), tmp_path)
    code = (
        "from pathlib import Path; from transformer_cli.addons.serving.keys import LimitsConfig;"
        "from transformer_cli.addons.serving.glossaries import GlossaryStore; GlossaryStore(LimitsConfig(), Path('.'))"
    )
    done = run([], tmp_path, program=code)
    first.close()
    assert "another `tfm serve` keeps its glossaries there. Give each server its own folder" in done.err.decode()


def test_a_disk_that_is_full_is_said_and_the_old_version_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = GlossaryStore(LimitsConfig(), tmp_path)
    made = store.create("", "pets", {("de", "en"): HUND})

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("transformer_cli.addons.serving.glossaries.write_whole", full)
    for work in (
        lambda: store.create("", "more", {("de", "en"): HUND}),
        lambda: store.merge("", made.id, {}, name="other"),
    ):
        with pytest.raises(RequestError, match="the glossary cannot be kept; the server's log says why"):
            work()
    assert store.of("") == [made]
    assert "cannot be written (No space left on device). Make room or repair it" in caplog.text


# ---- Owners and limits


def test_a_glossary_of_one_key_is_unknown_to_another(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text(f"{FIRST}\n{SECOND}\n", encoding="utf-8")
    keys.chmod(0o600)
    first, second = ({"Authorization": f"DeepL-Auth-Key {key}"} for key in (FIRST, SECOND))
    with running(stand_in_server(api_keys=str(keys), glossaries=str(tmp_path / "kept"))) as server:
        made = created(server, first)[1]
        path = f"/v3/glossaries/{made['glossary_id']}"
        assert server.ask("/v2/glossaries", headers=second) == (200, {"glossaries": []})
        ask = {"text": ["Hund"], "source_lang": "DE", "target_lang": "EN", "glossary_id": made["glossary_id"]}
        for answer in (
            server.ask(path, headers=second),
            server.ask(path, {"name": "mine"}, method="PATCH", headers=second),
            server.ask(path, method="DELETE", headers=second),
            server.ask(f"{path}/dictionaries?source_lang=de&target_lang=en", method="DELETE", headers=second),
            server.ask("/v2/translate", ask, headers=second),
        ):
            assert answer == (404, {"message": "Glossary not found"})
        assert server.ask("/v2/glossaries")[0] == 403
        assert server.ask("/v2/translate", ask, headers=first)[1]["translations"][0]["text"] == "dog"
    written = (tmp_path / "kept" / f"{made['glossary_id']}.json").read_text(encoding="utf-8")
    assert FIRST not in written


def test_number_and_size_are_limited_for_each_key() -> None:
    store = GlossaryStore(LimitsConfig(glossaries=2, glossary_bytes=100))
    made = store.create("a", "1", {("de", "en"): HUND})
    store.create("a", "2", {})
    with pytest.raises(RequestError, match="2 glossaries, which is all that a key may have") as found:
        store.create("a", "3", {})
    assert found.value.status == 456
    large = Dictionary({f"{n}": "x" * 9 for n in range(11)})
    with pytest.raises(RequestError, match="glossaries of more than 100 bytes, which is all") as found:
        store.merge("a", made.id, {("de", "en"): large})
    assert found.value.status == 456
    assert store.get("a", made.id) == made
    store.create("b", "1", {("de", "en"): Dictionary({"x": "y" * 99})})


# ---- What nobody should send


@each(
    "change, says",
    [
        ({"name": ""}, "name: is missing. Give it"),
        ({"name": " \u200b "}, "name: is empty. Give one"),
        ({"name": "a\nb"}, "name: has a line end or another control character. Leave it out"),
        ({"name": "ü" * 513}, "name: has more than 1,024 bytes. Give a shorter one"),
        ({"name": 7}, "name: 7 is no text"),
        ({"source_lang": None}, "source_lang: is missing. Give it"),
        ({"source_lang": "xx"}, "Unsupported glossary source and target language pair"),
        ({"source_lang": "fr", "target_lang": "de"}, "Unsupported glossary source and target language pair"),
        ({"entries_format": "xlsx"}, "entries_format: 'xlsx' is not supported. Choose tsv or csv"),
        ({"entries": None}, "entries: is missing. Give it"),
        ({"entries": ["a\tb"]}, "entries: ['a\\tb'] is no text"),
        ({"entries": "a\ud800\tb"}, "entries: \\ud800 is half of a character. Send the whole, or leave it out"),
    ],
)
def test_a_glossary_that_cannot_be(served: Running, change: dict[str, Any], says: str) -> None:
    assert created(served, **change) == (400, {"message": says})


@each(
    "form, entries, says",
    [
        ("tsv", " \n\n", "there is no entry. Give one a line"),
        ("tsv", "a\tb\nc", "entry 2 has 0 tabs, and needs one between its phrases"),
        ("tsv", "a\tb\tc", "entry 1 has 2 tabs, and needs one between its phrases"),
        ("tsv", "\tb", "entry 1 has no source phrase"),
        ("tsv", "a\t \u00ad", "entry 1 has no target phrase"),
        ("tsv", "a\tb\n\na\tc", "entry 3 duplicates the source phrase of entry 1, 'a'"),
        ("tsv", "\u00fc\tb\nu\u0308\tc", "entry 2 duplicates the source phrase of entry 1, 'u\u0308'"),
        ("tsv", "a\x0bc\tb", "entry 1 has a line end or another control character in its source phrase"),
        ("tsv", "a\tb\u2028c", "entry 1 has a line end or another control character in its target phrase"),
        ("tsv", f"a\t{'b' * 21}", "entry 1 has a target phrase of 21 characters, and it may have 20"),
        ("csv", "a\n", "entry 1 has 1 fields, and needs two phrases, which their languages may follow"),
        ("csv", 'a,"b\nc"', "entry 1 has a line end or another control character in its target phrase"),
        ("csv", "a,b,fr,en", "there is no entry. Give one a line"),
        ("csv", 'a,b\nc,"d', "entry 2 cannot be read as CSV (unexpected end of data)"),
    ],
)
def test_entries_that_cannot_be_are_named_by_number(served: Running, form: str, entries: str, says: str) -> None:
    answer = created(served, entries=entries, entries_format=form)
    assert answer == (400, {"message": "Invalid glossary entries provided", "detail": says})


@each(
    "body, says",
    [
        ({"name": "x"}, "dictionaries: is empty. Give one, or several"),
        ({"name": "x", "dictionaries": {}}, "dictionaries: is no list of objects. Send JSON"),
        ({"name": "x", "dictionaries": [7]}, "dictionaries: is no list of objects. Send JSON"),
        ({"dictionaries": []}, "name: is missing. Give it"),
        (
            {
                "name": "x",
                "dictionaries": [
                    {"source_lang": "de", "target_lang": target, "entries": "a\tb", "entries_format": "tsv"}
                    for target in ("EN", "en-GB")
                ],
            },
            "dictionaries: de-en occurs twice. Send one for each pair of languages",
        ),
    ],
)
def test_dictionaries_that_cannot_be(served: Running, body: dict[str, Any], says: str) -> None:
    assert served.ask("/v3/glossaries", body) == (400, {"message": says})


def test_a_glossary_of_other_languages_is_refused_as_deepl_says_it(served: Running) -> None:
    made = created(served)[1]["glossary_id"]
    ask = {"text": ["x"], "target_lang": "DE", "glossary_id": made}
    assert served.ask("/v2/translate", {**ask, "source_lang": "EN"}) == (
        400,
        {"message": "No dictionary found for language pair en-de in glossary"},
    )
    assert served.ask("/v2/translate", ask) == (
        400,
        {"message": "Use of a glossary requires the source_lang parameter to be specified"},
    )
    assert served.ask("/v2/translate", {**ask, "glossary_id": 7}) == (400, {"message": "glossary_id: 7 is no text"})
    for path in ("/v2/glossaries/", "/v3/glossaries/"):
        assert served.ask(f"{path}{UNKNOWN}") == (404, {"message": "Glossary not found"})
        assert served.ask(f"{path}..%2f..%2fx")[0] == 404
    assert served.ask(f"/v2/glossaries/{made}/entries", headers={"Accept": "application/json"})[0] == 415


def test_ten_thousand_entries_are_read_and_only_those_of_a_text_are_looked_up() -> None:
    entries = read_entries("\n".join(f"Wort {n}\tword {n}" for n in range(10_000)), "tsv", ("de", "en"), longest=200)
    found = entries.terminology.within(["das Wort 77 steht hier", "WORT 7"]).terms
    assert [term.source for term in found] == ["Wort 77"]
    assert json.dumps(dict(entries.entries))
