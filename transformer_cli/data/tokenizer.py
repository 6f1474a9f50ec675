"""Text to ids and back: SentencePiece models, trained on the training text and carried as bytes.

Normalisation is ours (`data.normalization`) and keeps the letters of the text. SentencePiece's usual `nmt_nfkc` would
rewrite `½`, `m²`, `…` and full-width letters and drop the joiners of Persian and of emoji, and a model could never
write them again. What only reads text may have it so, and without capitals: `fold_case`, a rule in the model's bytes.
"""

import copy
import hashlib
import io
import math
import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain
from typing import Any

import sentencepiece

from transformer_cli.config.data import BYTE_FALLBACK_FROM, SMALLEST_VOCABULARY, TokenizerConfig
from transformer_cli.config.model import Vocabulary
from transformer_cli.config.tags import source_tag, target_tag
from transformer_cli.data.normalization import Spelling, normalize, spelling_of
from transformer_cli.data.packed_tokenizer import PackedTokenizer, Segmenter, is_code, is_packed
from transformer_cli.data.sentencepiece_model import SPACE
from transformer_cli.data.subword_sampling import SubwordSampler
from transformer_cli.data.tags import split_tags, with_tags
from transformer_cli.errors import CheckpointError, ConfigError, DataError

# Everything that some program takes for the end of a line. Byte fallback can produce each of them.
_LINE_ENDS = dict.fromkeys(map(ord, "\n\v\f\r\x1c\x1d\x1e\x85\u2028\u2029"), " ")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
FEW_LINES = 16  # that are encoded before SentencePiece would have started threads for a list
# While training, SentencePiece skips lines with a mark of its own in them or of more than a few kB, and the characters
# of text that resembles a control token, all without a message.
_MARKS = dict.fromkeys(map(ord, "\0\u2581\u2585"), " ")
_CONTROL_TOKENS = ("<pad>", "<unk>", "<s>", "</s>")
UNK_SURFACE = "\u2047"
_LONGEST_PART = 4000  # characters
_COUNTED_LINES = 100_000  # whose characters are counted for vocab_size=auto


