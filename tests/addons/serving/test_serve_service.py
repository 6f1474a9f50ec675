"""The service behind all APIs: routes, texts and their white space, what a request may ask for, and reloading."""

import os
import shutil
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.addons.interop.test_export import model_file
from tests.support.each import each
from tests.toy.translator import sentences
from transformer_cli import api
from transformer_cli.addons.interop import conversions
from transformer_cli.addons.serving import models as serving_models
from transformer_cli.addons.serving.apis.own import response_json
from transformer_cli.addons.serving.errors import RequestError
from transformer_cli.addons.serving.glossaries import Dictionary
from transformer_cli.addons.serving.keys import LimitsConfig, ServeConfig
from transformer_cli.addons.serving.models import ModelTable, ServedModel
from transformer_cli.addons.serving.service import (
    RequestCall,
    RequestOptions,
    Service,
    TranslationResponse,
    _composed,
    _lines,
)
from transformer_cli.config.data import TokenizerConfig
from transformer_cli.config.decode import DecodeConfig, Quantize
from transformer_cli.config.train import Device
from transformer_cli.data.hashes import file_sha256
from transformer_cli.data.tokenizer import train_tokenizer
from transformer_cli.decoding.batch_queue import GoneError
from transformer_cli.decoding.shortlist import SHORTLIST_FILE, Shortlist
from transformer_cli.errors import CheckpointError, ConfigError
from transformer_cli.models.file import read_model, write_model

PLAIN = RequestOptions()
TEXT = "the cat sat .\r\n\r\n   a woman drank milk .  \n\tin her chair .\n\n"


def write(folder: Path, source: str, target: str, seed: int = 1) -> str:
    path = folder / f"{source}-{target}.safetensors"
    write_model(path, replace(model_file(seed=seed), source_lang=source, target_lang=target))
    return str(path)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("models")
    pairs = [("de", "en"), ("en", "fr"), ("fr", "en")]
    return {f"{s}-{t}": write(folder, s, t, seed=n) for n, (s, t) in enumerate(pairs, start=1)}


def serving(*checkpoints: str, **changes: Any) -> Service:
    settings = {"engine": "torch", "device": Device.cpu, "decode": DecodeConfig(beam_size=2), **changes}
    config = ServeConfig(checkpoint=list(checkpoints), **settings)
    return Service(config, ModelTable(config))


@pytest.fixture(scope="module")
def service(models: dict[str, str]) -> Service:
    return serving(*models.values(), pivot="en")


def translated(
    service: Service, *texts: str, source: str = "de", target: str = "en", options: RequestOptions = PLAIN
) -> list[str]:
    return [one.text for one in service.translate(texts, source, target, options, service.call()).results]


def refusal(action: Callable[[], object]) -> RequestError:
    with pytest.raises(RequestError) as raised:
        action()
    return raised.value


# ---- Texts


@each("text", ["", "\n", "a", " a\tb \n", "a\r\nb\rc\n\nd", "\n\n a", "a\u2028b\u0085c", "\u00a0a \u3000\n", TEXT])
def test_the_lines_of_a_text_together_are_the_text(text: str) -> None:
    assert "".join(line.before + line.text + line.after for line in _lines(text)) == text
    assert all(line.text == line.text.strip() and "\n" not in line.text for line in _lines(text))


def test_a_text_keeps_its_line_ends_indentation_and_blank_lines(service: Service, models: dict[str, str]) -> None:
    lines = ["the cat sat .", "a woman drank milk .", "in her chair ."]
    one, two, three = (r.text for r in api.load(models["de-en"], device="cpu", beam_size=2).translate(lines))
    assert translated(service, TEXT) == [f"{one}\r\n\r\n   {two}  \n\t{three}\n\n"]


def test_the_line_ends_of_office_programs_are_kept(service: Service) -> None:
    lines = ["the cat sat .", "a woman drank milk ."]
    one, two = translated(service, *lines)
    for end in ("\v", "\f", "\x85", "\u2028", "\u2029"):
        assert translated(service, end.join(lines)) == [one + end + two]


