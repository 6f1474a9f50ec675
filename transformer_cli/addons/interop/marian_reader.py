"""Reads models of Marian: an `.npz`, its vocabularies and its `decoder.yml`; the folders of OPUS-MT are such.

What the options of a model ask for is done or refused by name, and each of its items is used or refused. The original
is CTranslate2's reading of it, with Marian's own positions and norms in place of those that its converter puts there.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import Tensor

from transformer_cli.addons.interop.foreign import Imported, ReadOptions, files_like
from transformer_cli.addons.interop.marian_names import (
    ACTIVATIONS,
    EPSILON,
    LEGACY_OUTPUT,
    NORMS,
    OPTIONS,
    POSITIONS,
    Tied,
    is_transposed,
    their_name,
    their_shape,
)
from transformer_cli.addons.interop.marian_program import Original, OriginalWithText
from transformer_cli.addons.interop.marian_vocabulary import (
    CODES,
    MOSES_CODES,
    SPM,
    Read,
    SegmenterFile,
    content_of,
    read_vocabulary,
)
from transformer_cli.addons.interop.npz import Npz, is_npz_with
from transformer_cli.addons.interop.parts import part_names, weights_from_parts
from transformer_cli.config.data import DataConfig
from transformer_cli.config.model import DecoderStart, ModelConfig, Norm, Positions
from transformer_cli.config.yaml_files import MAX_YAML_BYTES, read_yaml, strict_yaml
from transformer_cli.data.tokenizer import Tokenizers
from transformer_cli.errors import CheckpointError, ConfigError, quoted
from transformer_cli.models.header import MALFORMED
from transformer_cli.models.locate import EXPORT_FILE

# The output bias of the padding, which Marian does not have: e^-1000 is 0 in every type, so that the softmax is that of
# Marian. Minus infinity would do so, too, but makes the loss of label smoothing infinite when the model is trained on.
PAD_BIAS = -1000.0
BIN = b"\1\0\0\0\0\0\0\0"  # how a `.bin` begins
VOCABULARIES = (".spm", ".yml", ".yaml", ".json")
_UNKNOWN_LANGUAGE = "und"  # of ISO 639: undetermined

# What a model must have as we have it, and what it is called there.
_ALWAYS: dict[str, tuple[object, str]] = {
    "type": ("transformer", "another kind of model"),
    "transformer-decoder-autoreg": ("self-attention", "AAN and SSRU decoders are not ours"),
    "transformer-no-projection": (False, "attention without an output projection"),
    "transformer-pool": (False, "a pooled encoder"),
    "transformer-no-bias": (False, "layers without biases"),
    "transformer-no-affine": (False, "norms without weights"),
    "transformer-disable-position-embeddings": (False, "no positions"),
    "transformer-attention-mask": ("default", "another attention mask"),
    "transformer-ffn-depth": (2, "feed-forward layers of another depth"),
    "transformer-tied-layers": ([], "layers that share weights"),
    "right-left": (False, "a model that writes from right to left"),
    "ulr": (False, "universal language representations"),
    "lemma-dim-emb": (0, "factored vocabularies"),
    "lemma-dependency": ("", "factored vocabularies"),
    "factors-dim-emb": (0, "factored vocabularies"),
}
_NEEDED = (
    *("type", "dim-emb", "enc-depth", "dec-depth", "dim-vocabs", "transformer-heads", "transformer-dim-ffn"),
    *("transformer-ffn-activation", "transformer-preprocess", "transformer-postprocess"),
)
# Of other kinds of models, or of training alone.
_IGNORED = re.compile(
    r"version|skip|dim-rnn|layer-normalization|special-vocab|separator-symbol|factors-combine|char-.*|bert-.*|ulr-.*|"
    r"(enc|dec)-(type|cell)(-.*)?|transformer-(aan-.*|dim-aan|alibi-.*|rnn-projection|depth-scaling|dropout.*|"
    r"guided-alignment-layer)|transformer-(flat-.*)"
)
_READ = re.compile(
    r"tied-embeddings(-all|-src)?|output-omit-bias|input-types|transformer-postprocess-(emb|top)|"
    r"transformer-decoder-(dim-ffn|ffn-depth)|transformer-train-position(s|-embeddings)"
)


class Marian:
    """A `.npz`, its `decoder.yml`, or the folder of both."""

    options: Sequence[str] = ("vocabulary", "segmenter")

    def recognises(self, path: Path) -> bool:
        try:
            if path.is_dir():
                return any(_is_model(file) for file in path.glob("*.npz"))
            return _is_model(path) or _is_bin(path) or _is_decoder(path)
        except OSError:
            return False

    def files_of(self, names: Sequence[str]) -> list[str]:
        texts = ("*.yml", "*.yaml", "*.spm", "*.bpe", "*vocab*.json")
        return files_like(names, "*.npz", *texts) if files_like(names, "*.npz") else []

    def read(self, path: Path, options: ReadOptions) -> Imported:
        files = found_files(path, options)
        archive = Npz(files.model)
        theirs = read_options(archive)
        config, tied, sizes = _config_of(theirs, archive)
        segmenters = files.segmenters or (None, None)
        same = files.vocabularies[0] == files.vocabularies[1] and segmenters[0] == segmenters[1]
        source = read_vocabulary(files.vocabularies[0], sizes[0], segmenters[0])
        target = source if same else read_vocabulary(files.vocabularies[1], sizes[1], segmenters[1])
        config.output_bias = not theirs.get("output-omit-bias", False) or target.is_padded
        names = check_items(archive, config, tied, sizes, omits_bias=bool(theirs.get("output-omit-bias", False)))
        tokenizers = Tokenizers(source.tokenizer, target.tokenizer)
        return Imported(
            config=config,
            tokenizers=tokenizers,
            source_lang=files.languages[0],
            target_lang=files.languages[1],
            weights=weights_from_parts(config, partial(_fetch, archive, names, source, target, config)),
            program=partial(program, archive, config, tied, sizes, tokenizers, files.vocabularies),
            program_name=f"ctranslate2 {_version('ctranslate2')}, with Marian's positions and norms",
            files=[files.model, *dict.fromkeys([*files.vocabularies, *(s.path for s in segmenters if s is not None)])],
            notes=[*files.notes, *_notes_of(theirs, config, tokenizers)],
        )


def program(
    archive: Npz,
    config: ModelConfig,
    tied: Tied,
    sizes: tuple[int, int],
    tokenizers: Tokenizers,
    vocabularies: tuple[Path, Path],
) -> Original:
    """The original, and where its vocabularies are SentencePiece models, those, as it uses them itself."""
    if any(path.suffix != SPM for path in vocabularies):
        return Original(archive, config, tied, sizes, tokenizers)
    source, target = (content_of(path) for path in vocabularies)
    return OriginalWithText(archive, config, tied, sizes, tokenizers, source, target)


def _version(package: str) -> str:
    try:
        return version(package)
    except ImportError:
        return "(not installed)"


# ---- Options


def read_options(archive: Npz) -> dict[str, Any]:
    """The options that are saved in the model."""
    if OPTIONS not in archive:
        archive.refuse(f"has no {OPTIONS}, in which Marian keeps a model's options")
    header = archive[OPTIONS]
    if header.dtype not in ("|i1", "|u1") or len(header.shape) != 1 or header.shape[0] > MAX_YAML_BYTES:
        archive.refuse(f"its {OPTIONS} is no text")
    text = archive.read(OPTIONS).tobytes().partition(b"\0")[0]
    try:
        found = strict_yaml(text.decode(), OPTIONS)
    except (ConfigError, UnicodeDecodeError) as error:
        archive.refuse(f"its options cannot be read ({quoted(str(error), 200)[1:-1]})", error)
    if not isinstance(found, dict):
        archive.refuse(f"its {OPTIONS} is no list of options")
    return {str(name): value for name, value in found.items()}


def _config_of(options: dict[str, Any], archive: Npz) -> tuple[ModelConfig, Tied, tuple[int, int]]:
    """The model of these options, which of its matrices are one, and the sizes of its vocabularies.

    Raises CheckpointError for what we cannot express.
    """
    where = archive.path
    for name in _NEEDED:
        if name not in options:
            _unsupported(where, f"its options do not say {name}")
    for name, (wanted, what) in _ALWAYS.items():
        if options.get(name, wanted) not in (wanted, None):
            _unsupported(where, f"{name}={_shown(options[name])}: {what}")
    for name, value in options.items():
        if not (name in _ALWAYS or name in _NEEDED or _IGNORED.fullmatch(name) or _READ.fullmatch(name)) and value:
            _unsupported(where, f"{_shown(name)}={_shown(value)}: an option that tfm does not know")
    kinds = options.get("input-types") or []
    if not isinstance(kinds, list) or any(kind != "sequence" for kind in kinds):
        _unsupported(where, f"input-types={_shown(kinds)}: inputs other than text")

    before, after, top, at_first = (
        str(options.get(f"transformer-{name}") or "").replace("d", "")
        for name in ("preprocess", "postprocess", "postprocess-top", "postprocess-emb")
    )
    if at_first:
        _unsupported(where, f"transformer-postprocess-emb={_shown(at_first)}: embeddings are normalised")
    if after[:1] != "a" or (before, after[1:], top) not in NORMS:
        _unsupported(
            where,
            f"transformer-preprocess={_shown(before)}, -postprocess={_shown(after)}, -postprocess-top={_shown(top)}:"
            " neither post-LN (dan) nor pre-LN (n, da, n)",
        )
    if (activation := options["transformer-ffn-activation"]) not in ACTIVATIONS:
        why = ", which is another formula in each version of Marian" if activation == "gelu" else ""
        _unsupported(where, f"transformer-ffn-activation={_shown(activation)}{why}")
    d_model, d_ff = _whole(where, options, "dim-emb"), _whole(where, options, "transformer-dim-ffn")
    for name, same in (("transformer-decoder-dim-ffn", d_ff), ("transformer-decoder-ffn-depth", 2)):
        if options.get(name, 0) not in (0, same):
            _unsupported(where, f"{name}={_shown(options[name])}: another size in the decoder")
    sizes = options["dim-vocabs"]
    if not isinstance(sizes, list) or not all(type(size) is int and size > 1 for size in sizes) or len(sizes) != 2:
        _unsupported(where, f"dim-vocabs={_shown(sizes)}: not the sizes of one source and one target vocabulary")
    tied = Tied.of(options)
    if tied.embeddings and sizes[0] != sizes[1]:
        _unsupported(where, f"dim-vocabs={_shown(sizes)}: two sizes, but the embeddings of both sides are one")
    is_learned = POSITIONS in archive and _trains_positions(options)
    rows = archive[POSITIONS].shape if is_learned else ()
    try:
        config = ModelConfig(
            preset="marian",
            n_encoder_layers=_whole(where, options, "enc-depth"),
            n_decoder_layers=_whole(where, options, "dec-depth"),
            d_model=d_model,
            n_heads=_whole(where, options, "transformer-heads"),
            d_ff=d_ff,
            norm=NORMS[before, after[1:], top],
            activation=ACTIVATIONS[activation],
            # Marian scales embeddings only where it adds sinusoids to them.
            positions=Positions.learned if is_learned else Positions.sinusoidal_tensor2tensor,
            max_positions=rows[0] if rows else ModelConfig.max_positions,
            scale_embeddings=not is_learned,
            tie_embeddings=tied.tying,
            norm_eps=EPSILON,
            decoder_start=DecoderStart.zero,
        )
    except ConfigError as error:
        raise CheckpointError(f"{where}: its options make no model ({error})") from error
    return config, tied, (sizes[0], sizes[1])


def _notes_of(options: dict[str, Any], config: ModelConfig, tokenizers: Tokenizers) -> list[str]:
    notes = []
    packed = tokenizers.source.packed
    if packed is not None and packed.whole:
        notes.append(f"a source line begins with the token of a language, as {packed.whole[0]}")
    if config.norm is Norm.pre:
        notes.append(
            "pre-LN: Marian's own search leaves out a norm of the decoder's self-attention, so that it finds other"
            " translations than its training and its scorer, and tfm, think likely"
        )
    if _trains_positions(options) and config.positions is not Positions.learned:
        notes.append("its options ask for trained positions; Marian computes them where the model has none")
    return notes


def _trains_positions(options: dict[str, Any]) -> bool:
    return any(options.get(f"transformer-train-position{name}") for name in ("s", "-embeddings"))


def _whole(where: Path, options: dict[str, Any], name: str) -> int:
    value = options[name]
    if type(value) is not int or value < 1:
        _unsupported(where, f"{name}={_shown(value)}: not a whole number from 1")
    return value


def _shown(value: object) -> str:
    return quoted(value) if isinstance(value, str) else quoted(str(value))[1:-1]


def _unsupported(where: Path, what: str) -> NoReturn:
    raise CheckpointError(f"{where}: {what}. tfm cannot express this model")


# ---- Items


def check_items(
    archive: Npz, config: ModelConfig, tied: Tied, sizes: tuple[int, int], *, omits_bias: bool
) -> dict[str, str]:
    """Marian's names of our parts. Raises CheckpointError unless the archive has just these items, in their shapes."""
    names: dict[str, str] = {}
    for part in part_names(config):
        name = their_name(part, config, tied)
        if part == "output_bias" and omits_bias:
            continue
        shape = their_shape(part, config, sizes)
        if part == "output" and not tied.output and LEGACY_OUTPUT in archive:
            name, shape = LEGACY_OUTPUT, shape[::-1]
        if name not in archive:
            archive.refuse(f"has no {quoted(name)}, which its options ask for")
        if (found := archive[name].shape) not in (shape, shape[1:] if shape[0] == 1 else shape):
            archive.refuse(f"{quoted(name)} is {list(found)}, but its options ask for {list(shape)}")
        names[part] = name
    left = sorted(archive.keys() - set(names.values()) - {OPTIONS})
    if any(name.endswith("QuantMultA") for name in left):
        archive.refuse("is quantized for Bergamot. Name the model that it was made from")
    if left:
        more = f" and {len(left) - 1} more" if len(left) > 1 else ""
        archive.refuse(f"has {quoted(left[0])}{more}, which no model of its options has")
    return names


