"""A vocabulary with new pieces at its end: the ids of the old ones stay, and so does the text that has no new ones.

A BPE model of SentencePiece merges, again and again, the pair whose piece has the highest score. New pieces are
found by going on with this on the new text, and have scores below all others: they are merged last. The pieces of a
unigram model are those of the segmentation with the highest sum of scores: a new piece has a little more than the sum
of the two that it is made of. Characters that the vocabulary lacks become pieces first. Like SentencePiece's own, a new
piece is within a word, of one script, and not longer than 16 characters.
"""

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from heapq import heappop, heappush
from itertools import pairwise
from typing import Any

import sentencepiece

from transformer_cli.data.normalization import canonical, normalize, spelling_of
from transformer_cli.data.packed_tokenizer import PackedTokenizer, Segmenter, is_packed
from transformer_cli.data.sentencepiece_model import SPACE, ModelKind, PieceKind, model_kind, read_pieces, with_pieces
from transformer_cli.data.subword_nmt import merged
from transformer_cli.data.tokenizer import Tokenizer, Tokenizers
from transformer_cli.errors import ConfigError, quoted
from transformer_cli.languages import codes_meant

_LONGEST = 16  # characters of a piece
COVERAGE = 0.9995  # of the characters of the new text, by those that are or become pieces
BETTER = 0.01  # than its parts, is a new piece of a unigram model
_UNKNOWN_PENALTY = 10.0  # below the lowest score, SentencePiece's score of an unknown character


@dataclass(frozen=True)
class Pieces:
    """The pieces of a SentencePiece model, and how it chooses among them."""

    model: bytes

    @cached_property
    def processor(self) -> Any:
        return sentencepiece.SentencePieceProcessor(model_proto=self.model)

    @cached_property
    def kind(self) -> ModelKind:
        """Raises ConfigError for a model of words or characters."""
        kind = model_kind(self.model)
        if kind not in list(ModelKind):
            raise ConfigError(
                "init.extend_vocab: the model's tokenizer is SentencePiece, but neither bpe nor unigram, and takes no"
                " new pieces. Leave it out"
            )
        return ModelKind(kind)

    @cached_property
    def entries(self) -> list[tuple[str, float, int]]:
        """Piece, score and kind of each."""
        return read_pieces(self.model)

    @cached_property
    def names(self) -> frozenset[str]:
        return frozenset(name for name, _, _ in self.entries)

    @cached_property
    def scores(self) -> dict[str, float]:
        """The scores of the pieces that text is cut into."""
        return {name: score for name, score, kind in self.entries if kind == PieceKind.normal}

    @property
    def lowest(self) -> float:
        return min(self.scores.values(), default=0.0)

    def normal_form(self, text: str) -> str:
        """A text as its characters are looked up, with the sign for a space."""
        found: str = self.processor.normalize(text)
        return found.replace(" ", SPACE)

    def cut(self, text: str) -> list[str]:
        """The pieces of `text`, to which nothing is added: an inner piece of a word is cut as it stands there."""
        symbols = self._merged(list(text)) if self.kind is ModelKind.bpe else self._likeliest(text)
        in_bytes = [f"<0x{byte:02X}>" for byte in range(256)]
        if "<0x00>" not in self.names:
            return symbols
        known = [[one] if one in self.names else [in_bytes[byte] for byte in one.encode()] for one in symbols]
        return [piece for one in known for piece in one]

    def _merged(self, symbols: list[str]) -> list[str]:
        while True:
            pairs = [(self.scores.get(a + b), -i) for i, (a, b) in enumerate(pairwise(symbols))]
            found = [(score, i) for score, i in pairs if score is not None]
            if not found:
                return symbols
            at = -max(found)[1]
            symbols = [*symbols[:at], symbols[at] + symbols[at + 1], *symbols[at + 2 :]]

    def _likeliest(self, text: str) -> list[str]:
        best: list[tuple[float, list[str]]] = [(0.0, [])]
        for end in range(1, len(text) + 1):
            options = []
            for start in range(end):
                piece = text[start:end]
                score = self.scores.get(piece, self.lowest - _UNKNOWN_PENALTY if end - start == 1 else None)
                if score is not None:
                    options.append((best[start][0] + score, [*best[start][1], piece]))
            best.append(max(options, key=lambda option: option[0]))
        return best[-1][1]