def test_a_prefix_is_that_of_a_text_and_not_of_each_line(service: Service) -> None:
    lines = ["the cat sat .", "a woman drank milk ."]
    begun = RequestOptions(prefix="in her")
    (_, second), (first,) = translated(service, *lines), translated(service, lines[0], options=begun)
    assert first.startswith("in her")
    assert translated(service, "\n".join(["", *lines]), lines[0], options=begun) == [f"\n{first}\n{second}", first]


def test_texts_without_words_are_answered_as_they_are(service: Service) -> None:
    assert translated(service, "", "\n \n", " ") == ["", "\n \n", " "]
    assert translated(service) == []


def test_answers_are_those_of_tfm_translate_whatever_else_is_asked_at_once(
    service: Service, models: dict[str, str]
) -> None:
    lines = sentences(60, seed=3)
    expected = [r.text for r in api.load(models["de-en"], device="cpu", beam_size=2).translate(lines)]
    found: dict[int, list[str]] = {}

    def ask(n: int) -> None:
        found[n] = translated(service, *lines[n::6])

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {n: expected[n::6] for n in range(6)}


def test_the_alignment_of_a_text_counts_the_words_of_all_its_lines(service: Service) -> None:
    options = replace(PLAIN, alignments=True)
    (whole,) = service.translate(["the cat .\n\na woman sat ."], "de", "en", options, service.call()).results
    first, second = service.translate(["the cat .", "a woman sat ."], "de", "en", options, service.call()).results
    assert first.alignment is not None
    assert second.alignment is not None
    n_target = len(first.text.split())
    assert whole.alignment == [*first.alignment, *((3 + i, n_target + j) for i, j in second.alignment)]


def test_alternatives_flags_and_scores_are_of_the_whole_text(service: Service) -> None:
    options = replace(PLAIN, decode={"n_best": 2, "max_length": 3}, token_scores=True)
    (whole,) = service.translate(["the cat .\n a"], "de", "en", options, service.call()).results
    one, two = service.translate(["the cat .", "a"], "de", "en", options, service.call()).results
    assert [a.text for a in whole.alternatives] == [f"{one.alternatives[0].text}\n {two.alternatives[0].text}"]
    assert whole.score == pytest.approx(one.score + two.score)
    assert set(whole.flags) == {*one.flags, *two.flags}
    assert "hit_length_limit" in whole.flags
    assert whole.tokens == [*(one.tokens or []), *(two.tokens or [])]


# ---- Routes


def test_models_are_found_by_languages_and_through_the_pivot(service: Service) -> None:
    table = service.table
    assert {(s, t): pivot for s, t, pivot in table.pairs()} == {
        **dict.fromkeys([("de", "en"), ("en", "fr"), ("fr", "en")]),
        ("de", "fr"): "en",
    }
    assert [(s.model.source_lang, s.target) for s in table.route("de", "fr")] == [("de", "en"), ("en", "fr")]
    assert [step.model.source_lang for step in table.route("en", None)] == ["en"]
    assert [step.model.source_lang for step in table.route(None, "fr")] == ["en"], "a model of its own before two"
    assert refusal(lambda: table.route("en", "de")).message.startswith("en → de: no model. Choose one of de → en,")
    assert refusal(lambda: table.route(None, "en")).message.startswith("any language → en: several models")


def test_a_pivot_translates_the_translation(service: Service, models: dict[str, str]) -> None:
    line = "the cat drank milk ."
    between = api.load(models["de-en"], device="cpu", beam_size=2).translate([line])[0].text
    last = api.load(models["en-fr"], device="cpu", beam_size=2).translate([between])[0].text
    assert translated(service, line, target="fr") == [last]


def test_links_through_a_pivot_are_composed() -> None:
    assert _composed([(0, 0), (2, 0), (1, 1)], [(0, 0), (1, 1), (0, 2)]) == [(0, 0), (2, 0), (1, 1), (0, 2), (2, 2)]
    assert _composed(None, [(0, 0)]) == [(0, 0)]


