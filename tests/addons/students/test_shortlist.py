"""A lexical shortlist: what its lists hold, that a search keeps to them, and `tfm shortlist`."""

import copy
import gzip
import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import transformer_cli
from tests.support.contract import refused, run
from tests.support.each import each
from tests.toy.run import model_file, packed
from tests.toy.translator import GREEDY, VARIANTS, random_model, sentences, toy_tokenizer
from transformer_cli.addons.students import translation_table as module
from transformer_cli.addons.students.translation_table import translation_table, unwritable
from transformer_cli.config.decode import DecodeConfig
from transformer_cli.data.tokenizer import Tokenizers
from transformer_cli.decoding.engine import DecodeRequest
from transformer_cli.decoding.plan import Segment
from transformer_cli.decoding.search import ControlIds, Hypothesis
from transformer_cli.decoding.shortlist import Shortlist
from transformer_cli.decoding.torch_engine import TorchEngine
from transformer_cli.decoding.translator import Translator
from transformer_cli.models.ensemble import Ensemble

BOTH = Tokenizers(toy_tokenizer(), toy_tokenizer())
CPU = torch.device("cpu")


def lists(of: dict[int, list[int]], frequent: Sequence[int] = ()) -> Shortlist:
    n = len(toy_tokenizer())
    starts = np.cumsum([0, *(len(of.get(i, [])) for i in range(n))])
    return Shortlist(
        np.array(frequent, np.int64), starts, np.array([j for i in range(n) for j in of.get(i, [])], np.int64)
    )


def translator(shortlist: Shortlist | None, model: Any = None, **settings: Any) -> Translator:
    config = DecodeConfig(**{"max_extra_length": 6, **settings}, shortlist=None if shortlist is None else "s")
    model = random_model(toy_tokenizer()) if model is None else model
    return Translator(TorchEngine(model, BOTH, device=CPU, shortlist=shortlist), config)


WHOLE = lists({}, frequent=range(len(toy_tokenizer())))


@each("settings", [GREEDY, {}, {"beam_size": 3, "n_best": 3}, {"diversity_groups": 2}, {"no_repeat_ngram": 2}])
def test_lists_of_the_whole_vocabulary_change_nothing(settings: dict[str, Any]) -> None:
    lines = [*sentences(20, seed=1), ""]
    found = [translator(lists, **settings).translate(lines) for lists in (None, WHOLE)]
    for plain, short in zip(*found, strict=True):
        assert [text for text, _ in short.hypotheses] == [text for text, _ in plain.hypotheses]
        torch.testing.assert_close(
            torch.tensor([score for _, score in short.hypotheses]),
            torch.tensor([score for _, score in plain.hypotheses]),
            rtol=0,
            atol=1e-4,
        )


@each("variant", ["paper", "SSRU", "odd"])
def test_every_kind_of_model_has_it(variant: str) -> None:
    model, lines = random_model(toy_tokenizer(), config=VARIANTS[variant]), sentences(6, seed=2)
    narrow = random_model(toy_tokenizer(), config=replace(VARIANTS[variant], d_embedding=8))
    for one in (model, narrow, Ensemble([model, random_model(toy_tokenizer(), config=VARIANTS[variant], seed=2)])):
        texts = [[x.text for x in translator(lists, one).translate(lines)] for lists in (None, WHOLE)]
        assert texts[0] == texts[1]


def some_lists(seed: int) -> Shortlist:
    """Ten tokens of text for each source token, and EOS in none: a search adds it."""
    tokenizer, generator = toy_tokenizer(), np.random.default_rng(seed)
    special = {tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id, tokenizer.unk_id}
    text = np.array([i for i in range(len(tokenizer)) if i not in special])
    return lists({i: sorted(generator.choice(text, 10, replace=False)) for i in range(len(tokenizer))})


def ids_of(text: str) -> list[int]:
    return toy_tokenizer().encode([text])[0]


def searched(engine: TorchEngine, lines: Sequence[str], **settings: Any) -> list[Hypothesis]:
    """The best hypothesis of each line."""
    config = DecodeConfig(**{"max_extra_length": 6, **settings})
    segments = [Segment(i, 0, ids_of(line)) for i, line in enumerate(lines)]
    found: dict[int, Hypothesis] = {}
    for batch, hypotheses in engine.search(segments, DecodeRequest(config)):
        found |= {segment.line: best[0] for segment, best in zip(batch, hypotheses, strict=True)}
    return [found[i] for i in range(len(lines))]


def engine_of(shortlist: Shortlist | None, model: Any = None) -> TorchEngine:
    return TorchEngine(random_model(toy_tokenizer()) if model is None else model, BOTH, device=CPU, shortlist=shortlist)