def extended(
    model_bytes: bytes,
    *,
    pieces: Sequence[str] = (),
    symbols: Sequence[str] = (),
    tags: Sequence[str] = (),
) -> bytes:
    """The bytes of a tokenizer with new entries at the end of its vocabulary; those that it has already are left out.

    `pieces` are those of `new_pieces`, in their order. `symbols` are one piece wherever they stand in a text. `tags`
    are looked up whole at the beginning of a line. Raises ConfigError for a tokenizer that takes none.
    """
    if not is_packed(model_bytes):
        return _extended_model(Pieces(model_bytes), pieces, symbols, tags)
    packed = PackedTokenizer.from_bytes(model_bytes)
    segmenter = packed.model
    if pieces or symbols:
        segmenter = _extended_model(Pieces(_segmenter(packed)), pieces, symbols, ())
    new = [one for one in dict.fromkeys([*pieces, *symbols, *tags]) if one not in packed.ids]
    whole = [*packed.whole, *(tag for tag in tags if tag not in packed.whole)]
    return replace(packed, model=segmenter, pieces=[*packed.pieces, *new], whole=whole).to_bytes()


def _segmenter(packed: PackedTokenizer) -> bytes:
    if packed.segmenter is not Segmenter.sentencepiece:
        what = {
            Segmenter.subword_nmt: "cuts text by the BPE codes of subword-nmt",
            Segmenter.words: "takes text that is cut already",
        }
        raise ConfigError(
            f"init.extend_vocab: the model's tokenizer {what[packed.segmenter]}; only to SentencePiece's can pieces be"
            " added. Leave it out"
        )
    return packed.model


def _extended_model(old: Pieces, pieces: Sequence[str], symbols: Sequence[str], tags: Sequence[str]) -> bytes:
    scored: list[tuple[str, float, PieceKind]] = []
    scores, lowest = dict(old.scores), old.lowest
    for number, piece in enumerate(one for one in dict.fromkeys(pieces) if one not in old.names):
        is_bpe = old.kind is ModelKind.bpe
        score = lowest - 1 - number if is_bpe else _best_of_two(piece, scores, otherwise=lowest)
        scores[piece] = score
        scored.append((piece, score, PieceKind.normal))
    for kind, entries in ((PieceKind.user_defined, symbols), (PieceKind.control, tags)):
        scored += [(one, 0.0, kind) for one in dict.fromkeys(entries) if one not in old.names]
    if not scored:
        return old.model
    return with_pieces(old.model, scored)


def _best_of_two(piece: str, scores: dict[str, float], *, otherwise: float) -> float:
    """The score of a new piece of a unigram model; `otherwise` is that of a new character."""
    halves = [(piece[:i], piece[i:]) for i in range(1, len(piece))]
    sums = [scores[a] + scores[b] for a, b in halves if a in scores and b in scores]
    return max(sums) + BETTER if sums else otherwise


# New pieces


def new_pieces(model_bytes: bytes, lines: Iterable[str], n_pieces: int) -> list[str]:
    """The new pieces (`n_pieces` or fewer) for `lines`: characters first, then merges, the most frequent first.

    Each is made of pieces that are there before it. Raises ConfigError for a tokenizer that takes none.
    """
    model = _segmenter(PackedTokenizer.from_bytes(model_bytes)) if is_packed(model_bytes) else model_bytes
    old = Pieces(model)
    normal = Counter(map(old.normal_form, _spelled(Tokenizer(model_bytes), list(lines))))
    found = _new_characters(old, normal)[:n_pieces]
    with_characters = Pieces(_extended_model(old, found, (), ()))
    return [*found, *_merges(_words(with_characters, normal), with_characters, n_pieces - len(found))]


def _spelled(tokenizer: Tokenizer, lines: Sequence[str]) -> Iterator[str]:
    """Lines normalised as those of a text on which the tokenizer would be trained."""
    spelling = spelling_of(lines, tokenizer.alphabet) if tokenizer.normalizes else canonical
    return (spelling(normalize(line)) for line in lines)


def _new_characters(old: Pieces, lines: Counter[str]) -> list[str]:
    """The characters that the vocabulary lacks and the text has more than a few times, most frequent first."""
    counts: Counter[str] = Counter()
    for line, n in lines.items():
        for character in line:
            counts[character] += n
    allowed, found = (1 - COVERAGE) * counts.total(), []
    for character, n in sorted(counts.items(), key=lambda item: (item[1], item[0])):
        allowed -= n
        if allowed < 0 and character not in old.names:
            found.append((-n, character))
    return [character for _, character in sorted(found)]


Word = tuple[str, ...]


def _words(model: Pieces, lines: Counter[str]) -> Counter[Word]:
    """The words of the text as they are cut now, with how often each stands there."""
    words: Counter[Word] = Counter()
    texts = list(lines)
    for text, pieces in zip(texts, model.processor.encode([_plain(text) for text in texts], out_type=str), strict=True):
        word: list[str] = []
        for piece in [*pieces, SPACE]:
            is_usual = piece in model.scores
            if piece.startswith(SPACE) or not is_usual:
                if len(word) > 1:
                    words[tuple(word)] += lines[text]
                word = []
            if is_usual:
                word.append(piece)
    return words