def test_two_models_of_one_pair_and_a_pivot_that_joins_nothing_are_refused(models: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"translates de → en, as .*de-en\.safetensors does\. Leave one"):
        serving(models["de-en"], models["de-en"])
    with pytest.raises(ConfigError, match=r"--pivot de: joins no two of these models \(de → en\)"):
        serving(models["de-en"], pivot="de")


# ---- What a request may ask for


@pytest.mark.slow
def test_a_model_is_served_with_its_own_length_penalty(tmp_path: Path) -> None:
    lines, scores = ["the cat sat .", "a woman drank milk ."], {}
    for own in (0.0, 10.0):
        path = str(tmp_path / f"{own}.safetensors")
        write_model(Path(path), replace(model_file(), source_lang="de", length_penalty=own))
        served, given = serving(path), serving(path, decode=DecodeConfig(beam_size=2, length_penalty=0.3))
        for what, alpha, service, options in (
            ("own", None, served, PLAIN),
            ("own beside another key", None, served, RequestOptions(decode={"max_extra_length": 50})),
            ("of the request", 1.0, served, RequestOptions(decode={"length_penalty": 1.0})),
            ("of the config", 0.3, given, PLAIN),
            ("of the request, before the config", 1.0, given, RequestOptions(decode={"length_penalty": 1.0})),
        ):
            expected = api.load(path, device="cpu", beam_size=2, length_penalty=alpha).translate(lines)
            answered = service.translate(lines, "de", "en", options, service.call()).results
            found = [(one.text, one.score) for one in answered]
            assert found == [(one.text, pytest.approx(one.candidates[0].score)) for one in expected], (own, what)
            scores[own, what] = [score for _, score in found]
    assert scores[0.0, "own"] != pytest.approx(scores[10.0, "own"])
    assert scores[0.0, "of the config"] == pytest.approx(scores[10.0, "of the config"])


@each(
    "options, says",
    [
        ({"decode": {"beam_sise": 2}}, "'beam_sise': no key that a request may have. Choose from "),
        ({"decode": {"precision": "bf16"}}, "'precision': no key that a request may have"),
        ({"decode": {"beam_size": 17}}, "beam_size=17: more than the 16 that this server allows"),
        ({"decode": {"n_best": 999, "beam_size": 999}}, "beam_size=999: more than the 16"),
        ({"decode": {"beam_size": "many"}}, "beam_size"),
        ({"decode": {"min_length": 501}}, "min_length=501: more than the 500 tokens that this server allows"),
        ({"decode": {"max_extra_length": 9999}}, "max_extra_length=9999: more than the 500"),
        ({"decode": {"max_source_length": 9999}}, "max_source_length=9999: more than the 500"),
        ({"decode": {"search": "fastest"}}, "fastest"),
        ({"decode": {"length_penalty": -1}}, "length_penalty"),
        ({"terms": (("cat", ""),)}, "terms: number 1 has no source or no target phrase"),
        ({"prefix": "\u6f22"}, "prefix: '漢' cannot be written with the model's pieces"),
        ({"tags": ("<2xx>",)}, "--tag <2xx>: the model has no tags"),
    ],
)
def test_what_cannot_be_done_is_refused_in_one_line(service: Service, options: dict[str, Any], says: str) -> None:
    error = refusal(lambda: translated(service, "the cat .", options=replace(PLAIN, **options)))
    assert (error.status, says in error.message, "\n" in error.message) == (400, True, False), error.message


def test_n_best_needs_no_beam_beside_it_and_greedy_none_either(service: Service, models: dict[str, str]) -> None:
    assert service.decode_config({"n_best": 5}).beam_size == 5
    assert service.decode_config({"n_best": 2, "beam_size": 3}).beam_size == 3
    assert service.decode_config({"search": "greedy"}).beam_size == 1
    assert service.decode_config({"search": "sample"}).beam_size == 1
    assert service.decode_config({}) is service.config.decode
    several = serving(models["de-en"], decode=DecodeConfig(beam_size=5, n_best=5))
    assert several.decode_config({"search": "greedy"}).n_best == 1


