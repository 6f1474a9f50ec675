"""Word alignments in Pharaoh format, as fast_align, eflomal and awesome-align write them, of the lines of data.train.

A line is i-j for each link: word i of the source and word j of the target, from 0. The pairs of the prepared corpus
have other numbers than those lines: they are found by what they are.
"""

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from transformer_cli.config.data import DataConfig
from transformer_cli.data.cache import Array, EncodedCorpus
from transformer_cli.data.corpus import stream_text
from transformer_cli.data.encoding import Encoded, chunks, encoded
from transformer_cli.data.lines import each_line, open_text, shown
from transformer_cli.data.sentencepiece_model import SPACE
from transformer_cli.data.tags import split_tags
from transformer_cli.data.tokenizer import Tokenizer, Tokenizers
from transformer_cli.errors import DataError, quoted

_LINK = re.compile(r"([0-9]{1,9})-([0-9]{1,9})", re.ASCII)
_PAIRS_AT_A_TIME = 10_000
_NOTHING = np.empty((2, 0), np.int64)

# Kinds of tokens: of a word, of a word that has punctuation beside it, that punctuation, and punctuation by itself.
_WORD, _BESIDE_MARK, _BESIDE, _ALONE = range(4)
# Which kinds of two linked words may be linked: "cake?" and "gâteau ?" have links of cake and gâteau, and of both "?".
_MAY_LINK = np.array(
    [[True, True, False, True], [True, True, False, False], [False, False, True, True], [True, False, True, True]]
)


@dataclass(frozen=True)
class WordPieces:
    """Masks of the pieces of a vocabulary: those that begin a word, are in one, and are punctuation alone."""

    begins: Array
    is_text: Array
    is_mark: Array
    is_space: Array  # and nothing else: what follows is in the same word

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> "WordPieces":
        pieces = tokenizer.pieces(range(len(tokenizer)))
        is_text = np.ones(len(pieces), np.bool_)
        is_text[[tokenizer.bos_id, tokenizer.eos_id, *tokenizer.tag_ids]] = False
        texts = [piece.removeprefix(SPACE) for piece in pieces]
        return cls(
            np.array([piece.startswith(SPACE) for piece in pieces]) & is_text,
            is_text,
            np.array([bool(text) and all(unicodedata.category(sign)[0] in "PS" for sign in text) for text in texts])
            & is_text,
            np.array([piece == SPACE for piece in pieces]),
        )

    def words(self, ids: Array, n_words: int, *, may_end_early: bool = False) -> Array | None:
        """The number of the word of each token, -1 of none; None where there are not `n_words` words."""
        words = np.cumsum(self.begins[ids]) - 1
        n_found = int(words.max(initial=-1)) + 1
        return np.where(self.is_text[ids], words, -1) if n_found == n_words or may_end_early else None

    def kinds(self, side: Encoded) -> Array:
        """The kind of each token of some sentences, for `_MAY_LINK`."""
        ids, at = side.ids, np.arange(len(side.ids))
        is_text, is_mark, begins = self.is_text[ids], self.is_mark[ids], self.begins[ids]
        spaces = np.flatnonzero(self.is_space[ids][:-1])
        is_mark[spaces] = is_mark[spaces + 1]  # of the word that they begin
        begins[(np.cumsum(side.lengths) - side.lengths)[side.lengths > 0]] = True
        words = np.cumsum(begins) - 1
        places, n_words = np.flatnonzero(is_text & ~is_mark), int(words.max(initial=-1)) + 1
        first, last = np.full(n_words, len(ids)), np.full(n_words, -1)
        first[words[places[::-1]]], last[words[places]] = places[::-1], places
        has_letters = (last >= 0)[words]
        is_beside = is_text & is_mark & has_letters & ((at < first[words]) | (at > last[words]))
        has_beside = np.bincount(words[is_beside], minlength=n_words)[words] > 0
        kinds = [is_beside, is_mark & ~has_letters, has_beside]
        return np.select(kinds, [_BESIDE, _ALONE, _BESIDE_MARK], default=_WORD)


def link_line(links: Iterable[tuple[int, int]]) -> str:
    """The line of links between words, with its end."""
    return " ".join(f"{i}-{j}" for i, j in links) + "\n"


def links_of_file(
    file: Path, corpus: EncodedCorpus, tokenizers: Tokenizers, config: DataConfig, scratch: Path
) -> Iterator[tuple[Array, Array, Array]]:
    """Links between the tokens of the pairs of `corpus`, as `Aligner.links` gives them.

    Pairs that `config` repairs, and those whose pieces are not those of their words, have none. Raises DataError for a
    line that is no alignment of its pair, and for a file of another number of lines.
    """
    hashes = _hashes(corpus, tokenizers)
    order = np.argsort(hashes, kind="stable")
    hashes = hashes[order]
    starts, counts = np.zeros(len(corpus), np.int64), np.zeros(len(corpus), np.int32)
    n_written = 0
    with (scratch / "links").open("wb") as kept:
        for key, links_2L in _each(file, tokenizers, config, scratch):
            same = np.searchsorted(hashes, np.array([key, key + 1], np.uint64))  # a pair may stand several times
            place = slice(*same.tolist())
            new = order[place][counts[order[place]] == 0]
            if len(new) and links_2L.size:
                kept.write(links_2L.T.astype("<u4").tobytes())
                starts[new], counts[new] = n_written, links_2L.shape[1]
                n_written += links_2L.shape[1]
    links = np.fromfile(scratch / "links", "<u4").reshape(-1, 2) if not n_written else _mapped(scratch / "links")
    for first in range(0, len(corpus), _PAIRS_AT_A_TIME):
        n = counts[first : first + _PAIRS_AT_A_TIME].astype(np.int64)
        at = np.arange(int(n.sum())) + np.repeat(starts[first : first + len(n)] - (np.cumsum(n) - n), n)
        yield links[at, 0], links[at, 1], n