def _fetch(archive: Npz, names: dict[str, str], source: Read, target: Read, config: ModelConfig, part: str) -> Tensor:
    """A part as ours: rows of the padding are appended."""
    side = source if part == "source_embedding" else target
    if part == "output_bias":
        bias_V = torch.from_numpy(archive.read(names[part])).flatten() if part in names else torch.zeros(side.size)
        return torch.cat([bias_V, bias_V.new_full((1,), PAD_BIAS)]) if side.is_padded else bias_V
    weight = torch.from_numpy(archive.read(names[part]))
    if is_transposed(part) or names[part] == LEGACY_OUTPUT:
        return weight.t().contiguous()
    if part in ("source_embedding", "target_embedding", "output"):
        return torch.cat([weight, weight.new_zeros(1, config.d_model)]) if side.is_padded else weight
    return weight if part.endswith("positions") else weight.flatten()


# ---- Files


@dataclass(frozen=True)
class _Files:
    model: Path
    vocabularies: tuple[Path, Path]
    segmenters: tuple[SegmenterFile, SegmenterFile] | None
    languages: tuple[str, str]
    notes: Sequence[str]


def found_files(path: Path, options: ReadOptions) -> _Files:
    """All files of the model at `path`. Raises CheckpointError where they are not clear."""
    folder = path if path.is_dir() else path.parent
    decoder = path if _is_decoder(path) else None
    if decoder is None and (beside := [file for file in _decoders(path) if file.is_file()]):
        decoder = beside[0]
    settings: dict[str, Any] = _settings(decoder) if decoder is not None else {}
    model = path if path.is_file() and decoder != path else _model_in(folder, settings)
    if _is_bin(model):
        raise CheckpointError(
            f"{model}: Marian's binary format, which is mostly of 8-bit weights. Name the .npz that it was made from"
        )
    languages = _languages(folder, options)
    vocabularies = _pair(options.vocabularies, "vocabularies") or _vocabularies(folder, settings)
    segmenters = None
    if given := _pair(options.segmenters, "segmenters"):
        segmenters = (SegmenterFile(given[0]), SegmenterFile(given[1]))
    elif vocabularies[0].suffix != SPM:
        segmenters = _segmenters(folder, languages)
    notes = []
    if settings:
        search = [f"{name} {settings[name]}" for name in ("beam-size", "normalize", "word-penalty") if name in settings]
        notes.append(f"{decoder.name if decoder else ''} searches with {', '.join(search)}")
    if segmenters is not None and segmenters[0].moses:
        notes.append("BPE codes of OPUS-MT: text is tokenized as Moses does, before and after")
    if segmenters is None and vocabularies[0].suffix != SPM:
        notes.append("nothing found that cuts text: a line must come in pieces of the vocabulary, with spaces between")
    return _Files(model, vocabularies, segmenters, languages, notes)