def test_terms_and_prefixes_are_in_the_translation(service: Service) -> None:
    options = replace(PLAIN, terms=(("cat", "pretty"),))
    assert "pretty" in translated(service, "the cat sat .", options=options)[0]
    options = replace(PLAIN, prefix="a woman")
    assert translated(service, "the cat sat .", options=options)[0].startswith("a woman")


@each("kept", ["cat", "the cat", "cat sat ."])
def test_a_term_with_the_same_text_on_both_sides_is_kept_as_it_is(service: Service, kept: str) -> None:
    by_glossary = replace(PLAIN, glossaries=(Dictionary({kept: kept, "dog": "dog"}),))
    for options in (replace(PLAIN, terms=((kept, kept),)), by_glossary):
        assert kept in translated(service, "the cat sat .", options=options)[0]
    assert kept not in translated(service, "the cat sat .")[0]


def test_an_entry_that_the_vocabulary_cannot_write_is_named_where_its_phrase_occurs(service: Service) -> None:
    options = replace(PLAIN, glossaries=(Dictionary({"dog": "\u6f22", "cat": "\u6f22"}),))
    assert translated(service, "the man .", options=options) == translated(service, "the man .")
    error = refusal(lambda: translated(service, "the cat .", options=options))
    assert error.message.startswith("glossary:2: '漢' cannot be written with the pieces of this model")


# ---- Limits


def test_too_much_is_refused_with_413(models: dict[str, str]) -> None:
    service = serving(models["de-en"], limits=LimitsConfig(characters=10, texts=2))
    assert refusal(lambda: translated(service, "the cat sat .")).status == 413
    assert refusal(lambda: translated(service, "a", "a", "a")).message.startswith("3 texts, and a request may have 2")
    assert len(translated(service, "the cat .", "a")) == 2


def limited(models: dict[str, str], **limits: Any) -> Service:
    return serving(models["de-en"], limits=LimitsConfig(**limits))


def refused_text(service: Service, text: str, options: RequestOptions = PLAIN) -> RequestError:
    return refusal(lambda: service.translate([text], "de", "en", options, service.call()))


@pytest.mark.parametrize(
    ("terms", "says"),
    [
        ((("cat", "a" * 21),), "terms: number 1 has 21 characters, and a phrase may have 20"),
        ((("milk", "a"), ("cat" * 7, "a")), "terms: number 2 has 21 characters, and a phrase may have 20"),
        ((("cat", "a", "b", "c"), ("milk", "a")), "terms: 6 phrases, and a request may have 5"),
    ],
)
def test_terms_have_a_limit_of_their_number_and_length(
    models: dict[str, str], terms: tuple[tuple[str, ...], ...], says: str
) -> None:
    error = refused_text(limited(models, terms=5, term_characters=20), "the cat", RequestOptions(terms=terms))
    assert (error.status, error.message.startswith(says)) == (413, True), error.message
    assert limited(models, terms=4, term_characters=4).translate(
        ["the cat"], "de", "en", RequestOptions(terms=(("cat", "a"), ("milk", "milk"))), RequestCall()
    )


@each(
    "form, text",
    [
        ("text", "a\n" * 6),
        ("html", "<p>a" * 6),
        ("html", "<p title='a'>a" * 3),
        ("xml", f"<a>{'<b>a</b>' * 6}</a>"),
        ("markdown", "* a\n* b\n* c\n* d\n* e\n* f\n"),
        ("po", "".join(f'msgid "{name} b"\nmsgstr ""\n\n' for name in "abcdef")),
        ("srt", "".join(f"{n}\n00:00:0{n},000 --> 00:00:0{n},500\na b\n\n" for n in range(1, 7))),
    ],
)
def test_lines_and_units_of_documents_have_a_limit(models: dict[str, str], form: str, text: str) -> None:
    error = refused_text(limited(models, units=5), text, RequestOptions(format=form))
    assert (error.status, error.message) == (413, "more than 5 lines, or texts within mark-up. Send it in parts")
    assert limited(models, units=6).translate([text], "de", "en", RequestOptions(format=form), RequestCall())


