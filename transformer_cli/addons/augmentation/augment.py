"""Augmentation of the training text: pairs are changed as their batches are made, other ones in each epoch.

What is drawn for a pair follows from the seed, the epoch and its place in the corpus. Most of the kinds are those of
OpusTrainer (Bogoychev et al. 2023, arXiv 2311.14838). The text is that of the stored ids: nothing is prepared anew.
"""

import re
import string
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random

import numpy as np

from transformer_cli.addons.augmentation.noise import (
    inserted_at,
    some_number,
    title_case,
    upper_case,
    with_typos,
    without_final_stop,
)
from transformer_cli.config.data import AUGMENTATIONS, DataConfig
from transformer_cli.config.tags import language_of, languages_named
from transformer_cli.data.cache import Array, EncodedCorpus
from transformer_cli.data.extend_vocabulary import Pieces
from transformer_cli.data.numbered_tags import NUMBERED_TAG, highest_number, numbered_from
from transformer_cli.data.placeholders import spans_to_keep
from transformer_cli.data.sentencepiece_model import SPACE, PieceKind
from transformer_cli.data.sentences import has_no_spaces, split_sentences
from transformer_cli.data.shuffling import Part, splitmix64
from transformer_cli.data.tokenizer import Tokenizers
from transformer_cli.logs import LOGGER

_PURPOSE = np.uint64(0x6175676D656E74)  # of its random bits, apart from other uses of the seed
_NAMES = ("name", "user", "count", "file", "date", "id", "value", "item", "size", "title", "n", "x")
_DOMAINS = ("com", "org", "net", "info", "de", "fr", "io", "eu")
_EMOJI = (*"😀😃😄😁😅😂🙂😉😊😍😎🤔😐😴😢😭😡👍👎👏🙏💪🔥⭐🎉🎂🚀🚗🏠🌍🌞☕🍕🐶🐱", "❤️", "☀️", "✈️", "✔️", "⚠️", "☎️")
# The first letter of some blocks of Unicode, and how many letters follow each other there.
_BLOCKS = ((0x61, 26), (0xE0, 23), (0x3B1, 17), (0x430, 32), (0x5D0, 27), (0x905, 53), (0x3041, 86), (0x4E00, 20_000))

_PLAIN_WORD = re.compile(r"\b[a-z]{2,}\b")
_PLAIN_PIECE = re.compile(r"[a-z]{2,}")
_MASK = "\U0001e2f0"  # a digit that is hardly ever used: no letter, and neither the start of a word nor its end
_OF_CASE = ("upper_case", "title_case")
_CANDIDATES = 100  # pairs that are tried for one with the same tags
_TRIED = 1000  # pairs that are changed before training, to see whether that can be written

_Pair = tuple[str, str]
_Ids = list[int]


