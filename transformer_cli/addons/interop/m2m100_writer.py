"""A model between many languages as a directory of transformers: M2M-100's architecture with its tokenizer or NLLB's.

What was imported comes back bit by bit. Pieces and languages that a run has added stand at the end of its vocabulary;
in the directory the rows of the model are in the order of these tokenizers: pieces, languages, rows for nothing.
M2M100Tokenizer knows only languages of its own lists. With others, a model of M2M-100 gets the tokenizer of NLLB.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from transformer_cli.addons.interop import huggingface
from transformer_cli.addons.interop.huggingface_files import SOURCE_TAGS
from transformer_cli.addons.interop.m2m100 import (
    LANGUAGES,
    NLLB_FIRST,
    PIECES,
    TOKENIZER,
    UNUSED,
    VOCABULARY,
    ids_there,
    language_pieces,
    language_token,
    nllb_tokens,
)
from transformer_cli.addons.interop.verify import first_ids, padded_ids
from transformer_cli.addons.interop.weights import refuse_option
from transformer_cli.config.model import DecoderStart, Norm, Positions, Tying
from transformer_cli.data.packed_tokenizer import PackedTokenizer
from transformer_cli.data.sentencepiece_model import PieceKind, read_pieces
from transformer_cli.data.tokenizer import Tokenizer, Tokenizers
from transformer_cli.errors import ConfigError, quoted
from transformer_cli.extras import imported
from transformer_cli.models.file import ModelFile

MAX_POSITIONS = 1024  # in config.json of M2M-100 and NLLB; the sinusoids go on
_SPECIAL = ("bos", "cls", "eos", "mask", "pad", "sep", "unk")
_INSTEAD = "Use `tfm export ctranslate2`"
_EMBEDDING = "source_embedding.weight"  # of all three matrices, which are tied


def is_of_languages(model: ModelFile) -> bool:
    """Whether a model has the architecture of M2M-100, and tokens of its languages."""
    packed = model.tokenizers.source.packed
    return packed is not None and bool(language_pieces(packed)) and model.config.first_position > 0


def check_m2m100(model: ModelFile) -> None:
    """Raise ConfigError for an option that M2M-100 does not have."""
    config = model.config
    for name, wanted in (
        ("norm", Norm.pre),
        ("norm_kind", "layer"),
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


@dataclass(frozen=True)
class Arranged:
    """A model with its rows in the order of a tokenizer of transformers. `order`: the row here of each row there."""

    model: ModelFile
    order: Sequence[int]

    @cached_property
    def numbers(self) -> dict[int, int]:
        """The row there of each row here."""
        return {here: there for there, here in enumerate(self.order)}

    @property
    def packed(self) -> PackedTokenizer:
        return _packed(self.model)


def arranged(model: ModelFile) -> Arranged:
    """Raises ConfigError for a vocabulary that no tokenizer of transformers can have."""
    packed = _packed(model)
    behind = {*language_pieces(packed), *packed.hidden, *packed.whole} - {*NLLB_FIRST}
    places = _nllb_places(packed, behind) if is_nllb(packed) else {}

    def place(number: int) -> tuple[int, int]:
        piece = packed.pieces[number]
        if UNUSED.fullmatch(piece):
            return 2, number
        return (1, number) if piece in behind else (0, places.get(piece, number))

    order = sorted(range(len(packed)), key=place)
    if order == [*range(len(packed))]:
        return Arranged(model, order)
    source, target = (_reordered(side, order) for side in (model.tokenizers.source, model.tokenizers.target))
    weights = {**model.weights, _EMBEDDING: model.weights[_EMBEDDING][torch.tensor(order)]}
    return Arranged(replace(model, tokenizers=Tokenizers(source, target), weights=weights), order)


def _nllb_places(packed: PackedTokenizer, behind: Collection[str]) -> dict[str, int]:
    """The id of each piece in NllbTokenizer, which are SentencePiece's in fairseq's order. Raises ConfigError."""
    kinds = {name: kind for name, _, kind in read_pieces(packed.model)[len(NLLB_FIRST) - 1 :]}
    theirs, ours = [*NLLB_FIRST, *kinds], [one for one in packed.pieces if not (one in behind or UNUSED.fullmatch(one))]
    if symbols := [name for name, kind in kinds.items() if kind == PieceKind.user_defined]:
        raise ConfigError(f"tokenizer: NllbTokenizer does not cut text at a symbol as {quoted(symbols[0])}. {_INSTEAD}")
    if sorted(theirs) != sorted(ours):
        odd = next(iter(({*ours} ^ {*theirs}) or [f"{len(ours) - len(theirs)} pieces"]))
        raise ConfigError(
            f"tokenizer: {quoted(odd)} is a piece of the model or of its SentencePiece model, and not of both, as"
            f" NllbTokenizer needs. {_INSTEAD}"
        )
    return {piece: number for number, piece in enumerate(theirs)}


def _packed(model: ModelFile) -> PackedTokenizer:
    packed = model.tokenizers.source.packed
    assert packed is not None
    return packed


def _reordered(tokenizer: Tokenizer, order: Sequence[int]) -> Tokenizer:
    packed = tokenizer.packed
    assert packed is not None
    numbers = {here: there for there, here in enumerate(order)}
    pad, unk, bos, eos = (numbers[i] for i in (packed.pad, packed.unk, packed.bos, packed.eos))
    pieces = [packed.pieces[i] for i in order]
    return Tokenizer(replace(packed, pieces=pieces, pad=pad, unk=unk, bos=bos, eos=eos).to_bytes())


def is_nllb(packed: PackedTokenizer) -> bool:
    """Whether its files are those of NllbTokenizer; else they are those of M2M100Tokenizer."""
    return not _list_of(sorted(language_pieces(packed), key=packed.ids.__getitem__))


def write_m2m100(here: Arranged, folder: Path) -> None:
    """Write `as_m2m100` of the model and its tokenizer into `folder`, which is there and empty."""
    files = files_of_languages(here.model)
    huggingface.save_directory(as_m2m100(here.model), files, folder)
    if VOCABULARY not in files:  # of NllbTokenizer, which reads this file faster
        library = imported("transformers", needs="tfm export huggingface")
        library.NllbTokenizer.from_pretrained(folder).backend_tokenizer.save(str(folder / TOKENIZER))


def files_of_languages(model: ModelFile) -> dict[str, bytes]:
    """The files of NllbTokenizer, or of M2M100Tokenizer, for a model whose vocabulary is in its order."""
    tokenizer, packed = model.tokenizers.source, _packed(model)
    languages = language_pieces(packed)
    named = {f"{kind}_token": piece for kind in _SPECIAL if (piece := _special(kind)) in packed.ids}
    source = (packed.prefix or packed.languages)[0]
    config: dict[str, Any] = {**named, "model_max_length": MAX_POSITIONS, "clean_up_tokenization_spaces": False}
    config |= {SOURCE_TAGS: list(packed.whole)} if packed.whole else {}
    files = {PIECES: packed.model}
    if is_nllb(packed):
        config |= {"tokenizer_class": "NllbTokenizer", "legacy_behaviour": packed.language_last, "src_lang": source}
        config |= {"mask_token": named.get("mask_token")} | nllb_tokens(tokenizer)  # unset, it would be added
    else:
        first = packed.ids[languages[0]]
        n_behind = len(packed) - first - len(languages)
        config |= {"tokenizer_class": "M2M100Tokenizer", "language_codes": _list_of(languages)}
        config |= {"num_madeup_words": n_behind, "additional_special_tokens": languages, "src_lang": source.strip("_")}
        if packed.whole:
            config |= nllb_tokens(tokenizer)
        files[VOCABULARY] = huggingface.json_bytes({piece: i for i, piece in enumerate(packed.pieces[:first])})
    files["tokenizer_config.json"] = huggingface.json_bytes(config)
    files["special_tokens_map.json"] = huggingface.json_bytes(named | {"additional_special_tokens": languages})
    return files


def _special(kind: str) -> str:
    return {"bos": "<s>", "cls": "<s>", "mask": "<mask>", "pad": "<pad>", "unk": "<unk>"}.get(kind, "</s>")


def _list_of(languages: Sequence[str]) -> str:
    """The name of M2M100Tokenizer's list of these languages, which has them in this order; empty for others."""
    lists = {kind: [language_token(code) for code in codes.split()] for kind, codes in LANGUAGES.items()}
    return next((kind for kind, tokens in lists.items() if tokens == [*languages]), "")