@each("settings", [GREEDY, {"beam_size": 4}, {"search": "sample", "beam_size": 1}])
def test_a_translation_has_only_tokens_of_the_list_of_its_own_source(settings: dict[str, Any]) -> None:
    shortlist, lines = some_lists(1), sentences(12, seed=4)
    found = searched(engine_of(shortlist), lines, **settings)
    assert any(one.ids for one in found)
    for line, one in zip(lines, found, strict=True):
        assert set(one.ids) <= set(shortlist.of([*ids_of(line), toy_tokenizer().eos_id]).tolist())
    if settings.get("search") != "sample":  # whose draws depend on the number of the line
        alone = [searched(engine_of(shortlist), [line], **settings)[0].ids for line in lines]
        assert [one.ids for one in found] == alone


@each("settings", [GREEDY, {"beam_size": 4}])
def test_the_search_is_that_of_a_model_without_the_other_tokens(settings: dict[str, Any]) -> None:
    """The other tokens have a bias of -1e9 in a copy of the model."""
    shortlist, tokenizer = some_lists(2), toy_tokenizer()
    model = random_model(tokenizer, config=replace(VARIANTS["paper"], output_bias=True))
    for line in sentences(5, seed=5):
        control = ControlIds.of(tokenizer)  # which keep their probability in every search
        allowed = [*shortlist.of([*ids_of(line), tokenizer.eos_id]).tolist(), control.eos, *control.banned]
        without = copy.deepcopy(model)
        assert without.output_embedding.bias is not None
        is_banned = torch.ones(len(tokenizer), dtype=torch.bool).index_fill(0, torch.tensor(allowed), False)
        without.output_embedding.bias.data.masked_fill_(is_banned, -1e9)
        (expected,) = searched(engine_of(None, without), [line], **settings)
        (found,) = searched(engine_of(shortlist, model), [line], **settings)
        assert found.ids == expected.ids
        assert found.log_prob == pytest.approx(expected.log_prob, abs=1e-4)


def test_prefixes_are_kept_though_no_list_has_them() -> None:
    prefix, config = tuple(ids_of("her chair")), DecodeConfig()
    segment = Segment(0, 0, ids_of("the cat"), prefix=prefix)
    ((_, ((found,),)),) = engine_of(some_lists(3)).search([segment], DecodeRequest(config))
    assert tuple(found.ids[: len(prefix)]) == prefix


def test_the_table_links_what_stands_together() -> None:
    """Token 1 stands beside 11 alone, 2 beside 12; 19 stands everywhere."""
    pairs = [([1, 2], [11, 12, 19]), ([1, 3], [11, 13, 19]), ([2, 3], [12, 13, 19]), ([4], [14, 19])] * 5
    table = translation_table(pairs)
    one = table.shortlist(20, n_frequent=1, n_best=1)
    assert one.frequent.tolist() == [19]
    assert [one.ids[one.starts[i] : one.starts[i + 1]].tolist() for i in range(1, 5)] == [[11], [12], [13], [14]]
    assert one.of([1, 3]).tolist() == [11, 13, 19]
    assert unwritable(one, [1, 2], [11, 13, 19, 13]) == [13, 13]
    everything = table.shortlist(20, n_frequent=0, n_best=100)
    assert everything.of([1]).tolist() == [11, 12, 13, 19]


def test_a_table_that_is_made_in_pieces_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = [(ids_of(a), ids_of(b)) for a, b in zip(sentences(40, seed=1), sentences(40, seed=2), strict=True)]
    whole = translation_table(pairs)
    monkeypatch.setattr(module, "_LINKS_AT_A_TIME", 50)
    parts = translation_table(pairs)
    assert parts.keys.tolist() == whole.keys.tolist()
    np.testing.assert_allclose(parts.counts, whole.counts, rtol=1e-12)


# ---- The command


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "m.safetensors").write_bytes(packed(model_file()))
    for name, text in (("s", "a b c\n\nd e\n" * 20), ("t", "d e\nf\na b\n" * 20)):
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


COMMAND = ["shortlist", "--checkpoint", "m.safetensors", "--source", "s", "--translation", "t"]
TRANSLATE = ["translate", "--checkpoint", "m.safetensors", "--input", "s"]


def test_the_command_writes_a_list_that_translate_uses(folder: Path) -> None:
    made = run(COMMAND, folder)
    assert (made.code, made.out) == (0, b"shortlist.safetensors\n")
    assert b"held-out translations" in made.err
    assert run([*TRANSLATE, "decode.shortlist=auto"], folder).code == 0
    evaluate = ["evaluate", *TRANSLATE[1:3], "--source", "s", "--reference", "t", "decode.shortlist=auto"]
    evaluate += ["metrics=[chrf]", "--overwrite"]
    sha256 = hashlib.sha256((folder / "shortlist.safetensors").read_bytes()).hexdigest()
    assert f"|shortlist:{sha256[:12]}|".encode() in run(evaluate, folder).out
    refused(COMMAND, folder, code=2, says=["shortlist.safetensors", "--overwrite"])


