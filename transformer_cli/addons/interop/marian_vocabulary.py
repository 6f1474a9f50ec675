"""Marian's vocabularies: SentencePiece models, whose ids it uses, and lists of tokens with their ids in YAML.

There the end of a sentence and the unknown token are `</s>` and `<unk>`, 0 and 1 in what Marian makes itself. It has no
padding and starts its decoder with no token, so that our tokenizers get a padding appended, which they start with, too.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import sentencepiece

from transformer_cli.addons.interop.text import normalising, protobuf_messages
from transformer_cli.data.packed_tokenizer import PackedTokenizer, Segmenter
from transformer_cli.data.tokenizer import Tokenizer
from transformer_cli.errors import CheckpointError, ConfigError, EnvironmentFault, quoted
from transformer_cli.models.header import read_json

EOS, UNK, PAD, BOS = "</s>", "<unk>", "<pad>", "<s>"
SPM = ".spm"  # the ending by which Marian knows a SentencePiece model
# Endings of BPE codes: in OPUS-MT of text that Moses has tokenized, and ours of text as it is.
MOSES_CODES, CODES = ".bpe", ".codes"
_NEMATUS = {EOS: (0, "eos"), UNK: (1, "UNK")}  # names of its predecessor, at these ids
_MOST_BYTES = 200_000_000
_MOST_IDS = 10_000_000
_TAG = re.compile(r">>[^<>\s]+<<")
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)", re.DOTALL)
_ESCAPED = {
    **{"0": "\0", "a": "\a", "b": "\b", "t": "\t", "\t": "\t", "n": "\n", "v": "\v", "f": "\f", "r": "\r", "e": "\x1b"},
    **{" ": " ", '"': '"', "/": "/", "\\": "\\", "N": "\x85", "_": "\xa0", "L": "\u2028", "P": "\u2029"},
}


# ---- Reading


@dataclass(frozen=True)
class Read:
    """A vocabulary as our tokenizer; `size` is how many entries Marian has, to which a padding may be appended."""

    tokenizer: Tokenizer
    size: int

    @property
    def is_padded(self) -> bool:
        return len(self.tokenizer) > self.size


@dataclass(frozen=True)
class SegmenterFile:
    """SentencePiece model or BPE codes; `moses` is a language whose text is tokenized before."""

    path: Path
    moses: str | None = None


def read_vocabulary(path: Path, size: int, segmenter: SegmenterFile | None) -> Read:
    """The vocabulary `path` of an embedding with `size` rows. Raises CheckpointError."""
    content = content_of(path)
    if path.suffix == SPM:
        if segmenter is not None:
            _refuse(segmenter.path, f"is given to cut text, which {path.name} does by itself. Leave it out")
        return _from_sentencepiece(path, content, size)
    pieces, eos, unk = _numbered(path, content, size)
    kind, model, moses = Segmenter.words, b"", None
    if segmenter is not None:
        model, moses = content_of(segmenter.path), segmenter.moses
        kind = Segmenter.sentencepiece if is_sentencepiece(model) else Segmenter.subword_nmt
    whole = [piece for piece in pieces if _TAG.fullmatch(piece)]
    pad = pieces.index(PAD) if PAD in pieces else len(pieces)
    bos = pieces.index(BOS) if BOS in pieces and pad < len(pieces) else pad
    return _packed(
        path, size, segmenter=kind, pieces=pieces, pad=pad, unk=unk, bos=bos, eos=eos, model=model, whole=whole,
        moses=moses,
    )  # fmt: skip


def _from_sentencepiece(path: Path, content: bytes, size: int) -> Read:
    if not is_sentencepiece(content):
        _refuse(path, "is no SentencePiece model, as its ending says")
    model: Any = sentencepiece.SentencePieceProcessor(model_proto=content)
    if len(model) != size:
        _refuse(path, f"has {len(model):,} pieces, but the model's embedding {size:,} rows. Name its own vocabulary")
    if min(model.eos_id(), model.unk_id()) < 0:
        _refuse(path, "has no </s> or no <unk>, which Marian needs")
    pieces = [model.id_to_piece(i) for i in range(len(model))]
    pad = model.pad_id() if model.pad_id() >= 0 else len(pieces)
    bos = model.bos_id() if model.bos_id() >= 0 else pad
    return _packed(
        path, size, segmenter=Segmenter.sentencepiece, pieces=pieces, pad=pad, unk=model.unk_id(), bos=bos,
        eos=model.eos_id(), model=content,
    )  # fmt: skip


def _packed(path: Path, size: int, *, pieces: list[str], pad: int, **options: Any) -> Read:
    if pad == len(pieces):
        pieces = [*pieces, _unused(PAD, pieces)]
    try:
        return Read(Tokenizer(PackedTokenizer(pieces=pieces, pad=pad, **options).to_bytes()), size)
    except (CheckpointError, ValueError) as error:
        _refuse(path, f"cannot be used ({quoted(str(error))})")


def _unused(name: str, pieces: Sequence[str]) -> str:
    taken = set(pieces)
    while name in taken:
        name = f"<{name}>"
    return name


def is_sentencepiece(content: bytes) -> bool:
    try:
        sentencepiece.SentencePieceProcessor(model_proto=content)
    except (RuntimeError, OSError):
        return False
    return bool(content)


def content_of(path: Path) -> bytes:
    if not path.is_file():  # opening a pipe would wait for ever
        _refuse(path, "not a file" if path.exists() else "no such file")
    try:
        if path.stat().st_size > _MOST_BYTES:
            _refuse(path, f"larger than a vocabulary ({path.stat().st_size:,} bytes)")
        return path.read_bytes()
    except OSError as error:
        raise EnvironmentFault(f"{path}: {error.strerror}. Check the disk and the file's permissions") from error


def _numbered(path: Path, content: bytes, size: int) -> tuple[list[str], int, int]:
    """The tokens by their ids, and the ids of EOS and of the unknown token.

    An id without a token, which no text has, gets a name of its own; tokens beyond the embedding are left out, as
    Marian does where it was trained with fewer than its file has.
    """
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{path}: not UTF-8 text. Name a vocabulary (.yml, .spm)") from error
    if path.suffix in (".yml", ".yaml"):
        ids = _parse_yaml(path, text)
    elif path.suffix == ".json":
        ids = _parse_json(path, text)
    else:
        ids = {line: i for i, line in enumerate(text.removesuffix("\n").split("\n"))}
    tokens = {number: token for token, number in ids.items() if number < size}
    special = {}
    for name, (nematus_id, nematus) in _NEMATUS.items():
        if tokens.get(nematus_id) in (None, "", nematus):
            special[name] = nematus_id
            tokens[nematus_id] = name
        elif name in ids and ids[name] < size:
            special[name] = ids[name]
        else:
            _refuse(path, f"has no {name}")
    pieces = [tokens.get(i) or f"<unused {i}>" for i in range(size)]
    return pieces, special[EOS], special[UNK]


def _parse_json(path: Path, text: str) -> dict[str, int]:
    found = read_json(text.encode(), path)
    if not isinstance(found, dict) or not all(type(i) is int and 0 <= i < _MOST_IDS for i in found.values()):
        _refuse(path, "not a list of tokens with their ids")
    return found


def _parse_yaml(path: Path, text: str) -> dict[str, int]:
    """One `token: id` in a line, as Marian writes it.

    Not by a YAML library, to which `null`, `yes` and `1.0` are no texts.
    """
    ids: dict[str, int] = {}
    token: str | None = None
    for number, line in enumerate(re.split(r"\r?\n", text), 1):
        if not line.strip() or line.startswith("#") or line.rstrip() in ("---", "..."):
            continue
        place = f"{path}:{number}"
        if line.startswith("? "):  # of a long token, whose id is in the next line
            token = line[2:]
            continue
        if token is not None and line.startswith(": "):
            written = line[2:]
        elif token is None and ":" in line:
            token, written = line.rsplit(":", 1)
        else:
            raise CheckpointError(f"{place}: not `token: id` ({quoted(line)}). Name a vocabulary of Marian")
        if not re.fullmatch(r"\d{1,9}", written.strip(), re.ASCII) or int(written) >= _MOST_IDS:
            raise CheckpointError(f"{place}: {quoted(written.strip())} is no id. Name a vocabulary of Marian")
        token = _unquoted(token.strip(" "), place)
        if token in ids:
            raise CheckpointError(f"{place}: {quoted(token)} stands twice. Name a vocabulary of Marian")
        ids[token], token = int(written), None
    if len(set(ids.values())) < len(ids):
        _refuse(path, "gives one id to two tokens")
    return ids


def _unquoted(token: str, place: str) -> str:
    """The text of a key of YAML."""
    if len(token) > 1 and token[0] == token[-1] == '"':

        def unescaped(match: re.Match[str]) -> str:
            code = match[1]
            if len(code) > 1:
                return chr(int(code[1:], 16))
            return _ESCAPED[code]

        try:
            return _ESCAPE.sub(unescaped, token[1:-1])
        except (KeyError, ValueError, OverflowError) as error:
            raise CheckpointError(f"{place}: {quoted(token)} has an escape that is none of YAML. Mend it") from error
    if len(token) > 1 and token[0] == token[-1] == "'":
        return token[1:-1].replace("''", "'")
    return token


# ---- Writing


@dataclass(frozen=True)
class Written:
    """`order` are our ids in Marian's order; `name` is that of the vocabulary, among `files`."""

    name: str
    files: dict[str, bytes]
    order: list[int]