def _mapped(path: Path) -> Array:
    return np.memmap(path, "<u4", "r").view(np.ndarray).reshape(-1, 2)


def _hashes(corpus: EncodedCorpus, tokenizers: Tokenizers) -> Array:
    """The hash of each pair, without what sentences end with."""
    ends = len(tokenizers.source.end_ids), len(tokenizers.target.end_ids)
    found = np.empty(len(corpus), np.uint64)
    for first in range(0, len(corpus), _PAIRS_AT_A_TIME):
        some = corpus.pick(np.arange(first, min(first + _PAIRS_AT_A_TIME, len(corpus))))
        sides = (some.source_ids, some.source_offsets), (some.target_ids, some.target_offsets)
        for i in range(len(some)):
            source, target = (ids[at[i] : at[i + 1] - end] for (ids, at), end in zip(sides, ends, strict=True))
            found[first + i] = _hash(source, target)
    return found


def _hash(source: Array, target: Array) -> int:
    """63 bits, so that the next number is one, too."""
    content = [np.array([len(source)]), source, target]
    digest = hashlib.blake2b(b"".join(ids.astype("<i8").tobytes() for ids in content), digest_size=8)
    return int.from_bytes(digest.digest(), "little") >> 1


def _each(file: Path, tokenizers: Tokenizers, config: DataConfig, spool: Path) -> Iterator[tuple[int, Array]]:
    """The hash of each pair of data.train, and its links, [2, L]; with data.bidirectional also of its exchange."""
    text = stream_text(config, spool)
    of_source, of_target = WordPieces.of(tokenizers.source), WordPieces.of(tokenizers.target)
    with open_text(file) as stream:
        lines, name, n = each_line(stream, shown(file)), shown(file), 0
        for pairs in chunks(text.each(), _PAIRS_AT_A_TIME):
            ((sources, targets),) = encoded(pairs, tokenizers, n_processes=1)
            if config.truncate_source:
                sources = sources.truncated(config.max_length - 1)
            each = (
                _divided(x, side.lengths)
                for side, pieces in ((sources, of_source), (targets, of_target))
                for x in (side.ids, pieces.kinds(side))
            )
            for pair, source, source_kinds, target, target_kinds in zip(pairs, *each, strict=True):
                line, n = next(lines, None), n + 1
                if line is None:
                    raise _other_number(name, f"{n - 1:,}", sum(text.sizes))
                words = [split_tags(pair[0], config.all_tags)[1].split(), pair[1].split()]
                links = _read(line[0], [len(side) for side in words], f"{name}:{n}")
                is_cut = config.truncate_source and len(source) == config.max_length - 1
                source_words = of_source.words(source, len(words[0]), may_end_early=is_cut)
                target_words = of_target.words(target, len(words[1]))
                links_2L = _NOTHING
                if links and source_words is not None and target_words is not None:
                    links_2L = _of_pieces(links, (source_words, source_kinds), (target_words, target_kinds))
                yield _hash(source, target), links_2L
                if config.bidirectional:
                    yield _hash(target, source), links_2L[::-1][:, np.lexsort(links_2L[::-1])]
        if next(lines, None) is not None:
            raise _other_number(name, f"more than {n:,}", sum(text.sizes))


def _other_number(name: str, found: str, n_pairs: int) -> DataError:
    return DataError(f"{name}: has {found} lines, and data.train {n_pairs:,} pairs. Align the text of data.train")


def _divided(x: Array, lengths: Array) -> list[Array]:
    """What there is of each token, by sentences."""
    return np.split(x, np.cumsum(lengths)[:-1])


def _read(line: str, n_words: list[int], where: str) -> list[tuple[int, int]]:
    """The links of a line. Raises DataError."""
    links = []
    for entry in line.split():
        found = _LINK.fullmatch(entry)
        if found is None:
            raise DataError(f"{where}: {quoted(entry, 40)} is no link. Write i-j for each, from 0, as 0-0 1-2")
        link = int(found[1]), int(found[2])
        for side, place, n in zip(("source", "target"), link, n_words, strict=True):
            if place >= n:
                raise DataError(
                    f"{where}: the link {entry} is beyond the {n} words of the {side}. Write i-j for each, from 0, i of"
                    " the source"
                )
        links.append(link)
    return links


def _of_pieces(links: list[tuple[int, int]], source: tuple[Array, Array], target: tuple[Array, Array]) -> Array:
    """Links between the tokens of linked words, [2, L], by rising target; `source` and `target` are words and kinds."""
    (source_words, source_kinds), (target_words, target_kinds) = source, target
    linked = np.zeros((int(target_words.max()) + 2, int(source_words.max(initial=-1)) + 2), np.bool_)
    for i, j in links:
        if i < linked.shape[1] - 1:
            linked[j, i] = True
    of_words = linked[target_words][:, source_words]  # the number -1 takes the last ones, without
    targets, sources = np.nonzero(of_words & _MAY_LINK[target_kinds][:, source_kinds])
    return np.stack([sources, targets])
