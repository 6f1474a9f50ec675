"""A model between many languages with new pieces and languages goes to transformers, and comes back the same."""

import contextlib
import io
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.addons.interop.toy_languages import m2m100, nllb
from tests.support.contract import run
from tests.toy import run as toy_run
from tests.toy.run import sha256
from tests.toy.translator import WORDS, sentences
from transformer_cli.addons.interop import verify
from transformer_cli.addons.interop.foreign import ReadOptions
from transformer_cli.addons.interop.importing import import_model, read
from transformer_cli.addons.interop.m2m100_writer import arranged
from transformer_cli.config.train import InitConfig
from transformer_cli.data.extend_vocabulary import extended, new_pieces, with_languages
from transformer_cli.data.packed_tokenizer import PackedTokenizer
from transformer_cli.data.prune_vocabulary import pruned_tokenizers
from transformer_cli.data.tokenizer import Tokenizer, Tokenizers
from transformer_cli.errors import ConfigError
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
        model,
        tokenizers=now,
        weights=weights | {"source_embedding.weight": rows},
        source_lang=source,
        target_lang=target,
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


Original = Callable[[str], ModelFile]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Original:
    """The models before something is added: made once, where a test needs them."""
    folder = tmp_path_factory.mktemp("models")
    write = {"nllb": nllb, "legacy": partial(nllb, legacy=True), "m2m": m2m100}

    @cache
    def made(name: str) -> ModelFile:
        write[name](folder / name)
        import_model(read(folder / name, "hf"), file := folder / f"{name}.safetensors", origin=folder, compares=False)
        return read_model(file)

    return made


