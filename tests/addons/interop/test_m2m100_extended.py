"""A model between many languages with new pieces and languages goes to transformers, and comes back the same."""

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.addons.interop.toy_languages import m2m100, nllb
from tests.support.contract import run
from tests.toy import run as toy_run
from tests.toy.translator import WORDS, sentences
from transformer_cli.addons.interop import verify
from transformer_cli.addons.interop.foreign import ReadOptions
from transformer_cli.addons.interop.importing import import_model, read
from transformer_cli.addons.interop.m2m100 import language_pieces
from transformer_cli.addons.interop.m2m100_writer import arranged
from transformer_cli.config.train import InitConfig
from transformer_cli.data.extend_vocabulary import extended, new_pieces, with_languages
from transformer_cli.data.prune_vocabulary import pruned_tokenizers
from transformer_cli.data.tokenizer import Tokenizer, Tokenizers
from transformer_cli.models.file import ModelFile, read_model, write_model
from transformer_cli.training.initialisation import Initial, initial_weights

SYLLABLES = ["өң", "ту", "хем", "даг", "кы", "чу", "ka", "qua"]


def new_sentences(n: int, *, seed: int) -> list[str]:
    draw = random.Random(seed)
    words = ["".join(draw.choices(SYLLABLES, k=draw.randint(1, 3))) for _ in range(40)]
    return [" ".join(draw.choices([*words, *WORDS], k=draw.randint(2, 8))) + "." for _ in range(n)]


NEW_TEXT, TEXT = new_sentences(200, seed=1), [*sentences(20, seed=5), *new_sentences(20, seed=2)]
ODD = [
    "Өңхем THE кылар … ½ ﬁne ¿qué? 日本 naïve", "a  b\tc", "тудаг,хемтуту?", "кы-кы «чу» 1234", "ﾃﾞ e\u0301 ＡＢ\u00a0x",
    "\u200bkaqua", "🙂 qua🙂", "\u2581the\u2581cat", "ß ẞ İ ı ǆ", "тутутутутутутутутутуту",
]  # fmt: skip


def read_as_file(folder: Path) -> ModelFile:
    file = folder.with_suffix(".safetensors")
    import_model(read(folder, "hf"), file, origin=folder, compares=False)
    return read_model(file)


def with_more(
    model: ModelFile,
    *,
    pieces: int = 0,
    languages: Sequence[str] = (),
    keeps: Sequence[str] = (),
    tags: Sequence[str] = (),
    direction: Sequence[str] = (),
) -> ModelFile:
    """The model as a run begins with it, with random rows for what is new."""
    tokenizer = with_languages(model.tokenizers.source, languages) if languages else model.tokenizers.source
    now = Tokenizers(tokenizer, tokenizer)
    now = now.in_direction(*direction) if direction else now
    if pieces or tags:
        found = new_pieces(model.tokenizers.source.model_bytes, NEW_TEXT, pieces) if pieces else []
        now = Tokenizers(
            *(Tokenizer(extended(one.model_bytes, pieces=found, tags=tags)) for one in (now.source, now.target))
        )
    if keeps:
        text = [*NEW_TEXT, *sentences(20, seed=5)]
        now = pruned_tokenizers(now, zip(text, text, strict=True), keeps)
    config = replace(toy_run.config(model=model.config), name="x", init=InitConfig(from_="x"))
    weights = initial_weights(config, Initial(Path("x"), model, is_resumed=False), now)
    torch.manual_seed(3)
    rows = weights["source_embedding.weight"]
    rows = rows + 0.3 * rows.std() * torch.randn(rows.shape) * (torch.arange(len(rows)) > 20)[:, None]
    source, target = direction or ("+".join(now.source.languages),) * 2
    return replace(
        model, tokenizers=now, weights=weights | {"source_embedding.weight": rows}, source_lang=source, target_lang=target
    )


NLLB_KINDS: dict[str, dict[str, Any]] = {
    "pieces": {"pieces": 40},
    "languages": {"languages": ["tyv_Cyrl", "sah_Cyrl"]},
    "both": {"pieces": 40, "languages": ["tyv_Cyrl"]},
    "pruned": {"pieces": 40, "languages": ["tyv_Cyrl"], "keeps": ["eng_Latn", "fra_Latn", "tyv_Cyrl"]},
    "tags": {"pieces": 10, "languages": ["tyv_Cyrl"], "tags": ["<bt>"]},
    "direction": {"pieces": 20, "languages": ["tyv_Cyrl"], "direction": ["eng_Latn", "tyv_Cyrl"]},
    "less in a direction": {"pieces": 20, "keeps": ["eng_Latn", "fra_Latn"], "direction": ["eng_Latn", "fra_Latn"]},
}


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ModelFile]:
    folder = tmp_path_factory.mktemp("models")
    nllb(folder / "nllb")
    nllb(folder / "legacy", legacy=True)
    m2m100(folder / "m2m")
    return {name: read_as_file(folder / name) for name in ("nllb", "legacy", "m2m")}