class LoadedM2M100(huggingface.Loaded):
    """A directory with tokens of languages: the caller says for each text from which, and into which.

    Ids, in and out, are those here, where rows may be in another order.
    """

    def __init__(self, directory: Path, here: Arranged) -> None:
        super().__init__(directory)
        self.tokenizers, self.order, self.numbers = here.model.tokenizers, here.order, here.numbers

    def _theirs(self, sentences: Sequence[Sequence[int]]) -> list[list[int]]:
        return [[self.numbers[i] for i in ids] for ids in sentences]

    def translate(
        self, sources: Sequence[Sequence[int]], begun: Sequence[Sequence[int]] = (), *, beam_size: int, max_tokens: int
    ) -> list[list[int]]:
        given, begun = self.padded(self._theirs(sources)), self._theirs(begun)
        found_BT = self.generate(*given, beam_size=beam_size, max_tokens=max_tokens, begun=begun)
        return [[self.order[i] for i in ids] for ids in self.without_ends(found_BT)]

    def log_probs(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[list[float]]:
        return super().log_probs(self._theirs(sources), self._theirs(targets))

    def translate_text(self, lines: Sequence[str], *, max_tokens: int) -> list[str]:
        encoded = [ids_there(self.tokenizer, self.tokenizers.source, line) for line in lines]
        source_BS = padded_ids(encoded, self.control.pad_token_id)
        mask_BS = padded_ids([[1] * len(ids) for ids in encoded], 0)
        begun = [first_ids(self.tokenizers, line) for line in lines]
        found_BT = self.generate(source_BS, mask_BS, beam_size=1, max_tokens=max_tokens, begun=begun)
        return list(self.tokenizer.batch_decode(found_BT, skip_special_tokens=True))

    @property
    def end_ids(self) -> list[int]:
        return self.tokenizers.source.end_ids
