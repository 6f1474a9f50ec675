"""A model between many languages as a directory of transformers: M2M-100's architecture with its tokenizer or NLLB's.

What was imported comes back bit by bit, and what was trained on from it has the same layout.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import sentencepiece

from transformer_cli.addons.interop import huggingface
from transformer_cli.addons.interop.m2m100 import (
    LANGUAGES,
    NLLB_FIRST,
    PIECES,
    TOKENIZER,
    VOCABULARY,
    language_pieces,
    language_token,
    nllb_tokens,
)
from transformer_cli.addons.interop.verify import first_ids, padded_ids
from transformer_cli.addons.interop.weights import refuse_option
from transformer_cli.config.model import DecoderStart, Norm, NormKind, Positions, Tying
from transformer_cli.data.packed_tokenizer import PackedTokenizer
from transformer_cli.data.tags import split_tags
from transformer_cli.data.tokenizer import Tokenizers
from transformer_cli.errors import ConfigError
from transformer_cli.extras import imported
from transformer_cli.models.file import ModelFile

MAX_POSITIONS = 1024  # in config.json of M2M-100 and NLLB; the sinusoids go on
_SPECIAL = ("bos", "cls", "eos", "mask", "pad", "sep", "unk")
_INSTEAD = "Use `tfm export ctranslate2`"


def is_of_languages(model: ModelFile) -> bool:
    """Whether a model has the architecture of M2M-100, and tokens of its languages."""
    packed = model.tokenizers.source.packed
    return packed is not None and bool(language_pieces(packed)) and model.config.first_position > 0


def check_m2m100(model: ModelFile) -> None:
    """Raise ConfigError for an option that M2M-100 does not have."""
    config = model.config
    for name, wanted in (
        ("norm", Norm.pre),
        ("norm_kind", NormKind.layer),
        ("positions", Positions.sinusoidal_tensor2tensor),
        ("tie_embeddings", Tying.three_way),
        ("decoder_start", DecoderStart.bos),
        ("first_position", 2),
        ("output_bias", False),
    ):
        if (value := getattr(config, name)) != wanted:
            shown = getattr(value, "name", value)
            refuse_option(name, shown, f"M2M-100 has {getattr(wanted, 'name', wanted)}", _INSTEAD)
    if config.epsilon != huggingface.TORCH_EPSILON:
        refuse_option("norm_eps", config.epsilon, f"M2M-100 has {huggingface.TORCH_EPSILON}", _INSTEAD)


def as_m2m100(model: ModelFile) -> Any:
    """The model as an M2M100ForConditionalGeneration. Raises ConfigError for an option that this lacks."""
    check_m2m100(model)
    library = imported("transformers", needs="tfm export huggingface")
    options = huggingface.marian_options(model)
    options |= {"max_position_embeddings": MAX_POSITIONS, "tie_word_embeddings": True}
    converted = library.M2M100ForConditionalGeneration(library.M2M100Config(**options))
    theirs = {name: weight for name, weight in huggingface.weights(model).items() if name != huggingface.BIAS}
    control = library.GenerationConfig(**huggingface.generation(model) | _first_token(model))
    return huggingface.filled(converted, theirs, control)


def _first_token(model: ModelFile) -> dict[str, Any]:
    """What every translation begins with, of a model of one direction."""
    prefix = model.tokenizers.target.prefix_ids
    return {"forced_bos_token_id": prefix[0]} if prefix else {}


def write_m2m100(model: ModelFile, folder: Path) -> None:
    """Write `as_m2m100(model)` and its tokenizer into `folder`, which is there and empty."""
    files = nllb_files(model)
    huggingface.save_directory(as_m2m100(model), files, folder)
    if VOCABULARY not in files:  # of NllbTokenizer, which reads this file faster
        library = imported("transformers", needs="tfm export huggingface")
        library.NllbTokenizer.from_pretrained(folder).backend_tokenizer.save(str(folder / TOKENIZER))


def nllb_files(model: ModelFile) -> dict[str, bytes]:
    """The files of NllbTokenizer, or of M2M100Tokenizer. Raises ConfigError for a vocabulary that neither can have."""
    tokenizer = model.tokenizers.source
    packed = tokenizer.packed
    assert packed is not None
    languages = language_pieces(packed)
    named = {f"{kind}_token": piece for kind in _SPECIAL if (piece := _special(kind)) in packed.ids}
    config: dict[str, Any] = {
        **named,
        "model_max_length": MAX_POSITIONS,
        "src_lang": tokenizer_source(model),
        "clean_up_tokenization_spaces": False,
    }
    files = {PIECES: packed.model}
    if languages[0].startswith("__"):
        kind, n_unused = _kind_of(packed, languages)
        config |= {"tokenizer_class": "M2M100Tokenizer", "language_codes": kind, "num_madeup_words": n_unused}
        config |= {"additional_special_tokens": languages}
        pieces = {piece: number for number, piece in enumerate(packed.pieces[: packed.ids[languages[0]]])}
        files[VOCABULARY] = huggingface.json_bytes(pieces)
    else:
        _check_order(packed)
        config |= {"tokenizer_class": "NllbTokenizer", "legacy_behaviour": packed.language_last}
        config |= nllb_tokens(tokenizer)
    files["tokenizer_config.json"] = huggingface.json_bytes(config)
    files["special_tokens_map.json"] = huggingface.json_bytes(named | {"additional_special_tokens": languages})
    return files


def tokenizer_source(model: ModelFile) -> str:
    """The language of a source where nothing says it: the model's first."""
    packed = model.tokenizers.source.packed
    assert packed is not None
    return (packed.prefix or packed.languages)[0].strip("_")