@pytest.fixture(autouse=True)
def few_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exports are compared on few lines."""
    monkeypatch.setattr(verify, "N_LINES", 6)


def directed(model: ModelFile, lines: Sequence[str]) -> list[str]:
    languages = list(model.tokenizers.source.languages)
    return [
        f"<{languages[n % len(languages)]}> <2{languages[-1 - n % 2]}> {line}" if languages else line
        for n, line in enumerate(lines)
    ]


def there_and_back(model: ModelFile, folder: Path) -> ModelFile:
    """Export `model`, compare the tokenizer with that of transformers, and import the folder again."""
    transformers = pytest.importorskip("transformers")
    write_model(folder / "m.safetensors", model)
    done = run(["export", "huggingface", "--checkpoint", "m.safetensors", "--output", "out"], folder)
    assert done.code == 0, done.err
    theirs = transformers.AutoTokenizer.from_pretrained(folder / "out")
    there, source = arranged(model), model.tokenizers.source
    for line in directed(model, [*TEXT, *ODD]):
        *tags, text = line.split(" ", 2) if source.languages else [line]
        code = tags[0].strip("<>") if tags else source.packed.prefix[0].strip("_")
        theirs.src_lang = code if hasattr(theirs, "get_lang_token") else next(
            piece for piece in language_pieces(there.packed) if piece.strip("_") == code
        )
        ids = [*source.encode([line])[0], *source.end_ids]
        assert theirs(text).input_ids == [there.numbers[i] for i in ids], line
        if source.packed.whole:
            assert len(tags) == 2
            tagged = [*source.encode([f"{tags[0]} <bt> {tags[1]} {text}"])[0], *source.end_ids]
            assert len(tagged) == 1 + len(ids)
            if not source.language_last:
                assert theirs(f"<bt> {text}").input_ids == [there.numbers[i] for i in tagged], line
    outcome = import_model(
        read(folder / "out", "hf", ReadOptions(model.source_lang, model.target_lang) if not source.languages else ReadOptions()),
        folder / "back.safetensors", origin=folder / "out", n_made_up=6
    )
    assert outcome.comparison is not None
    assert outcome.comparison.holds
    return read_model(folder / "back.safetensors")


@pytest.mark.parametrize("kind", NLLB_KINDS)
def test_nllb_with_more(kind: str, originals: dict[str, ModelFile], tmp_path: Path) -> None:
    model = with_more(originals["nllb"], **NLLB_KINDS[kind])
    back = there_and_back(model, tmp_path)
    assert back.tokenizers.source.tags == model.tokenizers.source.tags
    again = there_and_back(back, tmp_path / "2" if (tmp_path / "2").mkdir() is None else tmp_path)
    assert again.tokenizers.source.sha256 == back.tokenizers.source.sha256
    assert torch.equal(again.weights["source_embedding.weight"], back.weights["source_embedding.weight"])


M2M: dict[str, dict[str, Any]] = {
    "pieces": {"pieces": 40},
    "tags": {"pieces": 40, "tags": ["<bt>"]},
    "languages": {"languages": ["tyv"]},
    "pruned": {"pieces": 40, "languages": ["tyv"], "keeps": ["en", "fr", "tyv"]},
    "direction": {"pieces": 20, "languages": ["tyv"], "direction": ["en", "tyv"]},
    "dir": {"pieces": 20, "direction": ["en", "fr"]},
}


@pytest.mark.parametrize("kind", M2M)
def test_m2m_with_more(kind: str, originals: dict[str, ModelFile], tmp_path: Path) -> None:
    model = with_more(originals["m2m"], **M2M[kind])
    back = there_and_back(model, tmp_path)
    assert back.tokenizers.source.tags == model.tokenizers.source.tags
    again = there_and_back(back, tmp_path / "2" if (tmp_path / "2").mkdir() is None else tmp_path)
    assert again.tokenizers.source.sha256 == back.tokenizers.source.sha256
    assert torch.equal(again.weights["source_embedding.weight"], back.weights["source_embedding.weight"])


@pytest.mark.parametrize("kind", NLLB_KINDS)
def test_legacy_with_more(kind: str, originals: dict[str, ModelFile], tmp_path: Path) -> None:
    model = with_more(originals["legacy"], **NLLB_KINDS[kind])
    back = there_and_back(model, tmp_path)