def _is_model(path: Path) -> bool:
    return path.is_file() and is_npz_with(path, OPTIONS)


def _is_bin(path: Path) -> bool:
    if path.suffix != ".bin" or not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(BIN)) == BIN


def _is_decoder(path: Path) -> bool:
    return path.name.endswith("decoder.yml") and path.is_file()


def _decoders(path: Path) -> list[Path]:
    """The files with settings of the search: beside the model, under its name or the usual one."""
    if not path.is_dir():
        return [path.with_name(f"{path.name}.decoder.yml"), path.with_name("decoder.yml")]
    return [path / "decoder.yml", *sorted(path.glob("*.decoder.yml"))]


def _settings(decoder: Path) -> dict[str, Any]:
    try:
        found = read_yaml(decoder)
    except ConfigError as error:
        raise CheckpointError(str(error)) from error
    if not isinstance(found, dict):
        raise CheckpointError(f"{decoder}: no list of settings, as Marian writes it")
    numbers = ("beam-size", "normalize", "word-penalty")
    return {name: value for name, value in found.items() if name not in numbers or isinstance(value, int | float)}


def _names(settings: dict[str, Any], key: str) -> list[str]:
    value = settings.get(key) or []
    return [Path(name).name for name in value if isinstance(name, str)] if isinstance(value, list) else []