def written(tokenizer: Tokenizer, *, name: str, segmenter: str, hides_pad: bool) -> Written:
    """A vocabulary for Marian, whose files are called after `name`, and what cuts text for it after `segmenter`.

    With `hides_pad` the padding is never predicted, and can be left out. Raises ConfigError for a tokenizer that
    Marian's files cannot express.
    """
    packed = tokenizer.packed
    if packed is None:
        return _sentencepiece_with_its_ids(tokenizer, f"{name}{SPM}")
    if not packed.adds_eos:
        raise ConfigError(
            "tokenizer: sentences end without </s>, which Marian always adds. `tfm translate` runs this model as it is"
        )
    if packed.prefix or packed.languages:
        raise ConfigError(
            f"tokenizer: every sentence begins with {quoted([*packed.prefix, *packed.languages][0])}, which Marian does"
            " not add."
            " `tfm translate` runs this model as it is"
        )
    if packed.lowercase or (packed.moses is not None and packed.segmenter is not Segmenter.subword_nmt):
        raise ConfigError(
            "tokenizer: changes text before it is cut, which no file of Marian does. `tfm translate` runs this model as"
            " it is"
        )
    order = [i for i in range(len(packed)) if i != packed.pad or not hides_pad or packed.pad == packed.eos]
    if packed.segmenter is Segmenter.sentencepiece and [packed.pieces[i] for i in order] == _pieces_of(packed.model):
        return Written(f"{name}{SPM}", {f"{name}{SPM}": normalising(tokenizer)}, order)
    order = [packed.eos, packed.unk, *(i for i in order if i not in (packed.eos, packed.unk))]
    pieces = [EOS, UNK, *(packed.pieces[i] for i in order[2:])]
    if len(set(pieces)) < len(pieces):
        raise ConfigError("tokenizer: has two entries of one name, which Marian cannot tell apart")
    files = {f"{name}.yml": "".join(f"{_quoted(piece)}: {i}\n" for i, piece in enumerate(pieces)).encode()}
    if packed.segmenter is not Segmenter.words:
        kind = SPM if packed.segmenter is Segmenter.sentencepiece else CODES if packed.moses is None else MOSES_CODES
        files[f"{segmenter}{kind}"] = normalising(tokenizer) if kind == SPM else packed.model
    return Written(f"{name}.yml", files, order)