def _plain(text: str) -> str:
    return text.replace(SPACE, " ").strip(" ")


_Pair = tuple[str, str]


def _merges(words: Counter[Word], model: Pieces, n_merges: int) -> list[str]:
    """The pieces that byte-pair encoding merges next (Sennrich et al. 2016), from the pairs that are most frequent."""
    texts, counts = [list(word) for word in words], list(words.values())
    pairs: Counter[_Pair] = Counter()
    places: defaultdict[_Pair, set[int]] = defaultdict(set)  # words that a pair is in, or was in
    queue: list[tuple[int, _Pair]] = []  # the most frequent first; a count that has changed since is put in again

    def may_merge(pair: _Pair) -> bool:
        return "".join(pair) not in model.names and _may_be_one("".join(pair))

    def count(number: int, sign: int) -> None:
        for pair in filter(may_merge, pairwise(texts[number])):
            pairs[pair] += sign * counts[number]
            places[pair].add(number)
            if sign > 0:
                heappush(queue, (-pairs[pair], pair))

    for number in range(len(texts)):
        count(number, 1)
    found: dict[str, None] = {}
    while len(found) < n_merges and queue:
        n, pair = heappop(queue)
        if pairs[pair] < -n:  # it has become rarer
            if pairs[pair] > 0:
                heappush(queue, (-pairs[pair], pair))
            continue
        if -n < 2:
            break
        found["".join(pair)] = None
        for number in places.pop(pair):
            count(number, -1)
            texts[number] = merged(texts[number], pair)
            count(number, 1)
        del pairs[pair]
    return list(found)


@cache
def _may_be_one(piece: str) -> bool:
    """Whether a piece may be so: of letters of one script, or of digits, or of neither."""
    text = piece.removeprefix(SPACE)
    return len(piece) <= _LONGEST and SPACE not in text and len({script_of(character) for character in text}) <= 1


@cache
def script_of(character: str) -> str:
    """What SentencePiece does not join with another: letters by script, digits, and all else."""
    if character.isdigit():
        return "digit"
    if unicodedata.category(character)[0] not in "LM":
        return ""
    script = unicodedata.name(character, "").split(" ")[0].split("-")[0]
    return "CJK" if script in ("CJK", "HIRAGANA", "KATAKANA") else script


# Embeddings


def kept_ids(old: Tokenizer, new: Tokenizer) -> list[int]:
    """The ids in `old` of the entries with which `new` begins: all of them, or those that are left, in their order."""
    names, kept = new.pieces(range(len(new))), list[int]()
    for number, name in enumerate(old.pieces(range(len(old)))):
        if len(kept) < len(names) and names[len(kept)] == name:
            kept.append(number)
    return kept


def parts_of_new(old: Tokenizer, new: Tokenizer, like: str | None = None) -> list[list[int]]:
    """The ids of the entries of `old` as whose mean each new entry of `new` begins: the pieces that it is cut into.

    None for a piece of the other language, in a vocabulary of both with a segmenter for each. The token or tag of a new
    language has that of the language `like`; a token without it those of all languages.
    """
    names = new.pieces(range(len(kept_ids(old, new)), len(new)))
    of_languages = [old.languages[like]] if like in old.languages else sorted(old.languages.values())
    if old.sentencepiece is None:
        return [old.encode([name])[0] for name in names]
    segmenter, known = Pieces(old.sentencepiece), Pieces(new.sentencepiece or b"").names
    ids = {name: i for i, name in enumerate(old.pieces(range(len(old))))}
    packed = new.packed
    tags = set() if packed is None else set(packed.whole)
    # Those that every line of a model of one direction begins with are hidden there.
    languages = set() if packed is None else {*packed.languages, *packed.prefix, *packed.hidden}

    def parts(name: str) -> list[int]:
        if name in languages:
            return of_languages
        if like is not None and name in new.tags and (tag := tag_like(name, like, old.tags)) is not None:
            return [ids[tag]]
        is_cut = name in known or name in tags
        return [ids.get(part, old.unk_id) for part in segmenter.cut(name)] if is_cut else []

    return list(map(parts, names))


# Languages


_IS_CODE = re.compile(r"[A-Za-z0-9]+([-_][A-Za-z0-9]+)*")


def tag_like(tag: str, like: str, known: Iterable[str]) -> str | None:
    """The tag of `known` that names the language `like` as `tag` names another: <2de> for <2nl>, and not <de>."""
    found = ""
    for other in known:
        before, middle, behind = other.partition(like)
        fits = middle and tag.startswith(before) and tag.endswith(behind) and len(tag) > len(before) + len(behind)
        if fits and len(other) > len(found):
            found = other
    return found or None