def _model_in(folder: Path, settings: dict[str, Any]) -> Path:
    """The one model of a folder; of several, that which decoder.yml names."""
    found = sorted(file for file in [*folder.glob("*.npz"), *folder.glob("*.bin")] if _is_model(file) or _is_bin(file))
    named = [file for file in found if file.name in _names(settings, "models")]
    if len(named or found) != 1:
        what = f"several models ({', '.join(file.name for file in (named or found)[:3])})" if found else "no model"
        raise CheckpointError(f"{folder}: holds {what}. Name the .npz itself")
    return (named or found)[0]


def _pair(paths: Sequence[Path], what: str) -> tuple[Path, Path] | None:
    if len(paths) > 2:
        raise CheckpointError(f"{what}: {len(paths)} files. Name one, or that of the source and that of the target")
    return (paths[0], paths[-1]) if paths else None


def _vocabularies(folder: Path, settings: dict[str, Any]) -> tuple[Path, Path]:
    """The vocabularies named in decoder.yml, by file name as the folder may have moved; else files with such names."""
    if named := _names(settings, "vocabs"):
        paths = [folder / name for name in named]
        if missing := [path for path in paths if not path.is_file()]:
            raise CheckpointError(f"{missing[0]}: named in decoder.yml, but not there. Name it with --vocabulary")
        if len(paths) != 2:
            raise CheckpointError(f"{folder}: decoder.yml names {len(paths)} vocabularies, not one for each side")
        return paths[0], paths[1]
    found = [file for file in sorted(folder.iterdir()) if file.suffix in VOCABULARIES and "vocab" in file.name]
    sides = [[file for file in found if re.search(pattern, file.name)] for pattern in ("src|source", "trg|tgt|target")]
    if len(found) == 1:
        return found[0], found[0]
    if len(found) == 2 and all(len(side) == 1 for side in sides):
        return sides[0][0], sides[1][0]
    what = f"several vocabularies ({', '.join(file.name for file in found[:4])})" if found else "no vocabulary"
    raise CheckpointError(f"{folder}: holds {what}. Name them with --vocabulary: one, or source and target")