class Tokenizer:
    """One SentencePiece model, or a packed tokenizer. Raises CheckpointError for bytes that are neither."""

    def __init__(self, model_bytes: bytes) -> None:
        self.model_bytes = model_bytes
        self.sha256 = hashlib.sha256(model_bytes).hexdigest()
        self.packed = PackedTokenizer.from_bytes(model_bytes) if is_packed(model_bytes) else None
        self._model: Any = None if self.packed is None else replace(self.packed, whole=())  # tags are found here
        try:
            if self._model is None:
                self._model = sentencepiece.SentencePieceProcessor(model_proto=model_bytes)
            pieces = self.pieces(range(len(self._model)))  # a forged model can hold what is no text
        except (RuntimeError, OSError, UnicodeDecodeError) as error:
            raise CheckpointError("tokenizer: not a SentencePiece model. Use one trained by tfm") from error
        self.pad_id: int = self._model.pad_id()
        self.unk_id: int = self._model.unk_id()
        self.bos_id: int = self._model.bos_id()
        self.eos_id: int = self._model.eos_id()
        special = {self.pad_id, self.unk_id, self.bos_id, self.eos_id}
        if self.packed is None and (min(special) < 0 or len(special) < 4):
            raise CheckpointError("tokenizer: has no id for <pad>, <unk>, <s> or </s>. Use one trained by tfm")
        # What stands for a character that is no piece: <unk>, or the bytes of byte fallback.
        in_bytes = (i for i, piece in enumerate(pieces) if piece.startswith("<0x") and self._model.is_byte(i))
        self.unknown_ids = frozenset([self.unk_id, *in_bytes])
        # Other models of SentencePiece have characters for what is in no longer piece, ▁ at least.
        self.has_words_only = self.packed is None and all(len(piece) > 1 for piece in pieces)
        # Codes of the languages whose token is a part of every source and of every translation, and the ids of these.
        self.languages: dict[str, int] = {}
        if self.packed is not None:
            self.languages = {piece.strip("_"): self.packed.ids[piece] for piece in self.packed.languages}
        self._asking = {target_tag(code): i for code, i in self.languages.items()}
        self.language_last = self.packed is not None and self.packed.language_last
        self._tags = self._find_tags(pieces)
        has_codes = self.packed is not None and self.packed.codes  # which it finds and shows by itself
        self._split_off = {tag: i for tag, i in self._tags.items() if not (has_codes and is_code(tag))}
        self.tags = tuple(self._tags)  # tokens that are looked up whole at the beginning of a line
        self.tag_ids = frozenset([*self.prefix_ids, *self._tags.values()])  # what stands before the text of a line

    def _find_tags(self, pieces: Sequence[str]) -> dict[str, int]:
        """The id of each tag: of SentencePiece a control symbol, which no text is cut into."""
        if self.packed is not None:
            naming = {source_tag(code): i for code, i in self.languages.items()}
            return {tag: self.packed.ids[tag] for tag in self.packed.whole} | self._asking | naming
        special = (self.pad_id, self.unk_id, self.bos_id, self.eos_id)
        controls = (i for i in range(len(pieces)) if i not in special and self._model.is_control(i))
        return {pieces[i]: i for i in controls}

    def without_tags(self) -> "Tokenizer":
        """The same vocabulary for text in which tags are nothing special, as translations are."""
        if not self.tags:
            return self
        plain = copy.copy(self)
        plain.tags, plain.language_last = (), False
        plain.tag_ids = frozenset([*self.prefix_ids, *self.languages.values()])
        return plain

    def __len__(self) -> int:
        return len(self._model)

    def encode(
        self, lines: Sequence[str], *, n_threads: int | None = None, as_written: bool = False
    ) -> list[list[int]]:
        """Ids of each line, without BOS and EOS: none for white space alone; a written `</s>` is plain text.

        Typographic marks that the vocabulary lacks are read as those it has, unless the text is to be taken
        `as_written`, as that of training.

        Each tag that a line begins with is one id, whatever the text behind it; of those of OPUS-MT, the first.
        SentencePiece uses as many threads as there are cores, unless `n_threads` says less.
        """
        known = tuple(self._split_off) if self.tags else ()
        split = [split_tags(self.normalized(line, as_written=as_written), known) for line in lines]
        texts = [text for _, text in split]
        ids: list[list[int]]
        if len(texts) <= FEW_LINES and self.sentencepiece is not None:
            ids = [self._model.encode(text) for text in texts]  # a list starts a thread, even with num_threads=1
        else:
            ids = self._model.encode(texts, num_threads=n_threads)
        has_more = self.language_last and self.languages
        return [self.behind(tags, one) if tags or has_more else one for (tags, _), one in zip(split, ids, strict=True)]

    def behind(self, tags: Sequence[str], ids: Sequence[int]) -> list[int]:
        """The ids of a text with those of its tags; one that asks for a language is in the translation instead."""
        n, of_tags = len(self.prefix_ids), [self._tags[tag] for tag in tags if tag not in self._asking]
        if self.language_last and self.languages:
            return [*ids, self.eos_id, *of_tags] if ids or of_tags else []
        return [*ids[:n], *of_tags, *ids[n:]]

    def text_ids(self, ids: Sequence[int]) -> list[int]:
        """The ids of a line without tags, without what every line has around its text."""
        n = len(self.prefix_ids)
        return list(ids[: -1 - n] if self.language_last and n else ids[n:])

    def asked_ids(self, tags: Sequence[str]) -> tuple[int, ...]:
        """The token of the language that tags ask for, with which the translation begins.

        Raises ConfigError unless the tags name both languages, of a model whose tokens they are.
        """
        if not self.languages:
            return ()
        named, asked = self._sides(tags)
        for found, side, flag in ((asked, "into", "--to"), (named, "from", "--from")):
            if len(found) != 1:
                what = "several languages" if found else "no language"
                where, example = f" in the tags {' '.join(tags)}" if tags else "", " ".join(self._example())
                advice = f"Give {flag} LANGUAGE, or begin the line with tags"
                if tags:  # those of a line are all that it has: flags add none to them
                    advice = "Name both sides by --from and --to, or by the tags of a line"
                raise ConfigError(
                    f"{flag}: {what} to translate {side}{where}, and the model has {len(self.languages)} of them."
                    f" {advice}, as {example}"
                )
        return (self._asking[asked[0]],)

    def direction_of(self, tags: Sequence[str]) -> tuple[str, str]:
        """The codes of the languages that tags name, of the source and of the translation; empty where none does."""
        named, asked = self._sides(tags)
        return "".join(named[:1]).strip("<>"), "".join(asked[:1])[2:-1]

    def is_direction(self, tags: Sequence[str]) -> bool:
        """Whether tags name a language of the source, and one of the translation."""
        return all(len(side) == 1 for side in self._sides(tags))

    def _sides(self, tags: Sequence[str]) -> tuple[list[str], list[str]]:
        asked = [tag for tag in tags if tag in self._asking]
        return [tag for tag in tags if tag.strip("<>") in self.languages], asked

    def _example(self) -> list[str]:
        first, *_, last = list(self.languages) * 2
        return [source_tag(first), target_tag(last)]

    def ids_of_nothing(self) -> list[int]:
        """The ids of a line without tags and text: what every line has around its text."""
        return [self.eos_id, *self.prefix_ids] if self.language_last and self.prefix_ids else [*self.prefix_ids]

    def n_tags(self, ids: Sequence[int]) -> int:
        """How many tokens stand before the text of a line."""
        return next((n for n, i in enumerate(ids) if i not in self.tag_ids), len(ids)) if self.tag_ids else 0

    @property
    def normalizes(self) -> bool:
        """Whether text is normalised before the segmenter gets it."""
        return self.packed is None or self.packed.normalizes

    def normalized(self, line: str, *, as_written: bool = False) -> str:
        """A line as the segmenter gets it."""
        if self.normalizes:
            return (self._as_written if as_written else self._reading)(normalize(line))
        line = _LONE_SURROGATE.sub("\ufffd", line)
        # SentencePiece removes spaces beside a space, but not beside its own sign for one.
        return (line if self.sentencepiece is None else line.replace(SPACE, " ")).strip()

    @cached_property
    def alphabet(self) -> frozenset[str]:
        """The characters of its pieces."""
        special = {self.pad_id, self.bos_id, self.eos_id, *self.prefix_ids, *self._tags.values()} | self.unknown_ids
        pieces = self.pieces(i for i in range(len(self)) if i not in special)
        return frozenset("".join(pieces).replace(SPACE, " "))

    @cached_property
    def _as_written(self) -> Spelling:
        return Spelling(self.alphabet, respells=len(self.unknown_ids) == 1)  # bytes can hold any letter

    @cached_property
    def _reading(self) -> Spelling:
        return Spelling(self.alphabet, reads=True)

    def sample(self, sentences: Sequence[Sequence[int]], seeds: Sequence[int], *, alpha: float) -> list[list[int]]:
        """Other pieces of the same text, drawn with a seed for each sentence; no BOS or EOS, in or out.

        What `alpha` means to bpe and to unigram, `SubwordSampler` says. A sentence with something unknown in it stays
        as it is: its text is lost. Tags stay, too. Raises ConfigError where it is not SentencePiece that segments.
        """
        if self._sampler is None:
            raise ConfigError(
                f"data.subword_dropout={alpha}: the model's tokenizer is not SentencePiece, which samples. Leave it out"
            )
        n_tags = [self.n_tags(ids) for ids in sentences]
        texts: list[str] = self._model.decode([list(ids[n:]) for ids, n in zip(sentences, n_tags, strict=True)])
        drawn: list[list[int]] = []
        for text, seed in zip(texts, seeds, strict=True):
            cut = partial(self._sampler.pieces, alpha=alpha, draw=random.Random(seed).random)
            if self.packed is None:
                drawn.append(self._model.piece_to_id(cut(text)))
            else:
                drawn.append(self.text_ids(self._model.encode(text, sample=cut)))
        # Text that does not survive decoding, as a literal ▁ of SentencePiece's own, keeps its pieces, too.
        resampled: list[str] = self._model.decode(drawn)
        return [
            [*old[:n], *new] if old_text == new_text and self.unk_id not in old else list(old)
            for old, n, new, old_text, new_text in zip(sentences, n_tags, drawn, texts, resampled, strict=True)
        ]

    @cached_property
    def _sampler(self) -> SubwordSampler | None:
        return None if self.sentencepiece is None else SubwordSampler(self.sentencepiece)

    def decode(self, ids: Sequence[int]) -> str:
        """One line of text whatever the ids: padding, BOS and EOS are left out, line ends become spaces.

        Tags are shown where they can stand, at the beginning, and only there; those of OPUS-MT wherever they are.
        """
        ids, tags = [int(i) for i in ids], []
        if self._split_off:
            names = {number: tag for tag, number in self._split_off.items() if tag not in self._asking}
            tags = [names[i] for i in ids[: self.n_tags(ids)] if i in names and self.tags]
            ids = [i for i in ids if i not in names]
        try:
            text: str = self._model.decode(ids)
        except UnicodeDecodeError as error:  # also a forged model's way to write <unk>, or to undo its normalisation
            raise CheckpointError("tokenizer: writes what is no text. Use one trained by tfm") from error
        return " ".join([*tags, as_one_line(text)]).strip(" ")

    def pieces(self, ids: Iterable[int]) -> list[str]:
        return [self._model.id_to_piece(int(i)) for i in ids]

    @property
    def sentencepiece(self) -> bytes | None:
        """The SentencePiece model that segments text; None where something else does."""
        if self.packed is None:
            return self.model_bytes
        return self.packed.model if self.packed.segmenter is Segmenter.sentencepiece else None

    @property
    def end_ids(self) -> list[int]:
        """What every sentence ends with: EOS, but for the sources of OpenNMT-py, and those that have it already."""
        return [] if self.language_last or (self.packed is not None and not self.packed.adds_eos) else [self.eos_id]

    @property
    def prefix_ids(self) -> tuple[int, ...]:
        """What every sentence of this tokenizer begins with: the language tag of a multilingual model."""
        return () if self.packed is None else tuple(self.packed.ids[piece] for piece in self.packed.prefix)