@pytest.fixture(autouse=True)
def few_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exports are compared on few lines."""
    monkeypatch.setattr(verify, "N_LINES", 6)


M2M: dict[str, dict[str, Any]] = {
    "pieces": {"pieces": 40},
    "tags": {"pieces": 40, "tags": ["<bt>"]},
    "languages": {"languages": ["tyv"]},
    "pruned": {"pieces": 40, "languages": ["tyv"], "keeps": ["en", "fr", "tyv"]},
    "new direction": {"pieces": 20, "languages": ["tyv"], "direction": ["en", "tyv"]},
    "old direction": {"pieces": 20, "direction": ["en", "fr"]},
}
KINDS = [(name, kind) for name in ("nllb", "legacy") for kind in NLLB_KINDS] + [("m2m", kind) for kind in M2M]
OF_LIST = ["pieces", "tags", "old direction"]  # M2M-100's own languages, for which there is M2M100Tokenizer
QUICK = [("nllb", "both")]


def made(original: Original, name: str, kind: str) -> ModelFile:
    return with_more(original(name), **(M2M if name == "m2m" else NLLB_KINDS)[kind])


def packed_of(model: ModelFile) -> PackedTokenizer:
    packed = model.tokenizers.source.packed
    assert packed is not None
    return packed


def directed(model: ModelFile, lines: Sequence[str]) -> list[tuple[str, str, str]]:
    """Each line with the tags of a direction, and with the token that its source begins with."""
    packed = packed_of(model)
    pieces = [*packed.languages]
    if not pieces:
        return [(line, line, packed.prefix[0]) for line in lines]
    found = []
    for n, line in enumerate(lines):
        source, target = pieces[n % len(pieces)], pieces[-1 - n % 2]
        found.append((f"<{source.strip('_')}> <2{target.strip('_')}> {line}", line, source))
    return found


def exported(model: ModelFile, folder: Path) -> tuple[Path, Any]:
    """A folder of transformers, and its tokenizer, which cuts text as the model does here."""
    transformers = pytest.importorskip("transformers")
    folder.mkdir(exist_ok=True)
    write_model(folder / "m.safetensors", model)
    done = run(["export", "huggingface", "--checkpoint", "m.safetensors", "--output", "out"], folder)
    assert done.code == 0, done.err
    theirs = transformers.AutoTokenizer.from_pretrained(folder / "out")
    numbers, ours = arranged(model).numbers, model.tokenizers.source
    for line, text, source in directed(model, [*TEXT, *ODD]):
        theirs.src_lang = source.strip("_") if hasattr(theirs, "get_lang_token") else source
        expected = [numbers[i] for i in [*ours.encode([line])[0], *ours.end_ids]]
        assert theirs(text).input_ids == expected, line
        if packed_of(model).whole and not ours.language_last:
            tagged = [numbers[i] for i in ours.encode([line.replace("> ", "> <bt> ", 1)])[0]]
            assert len(tagged) == len(expected)
            assert theirs(f"<bt> {text}").input_ids[:-1] == tagged, line
    return folder / "out", theirs


@pytest.mark.parametrize(
    ("name", "kind"), [pytest.param(*one, marks=[] if one in QUICK else pytest.mark.slow) for one in KINDS]
)
def test_what_was_added_is_there_in_transformers_and_back_again(
    name: str, kind: str, original: Original, tmp_path: Path
) -> None:
    model = made(original, name, kind)
    folder, theirs = exported(model, tmp_path / "1")
    assert len(theirs) <= len(model.tokenizers.source)
    assert hasattr(theirs, "get_lang_token") == (name == "m2m" and kind in OF_LIST)
    sides = (model.source_lang, model.target_lang)
    options = ReadOptions() if model.tokenizers.source.languages else ReadOptions(*sides)
    outcome = import_model(read(folder, "hf", options), tmp_path / "b.safetensors", origin=folder, n_made_up=6)
    assert outcome.comparison is not None
    assert outcome.comparison.holds
    back = read_model(tmp_path / "b.safetensors")
    assert back.tokenizers.source.tags == model.tokenizers.source.tags
    again, _ = exported(back, tmp_path / "2")
    assert sha256(again / "model.safetensors") == sha256(folder / "model.safetensors")
    for file in ("tokenizer_config.json", "sentencepiece.bpe.model"):
        assert (again / file).read_bytes() == (folder / file).read_bytes()


def test_new_text_is_cut_into_new_pieces(original: Original) -> None:
    """Else the tests above could not fail."""
    model = made(original, "nllb", "both")
    old, new = original("nllb").tokenizers.source, model.tokenizers.source
    line = f"<eng_Latn> <2tyv_Cyrl> {NEW_TEXT[0]}"
    ids = new.encode([line])[0]
    assert max(ids) >= len(old)
    assert new.unk_id not in ids
    assert old.unk_id in old.encode([line.replace("2tyv_Cyrl", "2fra_Latn")])[0]
    assert [*arranged(model).order] != sorted(arranged(model).order)


def test_a_symbol_that_nllb_would_not_find_is_refused(original: Original, tmp_path: Path) -> None:
    model = original("nllb")
    changed = Tokenizer(extended(model.tokenizers.source.model_bytes, symbols=["<x1>"]))
    rows = model.weights["source_embedding.weight"]
    weights = {**model.weights, "source_embedding.weight": torch.cat([rows, rows[-1:]])}
    with pytest.raises(ConfigError, match="NllbTokenizer does not cut text at a symbol as '<x1>'"):
        arranged(replace(model, tokenizers=Tokenizers(changed, changed), weights=weights))


def test_pieces_that_sentencepiece_lacks_are_refused_with_other_languages(original: Original) -> None:
    model = original("m2m")
    packed = packed_of(model)
    first = packed.ids["__af__"]
    more = replace(packed, pieces=[*packed.pieces[:first], "extra", *packed.pieces[first:]])
    arranged(replace(model, tokenizers=Tokenizers(*(Tokenizer(more.to_bytes()),) * 2)))  # M2M100Tokenizer has a list
    tokenizer = with_languages(Tokenizer(more.to_bytes()), ["tyv"])
    with pytest.raises(
        ConfigError, match="'extra' is a piece of the model or of its SentencePiece model, and not of both"
    ):
        arranged(replace(model, tokenizers=Tokenizers(tokenizer, tokenizer)))


# ---- Model cards


def printed_by_card(folder: Path, text: str, *, replacing: dict[str, str]) -> str:
    """What the code of a model card prints."""
    code = (folder / "README.md").read_text(encoding="utf-8").split("```python\n")[1].split("```")[0]
    for old, new in {"FOLDER": str(folder), "TEXT": text, **replacing}.items():
        assert old in code, code
        code = code.replace(old, new)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(code, {})
    return out.getvalue().strip().removeprefix("['").removesuffix("']")


@pytest.mark.parametrize(
    ("name", "kind", "form"),
    [
        ("m2m", "pieces", "huggingface"),
        *(
            pytest.param(*one, marks=pytest.mark.slow)
            for one in (
                ("m2m", "languages", "huggingface"),
                ("m2m", "old direction", "huggingface"),
                ("nllb", "both", "huggingface"),
                ("legacy", "both", "huggingface"),
                ("nllb", "both", "ctranslate2"),
                ("nllb", "pruned", "ctranslate2"),
                ("nllb", "direction", "ctranslate2"),
                ("legacy", "both", "ctranslate2"),
                ("legacy", "direction", "ctranslate2"),
            )
        ),
    ],
)
def test_the_code_of_the_card_translates_as_tfm(
    name: str, kind: str, form: str, original: Original, tmp_path: Path
) -> None:
    pytest.importorskip({"huggingface": "transformers"}.get(form, form))
    model = made(original, name, kind)
    write_model(tmp_path / "m.safetensors", model)
    packed, of_target = packed_of(model), model.tokenizers.target.packed
    assert of_target is not None
    source, target = [*packed.prefix, *packed.languages][0], [*of_target.prefix, *packed.languages][-1]
    text = "a pretty woman дагkaхем."
    (tmp_path / "text").write_text(text + "\n", encoding="utf-8")
    command = ["translate", "--checkpoint", "m.safetensors", "--input", "text", "--beam", "1", "decode.max_length=20"]
    sides = ["--from", source.strip("_"), "--to", target.strip("_")] if packed.languages else []
    expected = run([*command, "decode.max_extra_length=40", *sides], tmp_path)
    done = run(["export", form, "--checkpoint", "m.safetensors", "--output", "out"], tmp_path)
    assert (expected.code, done.code) == (0, 0), (expected.err, done.err)
    assert "A line begins with its tags" not in (tmp_path / "out/README.md").read_text(encoding="utf-8")
    replacing = {
        "huggingface": {"generate(": "generate(num_beams=1, max_length=21, "},
        "ctranslate2": {"beam_size=4": "beam_size=1, max_decoding_length=20"},
    }
    found = printed_by_card(tmp_path / "out", text, replacing=replacing[form])
    for token in (*packed.languages, *packed.hidden):  # which a model with random weights writes
        found = found.replace(token, "")
    assert found.strip() == expected.out.decode().strip()