class Clock(RequestCall):
    """A call whose deadline has passed when it has been asked so many times."""

    left = 0
    remaining = None

    @property
    def is_over(self) -> bool:
        self.left -= 1
        return self.left < 0


@pytest.mark.slow
@each(
    "options",
    [PLAIN, RequestOptions(format="html"), RequestOptions(terms=(("cat", "milk"),)), RequestOptions(alignments=True)],
)
def test_a_deadline_is_seen_wherever_it_passes(models: dict[str, str], options: RequestOptions) -> None:
    """It is noticed between lines, while a document is parsed or written, and in every search."""
    service = limited(models)
    text, n_asked, n_refused = "the <b>cat</b> sat .\n\nin her chair .\n", 0, 0
    while n_asked < 1000:
        call = Clock(deadline=0.0)
        call.left = n_asked
        service.table.models[0].shared._queue.cache.clear()
        try:
            service.translate([text], "de", "en", options, call)
        except RequestError as error:
            n_refused += error.status == 503
        n_asked = 2 * n_asked + 1
    assert 2 < n_refused < 10


def test_what_waits_is_done_at_the_rate_of_the_last_requests(
    models: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    service = serving(models["de-en"])
    assert service.retry_after() == 1
    service.finished.append((100.0, 30))
    monkeypatch.setattr("transformer_cli.addons.serving.service.time.monotonic", lambda: 110.0)
    for waiting, seconds in ((6, 2.0), (12, 4.0), (1, 1.0), (10_000, 60.0)):  # three lines a second
        service.n_lines = waiting
        assert service.retry_after() == seconds


def test_a_full_queue_is_answered_with_503_but_one_large_request_is_admitted(models: dict[str, str]) -> None:
    service = serving(models["de-en"], limits=LimitsConfig(queue=3))
    assert len(translated(service, *["a ."] * 5)) == 5
    with service.admitted(2):
        assert len(translated(service, "a .")) == 1
        error = refusal(lambda: translated(service, "a .", "a ."))
    assert (error.status, error.retry_after is not None) == (503, True)
    assert service.n_lines == 0


def test_a_deadline_that_has_passed_is_answered_with_503_and_a_client_that_is_gone_with_nothing(
    service: Service,
) -> None:
    late = RequestCall(deadline=0.0)
    error = refusal(lambda: service.translate(["it was a woman ."], "de", "en", PLAIN, late))
    assert (error.status, error.message.startswith("not done within limits.seconds=60")) == (503, True)
    with pytest.raises(GoneError):
        service.translate(["it was her cat ."], "de", "en", PLAIN, RequestCall(is_cancelled=True))
    assert service.n_lines == 0


# ---- Replaced files


def replaced(service: Service, seconds: int) -> list[str]:
    """Reload with the file's time set to another second, as filesystems may count no finer."""
    for model in service.table.models:
        state = os.stat(model.path)
        os.utime(model.path, (state.st_atime, state.st_mtime + seconds))
    return [model.sha256 for model in service.table.reload_replaced()]


def test_a_replaced_file_is_read_again_and_a_damaged_one_is_not_served(tmp_path: Path) -> None:
    path = Path(write(tmp_path, "de", "en", seed=1))
    service = serving(str(path))
    line = "the cat drank milk and a pretty woman sat ."
    before, sha = translated(service, line), service.table.models[0].sha256
    assert service.table.reload_replaced() == []

    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])  # in place, as cp does
    assert replaced(service, 1) == []
    assert translated(service, line) == before
    assert service.table.failed

    write(tmp_path, "de", "en", seed=5)
    (new,) = replaced(service, 2)
    assert new != sha
    assert translated(service, line) != before
    assert translated(service, line) == [api.load(path, device="cpu", beam_size=2).translate([line])[0].text]
    assert not service.table.failed

    write(tmp_path, "de", "en", seed=1)
    write_model(path, replace(model_file(seed=1), source_lang="de", target_lang="fr"))
    assert replaced(service, 3) == [], "of another pair"
    path.unlink()
    assert service.table.reload_replaced() == []
    assert len(translated(service, line)) == 1


