"""A vocabulary that the user has: SentencePiece models, used as they are instead of ones that are trained.

The pieces keep their ids, and the text is normalised as the model does it. What a model lacks is appended: programs
leave out the padding (SentencePiece), BOS (Marian), or the tags of this corpus.
"""

from collections.abc import Sequence
from pathlib import Path

import sentencepiece

from transformer_cli.config.data import DataConfig
from transformer_cli.data.lines import shown
from transformer_cli.data.packed_tokenizer import PackedTokenizer, Segmenter
from transformer_cli.data.tokenizer import UNK_SURFACE, Tokenizer, Tokenizers
from transformer_cli.errors import CheckpointError, ConfigError, DataError, EnvironmentFault
from transformer_cli.logs import LOGGER

_KEY = "data.tokenizer.model"
_OURS = (0, 1, 2, 3)  # <pad>, <unk>, <s> and </s> in models that tfm has trained


def own_tokenizers(config: DataConfig) -> Tokenizers | None:
    """The tokenizers of `data.tokenizer.model`; None where it is not set.

    Raises DataError for a file that is no such model.
    """
    files = [Path(name) for name in config.tokenizer.model_files]
    if not files:
        return None
    tags = config.all_tags
    found = [_tokenizer(file, tags if n == 0 else [], config.tokenizer.multiple_of) for n, file in enumerate(files)]
    for file, (tokenizer, appended) in zip(files, found, strict=True):
        more = f"; appended: {', '.join(appended)}" if appended else ""
        LOGGER.info("%s: %s, %s pieces%s", _KEY, shown(file), f"{len(tokenizer):,}", more)
    source, target = found[0][0], found[-1][0]
    if not config.trained.has_source:
        source = target
    return Tokenizers(source, target)


def check_tags_of(config: DataConfig, tokenizers: Tokenizers) -> None:
    """Raise ConfigError for a tag that a vocabulary which is there already does not have."""
    if missing := [tag for tag in config.all_tags if tag not in tokenizers.source.tags]:
        has = ", ".join(tokenizers.source.tags) or "none"
        raise ConfigError(
            f"data.tags: the model's vocabulary has no tag {missing[0]} (tags: {has}). Use one of its tags"
        )


def _tokenizer(file: Path, tags: Sequence[str], multiple_of: int) -> tuple[Tokenizer, list[str]]:
    """The tokenizer, and the pieces that it got beside those of its file."""
    content = _read(file)
    try:
        model = sentencepiece.SentencePieceProcessor(model_proto=content)
        pieces = [model.id_to_piece(i) for i in range(len(model))]
    except (RuntimeError, OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"{_KEY}={shown(file)}: not a SentencePiece model. Name one, as `spm_train` writes it"
        ) from error
    special = (model.pad_id(), model.unk_id(), model.bos_id(), model.eos_id())
    is_ours = special == _OURS and model.decode([1]) == UNK_SURFACE
    if is_ours and set(tags) == _control_symbols(model, pieces) and len(pieces) % multiple_of == 0:
        return Tokenizer(content), []
    packed_pieces = list(pieces)
    names = ("<pad>", "<unk>", "<s>", "</s>")
    pad, unk, bos, eos = (_id_of(*each, model, packed_pieces) for each in zip(names, special, strict=True))
    packed_pieces += [tag for tag in tags if tag not in packed_pieces]
    appended = packed_pieces[len(pieces) :]
    n_unused = -len(packed_pieces) % multiple_of
    if n_unused:
        packed_pieces += [f"<unused{number}>" for number in range(n_unused)]
        appended.append(f"{n_unused} unused")
    try:
        packed = PackedTokenizer(
            Segmenter.sentencepiece,
            packed_pieces,
            pad=pad,
            unk=unk,
            bos=bos,
            eos=eos,
            model=content,
            whole=tuple(tags),
            normalizes=is_ours,
        )
        return Tokenizer(packed.to_bytes()), appended
    except (ValueError, CheckpointError) as error:
        raise DataError(f"{_KEY}={shown(file)}: cannot be used ({error}). Train another") from error


def _read(file: Path) -> bytes:
    what = f"{_KEY}={shown(file)}"
    try:
        if file.is_dir():
            raise DataError(f"{what}: a folder. Name the SentencePiece model in it, a file")
        if not file.is_file():
            raise DataError(f"{what}: {'not a regular file' if file.exists() else 'no such file'}. Correct {_KEY}")
        content = file.read_bytes()
    except PermissionError:
        raise DataError(f"{what}: permission denied. Make it readable") from None
    except OSError as error:
        raise EnvironmentFault(f"{what}: cannot be read: {error.strerror or error}. Check the disk") from error
    if not content:
        raise DataError(f"{what}: is empty. Name a SentencePiece model")
    return content


def _control_symbols(model: sentencepiece.SentencePieceProcessor, pieces: Sequence[str]) -> set[str]:
    return {piece for i, piece in enumerate(pieces) if model.is_control(i) and i not in _OURS}


def _id_of(name: str, known: int, model: sentencepiece.SentencePieceProcessor, pieces: list[str]) -> int:
    """The id of a control token: the model's own, that of a symbol with its name, or that of one that is appended."""
    if known >= 0:
        return known
    for number in range(len(model)):
        # A user-defined symbol is a normal piece to the library, which only says that it is none of the other kinds.
        if pieces[number] == name and not (model.is_byte(number) or model.is_unused(number)):
            return number
    pieces.append(name)
    return len(pieces) - 1