@dataclass(frozen=True)
class Augmenter:
    """Changes the pairs of an update of a corpus.

    `parts` are the corpora that it consists of, one after another, if they are mixed. `chunks` are the numbers of pairs
    of each chunk of the corpus of data.bidirectional, where as many follow each chunk: the same ones, exchanged.
    """

    corpus: EncodedCorpus
    tokenizers: Tokenizers
    config: DataConfig
    seed: int
    parts: Sequence[Part] = ()
    chunks: Sequence[int] = ()

    def augmented(self, pairs: EncodedCorpus, indices: Array, *, epoch: int) -> EncodedCorpus:
        """`pairs`, which are those of the corpus at `indices`, with some of them changed.

        A pair stays as it is where the change leaves it without text, longer than data.max_length, or with something
        that the vocabulary cannot write.
        """
        return self._augmented(pairs, indices, epoch=epoch)[0]

    def warn_of_kept(self) -> None:
        """Try some pairs, and warn if most of those that would change stay as they are, or a kind changes none."""
        n = len(self.corpus)
        indices = np.linspace(0, n - 1, min(n, _TRIED)).astype(np.int64)  # of all its parts
        written = [i for i in indices.tolist() if self._is_written(*self._ids(i))]
        if len(written) < len(indices) / 2:
            LOGGER.warning(
                "data.augment: %d of %d pairs have <unk>, and stay as they are. Set data.tokenizer.byte_fallback=true"
                " and a vocab_size with room for bytes",
                *(len(indices) - len(written), len(indices)),
            )
        for kind in self.config.augment.rates:
            if written and not any(self._changes(kind, i) for i in written):
                LOGGER.warning(
                    "data.augment.%s: changes none of the %d pairs that were tried, which have nothing for it to"
                    " change. Leave it out",
                    *(kind, len(written)),
                )
        _, n_changed, n_kept = self._augmented(self.corpus.pick(indices), indices, epoch=0)
        if n_kept > n_changed / 2:
            LOGGER.warning(
                "data.augment: %d of %d pairs that it would change stay as they are, since the vocabulary cannot write"
                " them then, or they are too long. Set data.tokenizer.byte_fallback=true and a vocab_size with room for"
                " bytes, or leave out the kinds that need other characters",
                *(n_kept, n_changed),
            )

    def _changes(self, kind: str, index: int) -> bool:
        stored = self._ids(index)
        before = self._text(*stored)
        return self._changed(index, stored, before, [kind], Random(index)) != before

    def _augmented(self, pairs: EncodedCorpus, indices: Array, *, epoch: int) -> tuple[EncodedCorpus, int, int]:
        """The augmented pairs, how many of them change, or would, and how many of these stay as they are."""
        rates = self.config.augment.rates
        draws = draw_bits(indices, seed=self.seed, epoch=epoch)
        is_drawn = np.stack([_is_below(draws[AUGMENTATIONS.index(kind)], rate) for kind, rate in rates.items()])
        sides = [_split(pairs.source_ids, pairs.source_offsets), _split(pairs.target_ids, pairs.target_offsets)]
        changed: dict[int, _Pair] = {}
        for row in np.flatnonzero(is_drawn.any(axis=0)).tolist():
            stored = sides[0][row], sides[1][row]
            if self._is_written(*stored):  # else its text is lost
                kinds = [kind for kind, drawn in zip(rates, is_drawn[:, row], strict=True) if drawn]
                before = self._text(*stored)
                after = self._changed(int(indices[row]), stored, before, kinds, Random(int(draws[-1, row])))
                if after != before:
                    changed[row] = after
        if not changed:
            return pairs, 0, 0
        # Without tags, since what a text begins with is no tag: those of the pair are put before it again.
        source, target = self.tokenizers.source.without_tags(), self.tokenizers.target
        sources = source.encode([text[0] for text in changed.values()], as_written=True)
        targets = target.encode([text[1] for text in changed.values()], as_written=True)
        n_kept = 0
        for row, source_ids, target_ids in zip(changed, sources, targets, strict=True):
            texts = source.text_ids(source_ids), target.text_ids(target_ids)
            stored = sides[0][row], sides[1][row]
            first = stored[1][: target.n_tags(stored[1])]
            new = self._around(stored[0], texts[0]), [*first, *texts[1], *target.end_ids]
            if all(texts) and max(map(len, new)) <= self.config.max_length and self._is_written(*new):
                sides[0][row], sides[1][row] = new
            else:
                n_kept += 1
        return EncodedCorpus.of(*sides), len(changed), n_kept

    def _is_written(self, source_ids: _Ids, target_ids: _Ids) -> bool:
        """Whether the ids hold the whole text."""
        return self.tokenizers.source.unk_id not in source_ids and self.tokenizers.target.unk_id not in target_ids

    def _tags(self, source_ids: _Ids) -> _Ids:
        return source_ids[: self.tokenizers.source.n_tags(source_ids)]

    def _text(self, source_ids: _Ids, target_ids: _Ids) -> _Pair:
        source, target = self.tokenizers.source, self.tokenizers.target
        return source.decode(source_ids[source.n_tags(source_ids) :]), target.decode(
            target_ids[target.n_tags(target_ids) :]
        )

    def _around(self, source_ids: _Ids, text_ids: _Ids) -> _Ids:
        """The ids of a text with what is around the text of `source_ids`: tags, EOS, and a language behind that."""
        source = self.tokenizers.source
        end = source_ids[source_ids.index(source.eos_id) :] if source.language_last else source.end_ids
        return [*self._tags(source_ids), *text_ids, *end]

    def _changed(self, index: int, stored: tuple[_Ids, _Ids], pair: _Pair, kinds: list[str], random: Random) -> _Pair:
        """`pair`, the text of the ids `stored` at `index`, after each of `kinds`, in their order."""
        if "noise" in kinds:
            return (noise(random),) * 2
        languages = self._languages(index, stored[0])
        for kind in kinds:
            if kind == "merged":
                other = self._partner(index, stored, random)
                pair = pair if other is None else _joined(pair, other, languages)
            elif kind == "split":
                pair = _split_pair(pair, languages, random)
            elif kind == "placeholders":
                thing, place = placeholder(random, self._words(random)), random.random()
                pair = self._with_inserted(thing, place, pair, languages)
            else:
                pair = self._within_the_lines(kind, pair, languages, random)
        return pair

    def _with_inserted(self, thing: str, place: float, pair: _Pair, languages: _Pair) -> _Pair:
        first, second = (
            inserted_at(line, thing, place, spans_to_keep(line, self._symbols), has_spaces=not has_no_spaces(language))
            for line, language in zip(pair, languages, strict=True)
        )
        return first, second

    def _within_the_lines(self, kind: str, pair: _Pair, languages: _Pair, random: Random) -> _Pair:
        source, target = pair
        if kind in _OF_CASE and not _has_case(source):
            return pair  # its translation would be in capitals by chance
        source = sparing(lambda text: within_a_line(kind, text, languages[0], random), source, self._symbols)
        if kind != "typos" and kind not in self.config.augment.source_only:
            target = sparing(lambda text: within_a_line(kind, text, languages[1], random), target, self._symbols)
        return source, target

    @cached_property
    def _symbols(self) -> re.Pattern[str] | None:
        """What the vocabularies have one piece for, wherever it stands (data.tokenizer.user_symbols)."""
        models = {self.tokenizers.source.sentencepiece, self.tokenizers.target.sentencepiece} - {None}
        entries = [entry for model in models if model is not None for entry in Pieces(model).entries]
        found = {name for name, _, kind in entries if kind == PieceKind.user_defined and SPACE not in name}
        return re.compile("|".join(map(re.escape, sorted(found, key=len, reverse=True)))) if found else None

    def _words(self, random: Random) -> list[str]:
        """The words of another pair that may stand in a URL, in small letters, and three times as many made of pieces.

        What is copied is pieces, and those that hardly any training text has would never be seen to be.
        """
        text = " ".join(self._text(*self._ids(random.randrange(len(self.corpus)))))
        words = _PLAIN_WORD.findall(text.lower())
        if not self._plain_pieces:
            return words
        return words + ["".join(random.choices(self._plain_pieces, k=random.choice((2, 3, 4)))) for _ in words * 3]

    @cached_property
    def _plain_pieces(self) -> list[str]:
        """The pieces of the vocabularies that may stand in a URL."""
        sides = self.tokenizers.source, self.tokenizers.target
        names = {piece.strip(SPACE) for side in sides for piece in side.pieces(range(len(side)))}
        return sorted(name for name in names if _PLAIN_PIECE.fullmatch(name))

    def _languages(self, index: int, source_ids: _Ids) -> _Pair:
        """The languages of the pair; of a side that has several, the one that its tags name, or else an empty one."""
        source, target = self.config.source_lang, self.config.target_lang
        if self._is_exchanged(index):
            return target, source
        tags = self.tokenizers.source.pieces(self._tags(source_ids))
        target = language_of(tags, target)
        return language_of([tag for tag in tags if not languages_named([tag], [target])], source), target

    def _is_exchanged(self, index: int) -> bool:
        return bool(np.searchsorted(self._ends, index, side="right") % 2)

    @cached_property
    def _ends(self) -> Array:
        """The end of each run of pairs of one direction."""
        return np.cumsum(np.repeat(np.array(self.chunks, np.int64), 2))

    @cached_property
    def _bounds(self) -> Array:
        """The start of each part of the corpus, and the end of the last one."""
        return np.cumsum([0, *(part.n_pairs for part in self.parts)]) if self.parts else np.array([0, len(self.corpus)])

    def _partner(self, index: int, stored: tuple[_Ids, _Ids], random: Random) -> _Pair | None:
        """The text of another pair of the same part, tags and direction; None if none is found."""
        part = int(np.searchsorted(self._bounds, index, side="right")) - 1
        first, end = self._bounds[part : part + 2].tolist()
        for _ in range(_CANDIDATES):
            candidate = random.randrange(first, end)
            source_ids, target_ids = self._ids(candidate)
            if self._is_exchanged(candidate) != self._is_exchanged(index):
                source_ids, target_ids = target_ids, source_ids
            is_another = (source_ids, target_ids) != stored and self._tags(source_ids) == self._tags(stored[0])
            if is_another and self._is_written(source_ids, target_ids):
                return self._text(source_ids, target_ids)
        return None

    def _ids(self, index: int) -> tuple[_Ids, _Ids]:
        """The ids of a pair of the corpus."""
        corpus = self.corpus
        source = corpus.source_ids[corpus.source_offsets[index] : corpus.source_offsets[index + 1]].tolist()
        return source, corpus.target_ids[corpus.target_offsets[index] : corpus.target_offsets[index + 1]].tolist()