def _pieces_of(model: bytes) -> list[str]:
    processor: Any = sentencepiece.SentencePieceProcessor(model_proto=model)
    return [processor.id_to_piece(i) for i in range(len(processor))]


def _sentencepiece_with_its_ids(tokenizer: Tokenizer, name: str) -> Written:
    """Our SentencePiece model with its pieces in Marian's order: a segmentation depends on their scores alone.

    Padding and BOS stay, as entries that no text has: a softmax without them would be another one.
    """
    first = [tokenizer.eos_id, tokenizer.unk_id]
    order = [*first, *(i for i in range(len(tokenizer)) if i not in first)]
    model = protobuf_messages().ModelProto.FromString(normalising(tokenizer))
    pieces = [type(model.pieces[i]).FromString(model.pieces[i].SerializeToString()) for i in order]
    del model.pieces[:]
    model.pieces.extend(pieces)
    for kind in ("eos", "unk", "pad", "bos"):
        setattr(model.trainer_spec, f"{kind}_id", order.index(getattr(tokenizer, f"{kind}_id")))
    return Written(name, {name: model.SerializeToString(deterministic=True)}, order)


def _quoted(token: str) -> str:
    """The token as a key of YAML, in double quotes."""

    def escaped(character: str) -> str:
        if character in '"\\':
            return f"\\{character}"
        if character.isprintable() and character != "\ufeff":
            return character
        code = ord(character)
        return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"

    return '"' + "".join(map(escaped, token)) + '"'


def _refuse(path: Path, what: str) -> NoReturn:
    raise CheckpointError(f"{path}: {what}")