def test_a_file_that_is_replaced_while_it_is_read_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Path(write(tmp_path, "de", "en", seed=1))
    service, open_models = serving(str(path)), serving_models.open_models

    def open_then_replace(*args: Any, **kwargs: Any) -> Any:
        opened = open_models(*args, **kwargs)
        write(tmp_path, "de", "en", seed=3)
        return opened

    write(tmp_path, "de", "en", seed=2)
    monkeypatch.setattr(serving_models, "open_models", open_then_replace)
    assert service.table.reload_replaced() == []
    monkeypatch.undo()
    (new,) = service.table.reload_replaced()
    assert new.sha256 == file_sha256(path)
    expected = api.load(path, device="cpu", beam_size=2).translate(["the cat sat ."])[0].text
    assert translated(service, "the cat sat .") == [expected]


@pytest.mark.slow
def test_an_export_that_was_replaced_in_part_is_read_when_it_is_whole(tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2")
    for seed in (1, 2):
        exported = conversions.conversion_of(Path(write(tmp_path, "de", "en", seed=seed)), quantize=Quantize.none)
        shutil.copytree(exported.directory, tmp_path / str(seed))
    service = serving(str(tmp_path / "1"), engine="ctranslate2")
    (old,) = service.table.models
    shutil.copyfile(tmp_path / "2" / "model.bin", tmp_path / "1" / "model.bin")
    assert service.table.reload_replaced() == []
    assert service.table.failed
    for name in ("config.json", "export.json"):
        shutil.copyfile(tmp_path / "2" / name, tmp_path / "1" / name)
    (new,) = service.table.reload_replaced()
    assert new.sha256 == file_sha256(tmp_path / "2" / "model.bin") != old.sha256


def test_a_damaged_model_is_refused_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"12345678" * 10)
    with pytest.raises(CheckpointError):
        serving(str(tmp_path / "model.safetensors"))


# ---- Engines


def test_torch_does_what_ctranslate2_cannot_also_when_the_file_is_damaged(tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2")
    path = write(tmp_path, "de", "en")
    fast, torch_alone = serving(path, engine="auto"), serving(path)
    model = fast.table.models[0]
    Path(path).write_bytes(b"damaged")
    fast.table.reload_replaced()
    assert model.engine == "ctranslate2"
    assert translated(fast, "the cat sat .") == translated(torch_alone, "the cat sat .")
    assert model.torch is None
    for given in ({"prefix": "a woman"}, {"terms": (("cat", "pretty"),)}, {"decode": {"coverage_penalty": 0.2}}):
        options = replace(PLAIN, **given)
        one, other = (translated(each, "the cat sat .", options=options) for each in (fast, torch_alone))
        assert one == other
    assert model.torch is not None


def test_what_is_unusual_in_a_text_is_told_its_client_and_not_the_log(
    multilingual: Service, caplog: pytest.LogCaptureFixture
) -> None:
    options = RequestOptions(terms=(("cat", "milk"),))
    text = "<2xx> the cat " + "sat in her chair " * 200
    (result,) = multilingual.translate([text], "en", "de", options, multilingual.call()).results
    assert result.flags
    assert not caplog.records


def test_a_model_is_named_after_its_run_or_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "de-en.v2").mkdir()
    monkeypatch.chdir(tmp_path / "de-en.v2")
    path = Path(write(tmp_path, "de", "en")).rename("model.safetensors")
    assert ServedModel(str(path), ServeConfig(device=Device.cpu)).name == "de-en.v2"
    assert ServedModel(str(path.rename("other.safetensors")), ServeConfig(device=Device.cpu)).name == "other"