def _joined(pair: _Pair, other: _Pair, languages: _Pair) -> _Pair:
    n_tags = max(map(highest_number, pair))
    first, second = (
        f"{one}{'' if has_no_spaces(language) else ' '}{numbered_from(its_next, n_tags)}"
        for one, its_next, language in zip(pair, other, languages, strict=True)
    )
    return first, second


def _split_pair(pair: _Pair, languages: _Pair, random: Random) -> _Pair:
    """One sentence of several, where both sides have as many, and no inline tags, which may be around several."""
    if any(map(NUMBERED_TAG.search, pair)):
        return pair
    sources, targets = (split_sentences(line, language) for line, language in zip(pair, languages, strict=True))
    return random.choice(list(zip(sources, targets, strict=True))) if len(sources) == len(targets) else pair


def draw_bits(indices: Array, *, seed: int, epoch: int) -> Array:
    """64 random bits for each kind of AUGMENTATIONS, and one more row of them: [kinds + 1, pairs]."""
    purposes = np.arange(len(AUGMENTATIONS) + 1, dtype=np.uint64)
    keys = splitmix64(np.array([seed], np.uint64) + _PURPOSE)
    keys = splitmix64(keys + np.uint64(epoch))
    keys = splitmix64(keys + purposes)
    drawn: Array = splitmix64(splitmix64(indices.astype(np.uint64))[None, :] + keys[:, None])
    return drawn