def with_languages(tokenizer: Tokenizer, codes: Sequence[str]) -> Tokenizer:
    """The tokenizer with a token for each of some languages. Raises ConfigError where languages have none."""
    packed = tokenizer.packed
    if packed is None or not packed.languages:
        raise ConfigError(
            f"init.extend_languages=[{','.join(codes)}]: of this model no languages are tokens. Leave it out: tags of"
            " data.tags are added as they are"
        )
    for n, code in enumerate(codes):
        _check_new_language(code, [*tokenizer.languages, *codes[:n]])
    form = packed.languages[0].replace(packed.languages[0].strip("_"), "{}")  # of M2M-100 __{}__
    new = [form.format(code) for code in codes]
    if taken := [piece for piece in new if piece in packed.ids]:
        raise ConfigError(f"init.extend_languages: {taken[0]} is a piece of text in the model. Choose another code")
    return Tokenizer(replace(packed, pieces=[*packed.pieces, *new], languages=[*packed.languages, *new]).to_bytes())


def _check_new_language(code: str, known: Sequence[str]) -> None:
    """Raise ConfigError for what is no code, as `--to` and tags have it, or one of the languages that are `known`."""
    if not _IS_CODE.fullmatch(code):
        raise ConfigError(
            f"init.extend_languages: {quoted(code)} is not a language code. Give one of letters, digits, - and _, as"
            " tyv_Cyrl"
        )
    if code in known:
        raise ConfigError(f"init.extend_languages: {code} is a language of the model already. Leave it out")
    spelled = [one for one in known if _spelling(one) == _spelling(code)]
    is_bare = _spelling(code).isalpha()  # one with a script or country is another language than one without
    if meant := spelled or (codes_meant(code, known) if is_bare else []):
        raise ConfigError(
            f"init.extend_languages: {code} is a language of the model already, as {' and '.join(meant)}. Leave it out,"
            " or give a code with another script or country"
        )


def _spelling(code: str) -> str:
    return code.casefold().replace("-", "_")


# Both languages


def extended_tokenizers(
    tokenizers: Tokenizers,
    *,
    n_pieces: int = 0,
    sentences: tuple[Sequence[str], Sequence[str]] = ((), ()),
    symbols: Sequence[str] = (),
    tags: Sequence[str] = (),
) -> Tokenizers:
    """The tokenizers with `n_pieces` for each side's `sentences`, or for both where one vocabulary serves both sides.

    Tags are for sources. Raises ConfigError where the text has fewer new pieces, or a tokenizer takes none.
    """
    source, target = tokenizers.source, tokenizers.target
    if tokenizers.joint:
        found = _required(source, [*sentences[0], *sentences[1]], n_pieces)
        new = Tokenizer(extended(source.model_bytes, pieces=found, symbols=symbols, tags=tags))
        return replace(tokenizers, source=new, target=new)
    of_source, of_target = (
        _required(one, text, n_pieces) for one, text in zip((source, target), sentences, strict=True)
    )
    if have_one_vocabulary(tokenizers):  # with a segmenter for each language
        both = [*of_source, *(piece for piece in of_target if piece not in of_source)]
        source_bytes, target_bytes = (
            extended(_numbered(one, both), pieces=pieces, symbols=symbols, tags=tags)
            for one, pieces in ((source, of_source), (target, of_target))
        )
    else:
        source_bytes = extended(source.model_bytes, pieces=of_source, symbols=symbols, tags=tags)
        target_bytes = extended(target.model_bytes, pieces=of_target, symbols=symbols)
    return replace(tokenizers, source=Tokenizer(source_bytes), target=Tokenizer(target_bytes))


def have_one_vocabulary(tokenizers: Tokenizers) -> bool:
    """Whether the ids of both sides mean the same, though each may have a segmenter of its own."""
    sides = (tokenizers.source, tokenizers.target)
    return tokenizers.joint or len({tuple(one.pieces(range(len(one)))) for one in sides}) == 1


def _required(tokenizer: Tokenizer, lines: Sequence[str], n_pieces: int) -> list[str]:
    if not n_pieces:
        return []
    found = new_pieces(tokenizer.model_bytes, lines, n_pieces)
    if len(found) < n_pieces:
        raise ConfigError(
            f"init.extend_vocab={n_pieces}: more new pieces than the training text has, which are {len(found)}."
            f" {f'Set init.extend_vocab={len(found)} or less' if found else 'Leave it out'}"
        )
    return found


def _numbered(tokenizer: Tokenizer, pieces: Sequence[str]) -> bytes:
    """The tokenizer's bytes with ids for `pieces`, in their order."""
    assert tokenizer.packed is not None
    new = [piece for piece in pieces if piece not in tokenizer.packed.ids]
    return replace(tokenizer.packed, pieces=[*tokenizer.packed.pieces, *new]).to_bytes()