def test_models_of_equal_names_are_told_apart(tmp_path: Path) -> None:
    paths = []
    for source, seed in (("de", 1), ("fr", 2)):
        (tmp_path / source).mkdir()
        paths.append(
            Path(write(tmp_path / source, source, "en", seed=seed)).rename(tmp_path / source / "run.safetensors")
        )
    service = serving(*map(str, paths))
    one, two = (service.translate(["the cat ."], source, "en", PLAIN, service.call()) for source in ("de", "fr"))
    both = TranslationResponse(one.results + two.results, one.origins + two.origins, one.routes + two.routes)
    assert [model["sha256"] for model in response_json(both)["model"]["models"]] == [
        file_sha256(path) for path in paths
    ]


# ---- Several target languages


@pytest.fixture(scope="module")
def multilingual(tmp_path_factory: pytest.TempPathFactory) -> Service:
    tokenizer = train_tokenizer(
        [*sentences(200, seed=0), ". ! ?"], TokenizerConfig(vocab_size=90), seed=1, tags=["<2de>", "<2fr>", "<bt>"]
    )
    path = tmp_path_factory.mktemp("multilingual") / "en-de+fr.safetensors"
    write_model(path, replace(model_file(tokenizer, source=tokenizer), source_lang="en", target_lang="de+fr"))
    return serving(str(path))


def test_the_target_decides_the_language_and_other_tags_are_added_to_its_tag(multilingual: Service) -> None:
    (path,) = (str(model.path) for model in multilingual.table.models)
    line = "the cat sat ."
    for target, tag, entry in (("de", "", "<2de>"), ("fr", "<bt>", "<2fr> <bt>"), ("fr", "<2fr>", "<2fr>")):
        expected = api.load(path, device="cpu", beam_size=2, tag=entry).translate([line])[0].text
        options = replace(PLAIN, tags=tuple(tag.split()))
        assert translated(multilingual, line, source="en", target=target, options=options) == [expected]


@each(
    "line, tag, named",
    [
        ("<2fr> the cat", "", "'<2fr>': is not the tag for target=de, <2de>. Leave it out"),
        ("<bt> the cat", "", "'<bt>': is not the tag for target=de"),
        ("the cat", "<2fr>", "'<2fr>': is not the tag for target=de"),
        ("the cat", "<2xx>", "--tag <2xx>: the model has no such tag"),
    ],
)
def test_tags_for_another_language_than_the_target_are_refused(
    line: str, tag: str, named: str, multilingual: Service
) -> None:
    options = replace(PLAIN, tags=tuple(tag.split()))
    error = refusal(lambda: translated(multilingual, line, source="en", target="de", options=options))
    assert error.status == 400
    assert named in error.message


def test_alignments_count_the_tags_of_a_text_as_words_of_it(multilingual: Service) -> None:
    options = replace(PLAIN, alignments=True)
    texts = ["the cat sat .\na woman sat .", "<2de> the cat sat .\n<2de> a woman sat ."]
    plain, tagged = multilingual.translate(texts, "en", "de", options, multilingual.call()).results
    assert plain.alignment
    assert tagged.alignment == [(i + 1 if i < 4 else i + 2, j) for i, j in plain.alignment]


@pytest.mark.slow
def test_torch_does_the_rest_without_the_shortlist_of_ctranslate2(tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2")
    path = Path(write(tmp_path, "de", "en"))
    tokenizers = read_model(path).tokenizers
    starts = np.zeros(len(tokenizers.source) + 1, np.int64)
    Shortlist(np.arange(4, 40), starts, starts[:0]).write(tmp_path / SHORTLIST_FILE, tokenizers, ("de", "en"))
    config = DecodeConfig(beam_size=2, shortlist="auto")
    fast, plain = serving(str(path), engine="ctranslate2", decode=config), serving(str(path))
    options = RequestOptions(prefix="the")
    assert translated(fast, "the cat sat .", options=options) == translated(plain, "the cat sat .", options=options)
    assert fast.table.models[0].torch is not None