def _segmenters(folder: Path, languages: tuple[str, str]) -> tuple[SegmenterFile, SegmenterFile] | None:
    """The segmenters that OPUS-MT has beside its vocabulary."""
    for ending in (SPM, MOSES_CODES, CODES):
        source, target = folder / f"source{ending}", folder / f"target{ending}"
        if source.is_file() and target.is_file():
            if ending == MOSES_CODES and _UNKNOWN_LANGUAGE in languages:
                raise CheckpointError(
                    f"{source}: cuts text that was tokenized by the rules of its language, which nothing names. Name"
                    " both with --source-lang and --target-lang"
                )
            moses = languages if ending == MOSES_CODES else (None, None)
            return SegmenterFile(source, moses[0]), SegmenterFile(target, moses[1])
    return None


def _languages(folder: Path, options: ReadOptions) -> tuple[str, str]:
    """Source and target language: as given, as our own export wrote them, or as OPUS-MT calls its folders (en-de)."""
    found: Sequence[str | None] = (None, None)
    if (file := folder / EXPORT_FILE).is_file() and file.stat().st_size < MAX_YAML_BYTES:
        try:
            facts = json.loads(file.read_bytes())
            found = (str(facts["source_lang"]), str(facts["target_lang"]))
        except MALFORMED:
            pass
    elif match := re.fullmatch(r"(?:opus-mt-)?([a-z]{2,3})-([a-z]{2,3})", folder.absolute().name):
        found = match.groups()
    source, target = (
        given or other or _UNKNOWN_LANGUAGE
        for given, other in zip((options.source_lang, options.target_lang), found, strict=True)
    )
    try:
        checked = DataConfig(source_lang=source, target_lang=target)  # they become parts of file names
    except ConfigError as error:
        raise CheckpointError(f"{folder}: {error}") from error
    return checked.source_lang, checked.target_lang