def as_one_line(text: str) -> str:
    """A text in which nothing ends a line, without spaces around it."""
    return text.translate(_LINE_ENDS).strip(" ")


@dataclass(frozen=True)
class Tokenizers:
    """The tokenizers of the two languages; the same one twice when the vocabulary is joint.

    A classifier predicts one of `labels` instead of text. Tags are for sources: the target's are nothing special.
    """

    source: Tokenizer
    target: Tokenizer
    labels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "target", self.target.without_tags())

    @property
    def n_outputs(self) -> int:
        """How many tokens, or classes, a model chooses from."""
        return len(self.labels) or len(self.target)

    @property
    def vocabularies(self) -> tuple[Vocabulary, Vocabulary]:
        """What a model is built for, of the source and of the target."""
        source, target = self.source, self.target
        return (
            Vocabulary(len(source), source.pad_id, eos_id=source.eos_id),
            Vocabulary(self.n_outputs, target.pad_id, bos_id=target.bos_id),
        )

    @property
    def joint(self) -> bool:
        return self.source.sha256 == self.target.sha256

    def in_direction(self, source: str, target: str) -> "Tokenizers":
        """Tokenizers of one direction: their tokens of languages are put there without tags."""
        packed = self.source.packed
        assert packed is not None, "of a tokenizer with languages"
        pieces = {code: packed.pieces[i] for code, i in self.source.languages.items()}
        hidden = [*packed.hidden, *packed.languages]
        plain = replace(packed, languages=(), hidden=hidden)
        of_source = replace(plain, prefix=[pieces[source]])
        of_target = replace(plain, prefix=[pieces[target]], language_last=False)
        return Tokenizers(Tokenizer(of_source.to_bytes()), Tokenizer(of_target.to_bytes()))

    def first_ids(self, tags: Sequence[str]) -> tuple[int, ...]:
        """What the translation of a line with these tags begins with: a token of its language, of some models."""
        return self.source.asked_ids(tags) or self.target.prefix_ids

    def encode_targets(
        self, sources: Sequence[str], targets: Sequence[str], *, n_threads: int | None = None, as_written: bool = False
    ) -> list[list[int]]:
        """Ids of each target, as `Tokenizer.encode` has them; the tags of its source may ask for a token before it."""
        found = self.target.encode(targets, n_threads=n_threads, as_written=as_written)
        if not self.source.languages:
            return found
        tags = (split_tags(source, self.source.tags)[0] for source in sources)
        return [[*self.source.asked_ids(one), *ids] if ids else ids for one, ids in zip(tags, found, strict=True)]

    def encode_scored(
        self, pairs: Sequence[tuple[str, str]], tags: Sequence[str]
    ) -> tuple[list[list[int]], list[list[int]]]:
        """Ids of sources and of given translations of them; a source without a tag gets `tags`.

        Both are empty of a pair of blank sides. Of another pair a blank side has the tokens that any text has around
        it, as those of its language.
        """
        known, entry = self.source.tags, " ".join(tags)
        lines = [with_tags(one, entry, known) if one.strip() or not other.strip() else entry for one, other in pairs]
        sources, targets = self.source.encode(lines), self.encode_targets(lines, [other for _, other in pairs])
        for line, source, target in zip(lines, sources, targets, strict=True):
            if source and not target:
                target += self.first_ids(split_tags(line, known)[0])
            elif target and not source:
                source += self.source.ids_of_nothing()
        return sources, targets