def _is_below(bits: Array, rate: float) -> Array:
    """Whether a number between 0 and 1 that is made of the bits is below `rate`."""
    found: Array = (bits >> np.uint64(11)) * 2.0**-53 < rate
    return found


def _split(ids: Array, offsets: Array) -> list[list[int]]:
    """The ids of each sentence."""
    return [part.tolist() for part in np.split(ids, offsets[1:-1])]


def _has_case(line: str) -> bool:
    """Whether it has letters, and none of a script without capitals, beside which a name in capitals says nothing."""
    return line.lower() != line.upper() and not any(unicodedata.category(letter) == "Lo" for letter in line)


def within_a_line(kind: str, line: str, language: str, random: Random) -> str:
    match kind:
        case "upper_case":
            return upper_case(line, language)
        case "title_case":
            return title_case(line, language)
        case "no_final_stop":
            return without_final_stop(line)
        case _:
            return with_typos(line, random)


def sparing(change: Callable[[str], str], line: str, symbols: re.Pattern[str] | None) -> str:
    """`line` after `change`, but for placeholders, tags and `symbols`; as it is if it has the mask in it."""
    if _MASK in line:
        return line
    masked, position = "", 0
    spans = spans_to_keep(line, symbols)
    for start, end in spans:
        masked += line[position:start] + _MASK
        position = end
    texts = iter([line[start:end] for start, end in spans])
    return re.sub(_MASK, lambda _: next(texts), change(masked + line[position:]))


def placeholder(random: Random, words: Sequence[str]) -> str:
    """What a translation must contain as it is: a placeholder of a program, a URL, a number or an emoji.

    Its names are words that programs use, some of `words`, or letters.
    """
    kind = random.randrange(4)
    if kind == 0:
        return _variable(random, words)
    if kind == 1:
        return _url(random, words)
    return some_number(random) if kind == 2 else random.choice(_EMOJI)


def _variable(random: Random, words: Sequence[str]) -> str:
    name = "_".join(_name(random, words) for _ in range(random.choice((1, 1, 2))))
    return random.choice((f"{{{name}}}", f"{{{random.randrange(10)}}}", f"${{{name}}}", f"%({name})s", f"<{name}>"))


def _url(random: Random, words: Sequence[str]) -> str:
    host = ".".join(_name(random, words) for _ in range(random.choice((1, 1, 2))))
    path = "".join(f"/{_segment(random, words)}" for _ in range(random.randrange(3)))
    end = random.choice(("", "", "/", ".html", f"?{_name(random, words)}={some_number(random)}"))
    scheme = random.choice(("https://", "http://", "https://www.", "http://www."))
    return f"{scheme}{host}.{random.choice(_DOMAINS)}{path}{end if path else ''}"


def _segment(random: Random, words: Sequence[str]) -> str:
    name, number = _name(random, words), str(random.randrange(100))
    return random.choice((name, name, number, f"{name}{random.choice('-_')}{number}"))


def _name(random: Random, words: Sequence[str]) -> str:
    kind = random.randrange(4)
    if kind == 0:
        return random.choice(_NAMES)
    if kind == 1 or not words:
        return "".join(random.choice(string.ascii_lowercase) for _ in range(random.randint(1, 8)))
    return random.choice(words)


def noise(random: Random) -> str:
    """Two to six words of random letters of some script."""
    first, n_letters = random.choice(_BLOCKS)
    words = (
        "".join(chr(first + random.randrange(n_letters)) for _ in range(random.randint(2, 8)))
        for _ in range(random.randint(2, 6))
    )
    return " ".join(words)
