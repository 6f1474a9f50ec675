"""Reads M2M-100 from directories of Hugging Face transformers: one model, and a pair of its hundred languages.

Pre-LN with the sinusoids of tensor2tensor from position 2. A source begins with the token of its language, `__en__`.
The decoder starts with `</s>`, and the first token that it writes is that of the target language.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformer_cli.addons.interop.foreign import ReadOptions
from transformer_cli.addons.interop.huggingface_files import (
    TOKENIZER_CONFIG,
    bytes_of,
    json_of,
    refuse_file,
    vocab_pieces,
)
from transformer_cli.addons.interop.huggingface_reader import (
    MARIAN_DEFAULTS,
    Architecture,
    Original,
    TextFiles,
    optional_json,
)
from transformer_cli.config.model import Norm, Positions
from transformer_cli.data.packed_tokenizer import PackedTokenizer, Segmenter
from transformer_cli.data.tokenizer import Tokenizer, Tokenizers
from transformer_cli.errors import CheckpointError, quoted

DEFAULTS = {
    name: value for name, value in MARIAN_DEFAULTS.items() if not name.startswith(("decoder_vocab", "share"))
} | {
    "vocab_size": 128112,
    "activation_function": "relu",
    "attention_dropout": 0.1,
    "decoder_start_token_id": 2,
    "scale_embedding": True,
    "pad_token_id": 1,
    "eos_token_id": 2,
}
# Languages in the order of their ids, which follow those of vocab.json; the files do not hold it.
LANGUAGES = {
    "m2m100": "af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga gd gl gu ha he hi hr"
    " ht hu hy id ig ilo is it ja jv ka kk km kn ko lb lg ln lo lt lv mg mk ml mn mr ms my ne nl no ns oc or pa pl ps"
    " pt ro ru sd si sk sl so sq sr ss su sv sw ta th tl tn tr uk ur uz vi wo xh yi yo zh zu",
    "wmt21": "en ha is ja cs ru zh de",
}
PIECES, VOCABULARY = "sentencepiece.bpe.model", "vocab.json"


def _read_text(folder: Path, given: Mapping[str, Any], values: Mapping[str, Any], options: ReadOptions) -> TextFiles:
    settings = optional_json(folder / TOKENIZER_CONFIG)
    if "Nllb" in str(settings.get("tokenizer_class")) or not (folder / VOCABULARY).exists():
        refuse_file(folder, f"has no {VOCABULARY} as M2M-100 has; NLLB is not supported. Choose another model")
    kind = settings.get("language_codes", "m2m100")
    if kind not in LANGUAGES:
        refuse_file(
            folder / TOKENIZER_CONFIG, f"language_codes={quoted(str(kind))[1:-1]}: unknown. Choose another model"
        )
    codes = LANGUAGES[kind].split()
    named = {"--source-lang": options.source_lang, "--target-lang": options.target_lang}
    for flag, code in named.items():
        if code not in codes:
            what = "not given" if code is None else f"{code}: not one of the model's"
            refuse_file(
                folder,
                f"translates between many languages, and {flag} is {what}. Choose two of {' '.join(codes)}, with"
                " `tfm import hf FOLDER --source-lang … --target-lang …`",
            )
    pieces = all_pieces(folder, values, codes)
    source, target = (side(folder, pieces, values, code) for code in (options.source_lang, options.target_lang))
    files = [folder / VOCABULARY, folder / PIECES, folder / TOKENIZER_CONFIG]
    assert options.source_lang is not None
    assert options.target_lang is not None
    found = [file for file in files if file.is_file()]
    return TextFiles(Tokenizers(source, target), options.source_lang, options.target_lang, found)


def all_pieces(folder: Path, values: Mapping[str, Any], codes: list[str]) -> list[str]:
    """The pieces of vocab.json, the tokens of the languages, and names for rows that no text has."""
    first = len(json_of(folder / VOCABULARY))
    if first + len(codes) > values["vocab_size"]:
        rows = f"{first} pieces and {len(codes)} languages, but the model has {values['vocab_size']:,} rows"
        refuse_file(folder / VOCABULARY, f"{rows}. Choose another model")
    pieces = vocab_pieces(folder / VOCABULARY, values["vocab_size"])
    tokens = [language_token(code) for code in codes]
    return [*pieces[:first], *tokens, *pieces[first + len(tokens) :]]


def language_token(code: str | None) -> str:
    return f"__{code}__"


def side(folder: Path, pieces: list[str], values: Mapping[str, Any], code: str | None) -> Tokenizer:
    ids = {piece: number for number, piece in enumerate(pieces)}
    for piece, name in (("<pad>", "pad_token_id"), ("</s>", "eos_token_id"), ("<unk>", "")):
        if piece not in ids or (name and ids[piece] != values[name]):
            refuse_file(folder / VOCABULARY, f"has {piece} not where config.json has it. Choose another model")
    try:
        packed = PackedTokenizer(
            Segmenter.sentencepiece,
            pieces,
            pad=ids["<pad>"],
            unk=ids["<unk>"],
            bos=values["decoder_start_token_id"],
            eos=ids["</s>"],
            model=bytes_of(folder / PIECES),
            prefix=[language_token(code)],
            hidden=[piece for piece in pieces if re.fullmatch(r"__\w+__|<s>", piece)],
        )
        return Tokenizer(packed.to_bytes())
    except ValueError as error:
        refuse_file(folder, f"its tokenizer cannot be used ({quoted(str(error))}). Fetch the folder again")
    except CheckpointError as error:
        raise CheckpointError(f"{folder / PIECES}: {error}") from error


class OriginalM2M100(Original):
    def open_tokenizer(self, library: Any, place: Mapping[str, Any], text: TextFiles) -> Any:
        return library.M2M100Tokenizer.from_pretrained(**place, src_lang=text.source_lang, tgt_lang=text.target_lang)


M2M100 = Architecture(
    "M2M100ForConditionalGeneration",
    "M2M100Config",
    Norm.pre,
    DEFAULTS,
    text=_read_text,
    original=OriginalM2M100,
    positions=Positions.sinusoidal_tensor2tensor,
    first_position=2,
)