def train_tokenizer(
    sentences: Iterable[str],
    config: TokenizerConfig,
    *,
    seed: int,
    tags: Sequence[str] = (),
    share: float = 1.0,
    text: str = "the training text",
) -> Tokenizer:
    """Train on `sentences`, or on a sample drawn with `seed` when there are many; equal input gives equal bytes.

    Each of `tags` is a piece. The sentences are a `share` of `text`, by whose size vocab_size=auto goes. Raises
    ConfigError when that has too few pieces for the vocabulary size, or too many characters; DataError when it has too
    few for any.
    """
    lines = list(sentences)
    n_lines = len(lines)
    lines = [lines[i] for i in sampled(n_lines, config, seed=seed)]
    spelling = spelling_of([*lines, *config.user_symbols])
    config = replace(config, user_symbols=[spelling(symbol) for symbol in config.user_symbols])
    if not any(_training_parts(lines, spelling, tags)):
        raise DataError("data.train: no text to train a tokenizer on. Check the training files")
    if config.is_auto:
        suited = suited_size(lines, config, tags, share=share * len(lines) / n_lines)
        config = replace(config, vocab_size=suited)
        try:
            return Tokenizer(_train(lines, spelling, config, tags, exact_size=True))
        except RuntimeError:  # a few words that are repeated have fewer pieces
            n_pieces = _largest_size(lines, spelling, config, tags)
            config = replace(config, vocab_size=max(n_pieces - n_pieces % config.multiple_of, SMALLEST_VOCABULARY))
    try:
        return Tokenizer(_train(lines, spelling, config, tags, exact_size=True))
    except RuntimeError as error:
        raise _size_error(lines, spelling, config, tags, str(error), text) from error


