"""A vocabulary that another program has numbered, over a segmenter that knows only pieces; packed into bytes.

Models of Marian, fairseq, OpenNMT-py and Hugging Face come with a list of pieces whose order is that of their
embeddings, and with a segmenter of their own: a SentencePiece model, whose ids are other ones or has another set of
pieces, BPE codes of subword-nmt, or none. `PackedTokenizer` joins the two, and has the methods of SentencePiece's
processor that `Tokenizer` uses. Its bytes stand where a SentencePiece model stands: in model files, caches and exports.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from enum import Enum
from functools import cached_property
from typing import Any

import sentencepiece

from transformer_cli.data.moses import MosesText
from transformer_cli.data.subword_nmt import SubwordNmt
from transformer_cli.errors import CheckpointError, quoted

MAGIC = b"tfm tokenizer 1\n"
_SPACE = "\u2581"  # SentencePiece's sign for a space
_Sample = Callable[[str], list[str]]
_UNK_SURFACE = "\u2047"


class Segmenter(Enum):
    sentencepiece = "sentencepiece"
    subword_nmt = "subword_nmt"  # BPE codes; pieces within a word end with @@
    words = "words"  # text that is already in pieces, with spaces between them


@dataclass(frozen=True)
class PackedTokenizer:
    """`model` holds the SentencePiece model or the BPE codes. Ids are indices of `pieces`.

    `bos` is what the decoder starts with: in some models EOS or the padding. `whole` are pieces that are looked up
    whole where a line begins with them, and never cut: language tags. `prefix` are pieces that every sentence begins
    with; no text shows these, nor those that are `hidden`. With `codes` a line may begin with one `>>xxx<<`: one token,
    known or not, as for MarianTokenizer of Hugging Face. Sources of OpenNMT-py have no EOS: `adds_eos`. With
    `normalizes` text is normalised as for our own tokenizers, else only the segmenter does it. With `respaced`
    pieces are divided again at white space of any kind, as in fairseq. `moses` is a language whose text is tokenized
    before, and detokenized after, by sacremoses. `languages` are the pieces that name one: a source begins with that of
    its language, and a translation with that of its own. Which they are, tags say (`Tokenizer`). With `language_last`
    a source ends with EOS and its language, also where this is the `prefix`.
    """

    segmenter: Segmenter
    pieces: Sequence[str]
    pad: int
    unk: int
    bos: int
    eos: int
    model: bytes = field(default=b"", repr=False)
    whole: Sequence[str] = ()
    prefix: Sequence[str] = ()
    hidden: Sequence[str] = ()
    codes: bool = False
    adds_eos: bool = True
    normalizes: bool = False
    respaced: bool = False
    moses: str | None = None
    lowercase: bool = False
    languages: Sequence[str] = ()
    language_last: bool = False

    def __post_init__(self) -> None:
        special = (self.pad, self.unk, self.bos, self.eos)
        if not all(type(i) is int and 0 <= i < len(self.pieces) for i in special):
            raise ValueError(f"special ids {special} of {len(self.pieces)} pieces")
        if self.segmenter is Segmenter.sentencepiece and not self.model:
            raise ValueError("an empty SentencePiece model")
        if self.eos in (self.pad, self.unk):
            raise ValueError("EOS has the id of the padding or of <unk>")
        if not all(isinstance(piece, str) for piece in [*self.pieces, *self._named]):
            raise ValueError("a piece is no text")
        if missing := sorted({*self._named} - self.ids.keys()):
            raise ValueError(f"the vocabulary has no {missing[0]!r}")

    @property
    def _named(self) -> list[str]:
        """The pieces that have a part of their own."""
        return [*self.whole, *self.prefix, *self.hidden, *self.languages]

    def to_bytes(self) -> bytes:
        header = asdict(self) | {"segmenter": self.segmenter.name}
        del header["model"]
        for name in ("languages", "language_last"):
            if not header[name]:  # as before there were any: the bytes are what a vocabulary is known by
                del header[name]
        text = json.dumps(header, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode()
        return MAGIC + len(text).to_bytes(8, "little") + text + self.model

    @classmethod
    def from_bytes(cls, content: bytes) -> "PackedTokenizer":
        """Raises CheckpointError for bytes that `to_bytes` did not write."""
        start = len(MAGIC) + 8
        end = start + int.from_bytes(content[len(MAGIC) : start], "little")
        try:
            header: dict[str, Any] = json.loads(content[start:end])
            found = cls(**header | {"segmenter": Segmenter[header["segmenter"]]}, model=content[end:])
            len(found)  # a forged model fails here
        except (KeyError, TypeError, ValueError, RuntimeError, OSError, RecursionError) as error:
            raise CheckpointError(
                f"tokenizer: damaged ({quoted(f'{type(error).__name__}: {error}')}). Import the model again"
            ) from error
        return found

    @cached_property
    def ids(self) -> dict[str, int]:
        """The id of each piece; of a piece that occurs twice, the first."""
        return {piece: number for number, piece in reversed(list(enumerate(self.pieces)))}

    @cached_property
    def _sentencepiece(self) -> Any:
        return sentencepiece.SentencePieceProcessor(model_proto=self.model)

    @cached_property
    def _subword_nmt(self) -> SubwordNmt:
        return SubwordNmt(self.model.decode())

    @cached_property
    def _moses_text(self) -> MosesText | None:
        return None if self.moses is None else MosesText(self.moses)

    @cached_property
    def _control(self) -> frozenset[int]:
        """What no text shows."""
        return frozenset(
            [self.pad, self.bos, self.eos]
            + [self.ids[piece] for piece in (*self.prefix, *self.hidden, *self.languages)]
        )

    def __len__(self) -> int:
        if self.segmenter is Segmenter.sentencepiece:
            len(self._sentencepiece)
        elif self.segmenter is Segmenter.subword_nmt:
            _ = self._subword_nmt
        return len(self.pieces)

    def pad_id(self) -> int:
        return self.pad

    def unk_id(self) -> int:
        return self.unk

    def bos_id(self) -> int:
        return self.bos

    def eos_id(self) -> int:
        return self.eos

    def id_to_piece(self, number: int) -> str:
        return self.pieces[number]

    def is_byte(self, number: int) -> bool:
        if self.segmenter is not Segmenter.sentencepiece:
            return False
        own = self._sentencepiece.piece_to_id(self.pieces[number])
        return own != self._sentencepiece.unk_id() and bool(self._sentencepiece.is_byte(own))

    def encode(self, text: str | list[str], *, num_threads: int | None = None, sample: _Sample | None = None) -> Any:
        """Ids of a text, or of each of a list; `sample` cuts it into other pieces than SentencePiece's usual ones."""
        texts = [text] if isinstance(text, str) else text
        split = [self._split(line) for line in texts]
        found = [
            [self.ids.get(piece, self.unk) for piece in self._whole_line(tags, pieces)] if tags or pieces else []
            for (tags, _), pieces in zip(
                split, self._segment([rest for _, rest in split], num_threads, sample), strict=True
            )
        ]
        return found[0] if isinstance(text, str) else found

    def _whole_line(self, tags: list[str], pieces: list[str]) -> list[str]:
        if self.language_last and self.prefix:
            return [*tags, *pieces, self.pieces[self.eos], *self.prefix]
        return [*self.prefix, *tags, *pieces]

    def decode(self, ids: Any) -> Any:
        """The text of a list of ids, or of each list of a list of them."""
        if ids and isinstance(ids[0], list):
            return [self._decode(one) for one in ids]
        return self._decode(ids)

    def _split(self, line: str) -> tuple[list[str], str]:
        """The tokens at the beginning of a line that are looked up whole, and what follows them."""
        tags: list[str] = []
        if self.codes:
            end = line.find("<<") + 2 if line.startswith(">>") and "<<" in line else 0
            return [line[:end]] if end else [], line[end:]
        while self.whole and (first := line.split(" ", 1))[0] in self._whole:
            tags.append(first[0])
            line = first[1] if len(first) == 2 else ""
        return tags, line

    @cached_property
    def _whole(self) -> frozenset[str]:
        return frozenset(self.whole)

    def _segment(self, texts: list[str], num_threads: int | None, sample: _Sample | None) -> list[list[str]]:
        if self.lowercase:
            texts = [text.lower() for text in texts]
        if self._moses_text is not None:
            texts = [self._moses_text.tokenized(text) for text in texts]
        found = self._cut(texts, num_threads, sample)
        return [" ".join(pieces).split() for pieces in found] if self.respaced else found

    def _cut(self, texts: list[str], num_threads: int | None, sample: _Sample | None) -> list[list[str]]:
        if sample is not None:
            return [sample(text) for text in texts]
        if self.segmenter is Segmenter.sentencepiece:
            found: list[list[str]] = self._sentencepiece.encode(texts, out_type=str, num_threads=num_threads)
            return found
        if self.segmenter is Segmenter.subword_nmt:
            return [self._subword_nmt.segment(text) for text in texts]
        return [text.split() for text in texts]

    def _decode(self, ids: Sequence[int]) -> str:
        pieces = [_UNK_SURFACE if i == self.unk else self.pieces[i] for i in ids if i not in self._control]
        if self.segmenter is Segmenter.sentencepiece:
            text: str = self._sentencepiece.decode_pieces(pieces).replace(_SPACE, " ")
        else:
            text = " ".join(pieces)
            if self.segmenter is Segmenter.subword_nmt:
                text = SubwordNmt.joined(text)
        return text if self._moses_text is None else self._moses_text.detokenized(text)


def is_code(piece: str) -> bool:
    """Whether it is written as the language codes of OPUS-MT, which MarianTokenizer takes off a text by itself."""
    return piece.startswith(">>") and piece.endswith("<<") and " " not in piece


def is_packed(content: bytes) -> bool:
    return content.startswith(MAGIC)