def _special(kind: str) -> str:
    return {"bos": "<s>", "cls": "<s>", "mask": "<mask>", "pad": "<pad>", "unk": "<unk>"}.get(kind, "</s>")


def _kind_of(packed: PackedTokenizer, languages: Sequence[str]) -> tuple[str, int]:
    """The name of a list of languages in M2M100Tokenizer, which knows no others, and how many rows are left behind."""
    lists = {kind: [language_token(code) for code in codes.split()] for kind, codes in LANGUAGES.items()}
    kind = next((kind for kind, tokens in lists.items() if tokens == [*languages]), "")
    first = packed.ids[languages[0]]
    if not kind or packed.pieces[first : first + len(languages)] != [*languages]:
        raise ConfigError(
            f"tokenizer: has {len(languages)} languages, and M2M100Tokenizer only lists of its own. {_INSTEAD}"
        )
    return kind, len(packed) - first - len(languages)


def _check_order(packed: PackedTokenizer) -> None:
    """Raise ConfigError unless the pieces are those of SentencePiece in fairseq's order."""
    own = sentencepiece.SentencePieceProcessor(model_proto=packed.model)
    pieces = [*NLLB_FIRST, *(own.id_to_piece(i) for i in range(3, len(own)))]
    if packed.pieces[: len(pieces)] != pieces:
        raise ConfigError(f"tokenizer: its pieces are not in the order of NllbTokenizer. {_INSTEAD}")


class LoadedM2M100(huggingface.Loaded):
    """A directory with tokens of languages: the caller says for each text from which, and into which."""

    def __init__(self, directory: Path, tokenizers: Tokenizers) -> None:
        super().__init__(directory)
        self.tokenizers = tokenizers

    def translate(
        self, sources: Sequence[Sequence[int]], begun: Sequence[Sequence[int]] = (), *, beam_size: int, max_tokens: int
    ) -> list[list[int]]:
        found_BT = self.generate(*self.padded(sources), beam_size=beam_size, max_tokens=max_tokens, begun=begun)
        return self.without_ends(found_BT)

    def translate_text(self, lines: Sequence[str], *, max_tokens: int) -> list[str]:
        known, encoded = self.tokenizers.source.tags, []
        for tags, text in (split_tags(line, known) for line in lines):
            if tags:
                self.tokenizer.src_lang = tags[0].strip("<>")
            encoded.append(self.tokenizer(text).input_ids)
        source_BS = padded_ids(encoded, self.control.pad_token_id)
        mask_BS = padded_ids([[1] * len(ids) for ids in encoded], 0)
        begun = [first_ids(self.tokenizers, line) for line in lines]
        found_BT = self.generate(source_BS, mask_BS, beam_size=1, max_tokens=max_tokens, begun=begun)
        return list(self.tokenizer.batch_decode(found_BT, skip_special_tokens=True))

    @property
    def end_ids(self) -> list[int]:
        return self.tokenizers.source.end_ids
