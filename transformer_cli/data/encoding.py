"""Parallel tokenization: chunks of pairs are encoded by worker processes, and returned in order."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice, repeat
from pathlib import Path
from typing import TypeVar

import numpy as np

from transformer_cli.data.cache import Array
from transformer_cli.data.context import Context, ContextEncoder, without_breaks
from transformer_cli.data.shards import PartStore, each_part
from transformer_cli.data.tokenizer import Tokenizer, Tokenizers

_CHUNK = 10_000  # pairs encoded at a time

_ItemT = TypeVar("_ItemT")


@dataclass(frozen=True)
class Encoded:
    """The concatenated sentences of one side, without EOS, and the length of each."""

    ids: Array
    lengths: Array

    @classmethod
    def of(cls, tokenizer: Tokenizer, lines: list[str], *, n_threads: int | None) -> "Encoded":
        return cls.of_sentences(tokenizer.encode(lines, n_threads=n_threads, as_written=True))

    @classmethod
    def of_sentences(cls, sentences: Sequence[Sequence[int]]) -> "Encoded":
        lengths = np.fromiter(map(len, sentences), np.int64, len(sentences))
        return cls(np.fromiter(chain.from_iterable(sentences), np.int32, lengths.sum()), lengths)

    def count(self, wanted: Collection[int]) -> Array:
        """How many of the tokens `wanted` each sentence has."""
        if not wanted:
            return np.zeros_like(self.lengths)
        rows = np.repeat(np.arange(len(self.lengths)), self.lengths)
        return np.bincount(rows[np.isin(self.ids, list(wanted))], minlength=len(self.lengths))

    def through_last(self, wanted: int) -> Array:
        """How many tokens each sentence has up to the last token `wanted`, with it; 0 where it has none."""
        found = np.zeros_like(self.lengths)
        places = np.flatnonzero(self.ids == wanted)
        starts = np.cumsum(self.lengths) - self.lengths
        rows = np.repeat(np.arange(len(self.lengths)), self.lengths)[places]
        np.maximum.at(found, rows, places - starts[rows] + 1)
        return found

    def joined(self, second: "Encoded", tokenizer: Tokenizer) -> "Encoded":
        """Each of these texts, EOS, and that of `second`: see `data.pairs`; nothing where one of the two is empty."""
        both = (self.lengths > 0) & (second.lengths > 0)
        firsts, seconds = (
            Encoded(np.where(one.ids == tokenizer.eos_id, tokenizer.unk_id, one.ids), one.lengths)
            for one in (self, second)
        )
        firsts, seconds = firsts.pick(both, [tokenizer.eos_id]), seconds.pick(both, [])
        lengths = np.zeros_like(self.lengths)
        lengths[both] = firsts.lengths + seconds.lengths
        is_first = np.repeat(
            np.tile([True, False], int(both.sum())), np.stack([firsts.lengths, seconds.lengths], 1).flat
        )
        ids = np.empty(len(is_first), self.ids.dtype)
        ids[is_first], ids[~is_first] = firsts.ids, seconds.ids
        return Encoded(ids, lengths)

    def truncated(self, longest: int) -> "Encoded":
        """At most the first `longest` tokens of each sentence."""
        starts = np.cumsum(self.lengths) - self.lengths
        position = np.arange(len(self.ids)) - np.repeat(starts, self.lengths)
        return Encoded(self.ids[position < longest], np.minimum(self.lengths, longest))

    def pick(self, keep: Array, end_ids: Sequence[int], *, bos_id: int | None = None) -> "Encoded":
        """The sentences where `keep` is true, each with EOS at its end and, where one is given, BOS at its start."""
        kept = self.ids[np.repeat(keep, self.lengths)]
        lengths = self.lengths[keep]
        if bos_id is not None:
            kept, lengths = np.insert(kept, np.cumsum(lengths) - lengths, bos_id), lengths + 1
        if not end_ids:
            return Encoded(kept, lengths)
        (eos_id,) = end_ids
        return Encoded(np.insert(kept, np.cumsum(lengths), eos_id), lengths + 1)


def chunks(pairs: Iterable[_ItemT], size: int) -> Iterator[list[_ItemT]]:
    rest = iter(pairs)
    return iter(lambda: list(islice(rest, size)), [])


def encoded(
    pairs: Iterable[tuple[str, str]],
    tokenizers: Tokenizers,
    *,
    n_processes: int,
    store: PartStore | None = None,
    contexts: Iterable[Context] | None = None,
    n_context: int = 0,
    longest: int = 0,
) -> Iterator[tuple[Encoded, Encoded]]:
    """Both sides of chunks of `pairs`, in order, the same whatever the number of processes. Raises EnvironmentFault.

    With `contexts`, of `n_context` sentences, each source has its own before it, in `longest` tokens together.

    One process is this one, in which SentencePiece uses threads; the Python around it then has one core.
    """
    models = (tokenizers.source.model_bytes, tokenizers.target.model_bytes)
    work = _Encode(*models, n_threads=1 if n_processes > 1 else None, n_context=n_context, longest=longest)
    of_each: Iterable[Context] = repeat(()) if contexts is None else contexts
    parts = chunks(zip(pairs, of_each, strict=contexts is not None), _CHUNK)
    return each_part(store, "encoded", work, parts, _Arrays(), n_processes=n_processes, what="encodes text")


class _Arrays:
    """Both sides of encoded pairs in a file: the sizes of four arrays, and these, as int64."""

    def save(self, path: Path, sides: tuple[Encoded, Encoded]) -> None:
        arrays = [array.astype("<i8") for side in sides for array in (side.ids, side.lengths)]
        with path.open("wb") as file:
            file.write(np.array([len(array) for array in arrays], "<i8").tobytes())
            file.writelines(array.tobytes() for array in arrays)

    def load(self, path: Path) -> tuple[Encoded, Encoded]:
        numbers = np.frombuffer(path.read_bytes(), "<i8")
        source_ids, source_lengths, target_ids, target_lengths = np.split(numbers[4:], np.cumsum(numbers[:3]))
        return (
            Encoded(source_ids.astype(np.int32), source_lengths),
            Encoded(target_ids.astype(np.int32), target_lengths),
        )


@dataclass(frozen=True)
class _Encode:
    """Encodes pairs, in whichever process: the tokenizers are made where they are used."""

    source_model: bytes
    target_model: bytes
    n_threads: int | None
    n_context: int = 0
    longest: int = 0

    @cached_property
    def _context(self) -> ContextEncoder:
        return ContextEncoder(self._tokenizers.source, self.n_context)

    @cached_property
    def _tokenizers(self) -> Tokenizers:
        source = Tokenizer(self.source_model)
        return Tokenizers(source, source if self.source_model == self.target_model else Tokenizer(self.target_model))

    def __call__(self, pairs: Sequence[tuple[tuple[str, str], Context]]) -> tuple[Encoded, Encoded]:
        sources, targets = [source for (source, _), _ in pairs], [target for (_, target), _ in pairs]
        of_targets = self._tokenizers.encode_targets(sources, targets, n_threads=self.n_threads, as_written=True)
        return self._sources(sources, [context for _, context in pairs]), Encoded.of_sentences(of_targets)

    def _sources(self, sources: list[str], contexts: Sequence[Context]) -> Encoded:
        tokenizer = self._tokenizers.source
        if not self.n_context:
            return Encoded.of(tokenizer, sources, n_threads=self.n_threads)
        plain = tokenizer.encode(list(map(without_breaks, sources)), n_threads=self.n_threads, as_written=True)
        return Encoded.of_sentences(
            self._context.put_before(plain, contexts, self.longest, n_threads=self.n_threads, as_written=True)
        )