@each(
    "arguments, code, says",
    [
        (["decode.shortlist=none.safetensors"], 4, ["none.safetensors", "no such file", "tfm shortlist"]),
        (["decode.shortlist=s"], 4, ["not a shortlist of tfm"]),
        (["decode.shortlist=m.safetensors"], 4, ["not a shortlist of tfm"]),
        (["decode.shortlist=auto"], 4, ["no such file"]),
        (["decode.shortlist=l", "decode.batch_invariant=true"], 2, ["decode.batch_invariant=true"]),
        (["decode.shortlist=l", "decode=mbr"], 2, ["decode.shortlist=l", "mbr"]),
        (["decode.shortlist=l", "--terms", "terms"], 2, ["--terms", "Leave decode.shortlist out"]),
        (["decode.shortlist=l", "--explain", "--output-format", "jsonl"], 2, ["--explain"]),
        (["decode.shortlist=other"], 4, ["other vocabularies"]),
        (["decode.shortlist=back"], 4, ["another direction"]),
        (["decode.shortlist=forged"], 4, ["is damaged"]),
        (["decode.shortlist=short"], 4, ["is damaged"]),
    ],
)
def test_what_a_shortlist_does_not_go_with_is_refused(
    folder: Path, arguments: list[str], code: int, says: list[str]
) -> None:
    file = model_file()
    (folder / "terms").write_text("a\td\n", encoding="utf-8")
    none = Shortlist(np.arange(5), np.zeros(1 + len(file.tokenizers.source), np.int64), np.empty(0, np.int64))
    lists({}).write(folder / "other", BOTH, ("en", "fr"))
    none.write(folder / "l", file.tokenizers, ("en", "fr"))
    none.write(folder / "back", file.tokenizers, ("fr", "en"))
    replace(none, frequent=np.array([9999])).write(folder / "forged", file.tokenizers, ("en", "fr"))
    replace(none, starts=none.starts[:-1]).write(folder / "short", file.tokenizers, ("en", "fr"))
    refused([*TRANSLATE, *arguments], folder, code=code, says=says)


@each(
    "change, code, says",
    [
        (["--translation", "short"], 3, ["short: has 1 lines, s 60"]),
        (["--translation", "blank"], 3, ["no pair has text on both sides"]),
        (["--translation", "none"], 3, ["none"]),
        (["--output", "s"], 2, ["both --source and --output"]),
        (["best=0"], 2, ["best=0"]),
    ],
)
def test_wrong_files_are_refused(folder: Path, change: list[str], code: int, says: list[str]) -> None:
    (folder / "short").write_text("a\n", encoding="utf-8")
    (folder / "blank").write_text("\n" * 60, encoding="utf-8")
    given = [*COMMAND[:-2], *change] if "--translation" in change else [*COMMAND, *change]
    refused(given, folder, code=code, says=says)


def test_one_file_is_not_enough(folder: Path) -> None:
    refused(COMMAND[:-2], folder, code=2, says=["--translation: not given"])


@each("setting", ["decode.shortlist=l", "decode.quantize=int8"])
def test_training_refuses_what_its_dev_evaluations_do_not_have_before_it_begins(folder: Path, setting: str) -> None:
    refused(["train", setting], folder, code=2, says=[setting, "eave it out"])
    assert not (folder / "runs").exists()


def test_exchanged_files_are_refused(folder: Path) -> None:
    """One vocabulary serves both languages, so that nothing else would show it."""
    corpus = Path(transformer_cli.__file__).parent / "data/demo/demo_en_fr"
    for name, side in (("en", "source"), ("fr", "target")):
        text = gzip.decompress((corpus / f"train.{side}.gz").read_bytes())
        (folder / name).write_bytes(text[:20_000].rpartition(b"\n")[0])
    n_lines = min(len((folder / name).read_text(encoding="utf-8").split("\n")) for name in ("en", "fr"))
    for name in ("en", "fr"):
        lines = (folder / name).read_text(encoding="utf-8").split("\n")[:n_lines]
        (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    command = [*COMMAND[:3], "--source", "fr", "--translation", "en"]
    refused(command, folder, code=3, says=["fr: reads like", "en like", "Give --source en --translation fr"])
    assert run([*COMMAND[:3], "--source", "en", "--translation", "fr"], folder).code == 0