def suited_size(lines: Sequence[str], config: TokenizerConfig, tags: Sequence[str] = (), *, share: float = 1.0) -> int:
    """The vocabulary size for text of which `lines` are a `share`: what must be a piece, and n pieces of several.

    With c characters of text n is 5 √c up to 10,000, and then √c, at most 32,000: about 2,000 for 1,000 pairs of
    captions, 6,000 for 10,000 and 10,000 for 29,000 (docs/small_models.md), and 32,000 for millions of sentences.
    """
    n_characters = sum(map(len, lines)) / max(share, 1e-9)
    root = math.sqrt(n_characters)
    suited = round(min(max(min(5 * root, 10_000), root), 32_000), -2)
    counts = Counter(chain.from_iterable(lines[:: 1 + len(lines) // _COUNTED_LINES]))
    total, covered, n_single = counts.total(), 0, 0
    for _, count in counts.most_common():
        if covered >= config.character_coverage * total:
            break
        covered, n_single = covered + count, n_single + 1
    needed = n_single + len(_CONTROL_TOKENS) + len(tags) + len(config.user_symbols)
    return max(SMALLEST_VOCABULARY, needed + int(suited))


def sampled(n_lines: int, config: TokenizerConfig, *, seed: int) -> Sequence[int]:
    """The indices of the lines that a tokenizer is trained on, in order."""
    if n_lines <= config.max_sentences:
        return range(n_lines)
    return sorted(random.Random(seed).sample(range(n_lines), config.max_sentences))


def _train(
    lines: Sequence[str], spelling: Spelling, config: TokenizerConfig, tags: Sequence[str], *, exact_size: bool
) -> bytes:
    model = io.BytesIO()
    asked: dict[str, Any] = {
        "control_symbols": list(tags),
        "user_defined_symbols": list(config.user_symbols),
        "split_digits": config.split_digits,
    }
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=_training_parts(lines, spelling, tags),
        model_writer=model,
        model_type=config.kind.name,
        vocab_size=config.size,
        hard_vocab_limit=exact_size,
        character_coverage=config.character_coverage,
        byte_fallback=config.has_bytes,
        **{option: value for option, value in asked.items() if value},  # no others: they are written into the model
        normalization_rule_name="nfkc_cf" if config.fold_case else "identity",
        unk_surface=UNK_SURFACE,  # without its usual spaces: text must come out as it would go in again
        max_sentence_length=4 * _LONGEST_PART + 1,  # in bytes
        pad_id=0,  # the one place where ids are given out; everything else asks the tokenizer
        unk_id=1,
        bos_id=2,
        eos_id=3,
        num_threads=1,  # the number is written into the model, so it may not depend on the machine
        minloglevel=3,  # its progress log would go to stderr, which is ours
    )
    return model.getvalue()


def _training_parts(lines: Iterable[str], spelling: Spelling, tags: Sequence[str]) -> Iterator[str]:
    """The lines in a form of which SentencePiece skips nothing."""
    control_text = re.compile("|".join(map(re.escape, (*_CONTROL_TOKENS, *tags))))
    for line in lines:
        spelled = spelling(normalize(line.translate(_MARKS)))
        text = control_text.sub(lambda found: f"{found[0][0]} {found[0][1:]}", spelled)
        for start in range(0, len(text), _LONGEST_PART):
            yield text[start : start + _LONGEST_PART]


def _largest_size(lines: Sequence[str], spelling: Spelling, config: TokenizerConfig, tags: Sequence[str]) -> int:
    """The pieces that the text has. Raises DataError where they are too few for any vocabulary."""
    # SentencePiece names the limit too, in words that may change; a training that may stop short ends at it.
    n_pieces = len(Tokenizer(_train(lines, spelling, config, tags, exact_size=False)))
    if config.byte_fallback is None and config.has_bytes and n_pieces < BYTE_FALLBACK_FROM:  # so small, it has none
        n_pieces = len(Tokenizer(_train(lines, spelling, replace(config, byte_fallback=False), tags, exact_size=False)))
    if n_pieces < SMALLEST_VOCABULARY:
        raise DataError(
            f"data.train: too little text to train a tokenizer on, {n_pieces} pieces; a vocabulary has"
            f" {SMALLEST_VOCABULARY} or more. Add text"
        )
    return n_pieces


def _size_error(
    lines: Sequence[str],
    spelling: Spelling,
    config: TokenizerConfig,
    tags: Sequence[str],
    message: str,
    text: str,
) -> ConfigError:
    """The error of a wrong vocabulary size, which names a size that would do."""
    key = f"data.tokenizer.vocab_size={config.vocab_size}"
    too_small = re.search(r"smaller than required_chars\. \d+ vs (\d+)", message)
    if too_small:
        return ConfigError(
            f"{key}: too small for the characters of {text}; the smallest possible is {too_small[1]}."
            " Raise it, or lower data.tokenizer.character_coverage"
        )
    n_pieces = _largest_size(lines, spelling, config, tags)
    largest = n_pieces - n_pieces % config.multiple_of
    if largest < SMALLEST_VOCABULARY:
        return ConfigError(
            f"data.tokenizer.multiple_of={config.multiple_of}: more than the {n_pieces} pieces of {text} allow."
            " Lower it"
        )
    auto = min(largest, suited_size(lines, config, tags))
    return ConfigError(
        f"{key}: more pieces than {text} has; the largest possible is {largest}, and auto takes {auto}. Set"
        " data.tokenizer.vocab_size=auto"
    )
