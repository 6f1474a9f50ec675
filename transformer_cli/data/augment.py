"""Augmentation of the training text: pairs are changed as their batches are made, other ones in each epoch.

What is drawn for a pair follows from the seed, the epoch and its place in the corpus. Most of the kinds are those of
OpusTrainer (Bogoychev et al. 2023, arXiv 2311.14838). The text is that of the stored ids: nothing is prepared anew.
"""

from dataclasses import dataclass
from random import Random

import numpy as np

from transformer_cli.config.data import AUGMENTATIONS, DataConfig
from transformer_cli.data.cache import Array, EncodedCorpus
from transformer_cli.data.noise import (
    inserted_at,
    some_number,
    title_case,
    upper_case,
    with_typos,
    without_final_stop,
)
from transformer_cli.data.sentences import has_no_spaces, split_sentences
from transformer_cli.data.shuffling import splitmix64
from transformer_cli.data.tokenizer import Tokenizers

_PURPOSE = np.uint64(0x6175676D656E74)  # of its random bits, apart from other uses of the seed
_NAMES = ("name", "user", "count", "file", "date", "id", "value", "item", "size", "title", "n", "x")
_EMOJI = "😀😃😄😁😅😂🙂😉😊😍😎🤔😐😴😢😭😡👍👎👏🙏💪🔥⭐🎉🎂🚀🚗🏠🌍🌞☕🍕🐶🐱"
# The first letter of some blocks of Unicode, and how many letters follow each other there.
_BLOCKS = ((0x61, 26), (0xE0, 23), (0x3B1, 17), (0x430, 32), (0x5D0, 27), (0x905, 53), (0x3041, 86), (0x4E00, 20_000))

Pair = tuple[str, str]


@dataclass(frozen=True)
class Augmenter:
    """Changes the pairs of an update of a corpus."""

    corpus: EncodedCorpus
    tokenizers: Tokenizers
    config: DataConfig
    seed: int

    def augmented(self, pairs: EncodedCorpus, indices: Array, *, epoch: int) -> EncodedCorpus:
        """`pairs`, which are those of the corpus at `indices`, with some of them changed.

        A pair stays as it is where the change leaves it without text, longer than data.max_length, or with something
        that the vocabulary cannot write.
        """
        rates = self.config.augment.rates
        draws = draw(indices, seed=self.seed, epoch=epoch)
        is_drawn = np.stack([_is_below(draws[AUGMENTATIONS.index(kind)], rate) for kind, rate in rates.items()])
        rows = np.flatnonzero(is_drawn.any(axis=0)).tolist()
        if not rows:
            return pairs
        sides = [_split(pairs.source_ids, pairs.source_offsets), _split(pairs.target_ids, pairs.target_offsets)]
        texts = [
            self._changed(
                self._text(sides[0][row], sides[1][row]),
                [kind for kind, drawn in zip(rates, is_drawn[:, row], strict=True) if drawn],
                Random(int(draws[-1, row])),
            )
            for row in rows
        ]
        source, target = self.tokenizers.source, self.tokenizers.target
        sources, targets = source.encode([text[0] for text in texts]), target.encode([text[1] for text in texts])
        for row, source_ids, target_ids in zip(rows, sources, targets, strict=True):
            tags = sides[0][row][: source.n_tags(sides[0][row])]
            changed = [[*tags, *source_ids[len(source.prefix_ids) :], *source.end_ids], [*target_ids, *target.end_ids]]
            if source_ids and target_ids and self._is_usable(*changed):
                sides[0][row], sides[1][row] = changed
        return EncodedCorpus.of(*sides)

    def _is_usable(self, source_ids: list[int], target_ids: list[int]) -> bool:
        is_short = max(len(source_ids), len(target_ids)) <= self.config.max_length
        return is_short and self.tokenizers.target.unk_id not in target_ids

    def _text(self, source_ids: list[int], target_ids: list[int]) -> Pair:
        source, target = self.tokenizers.source, self.tokenizers.target
        return source.decode(source_ids[source.n_tags(source_ids) :]), target.decode(
            target_ids[len(target.prefix_ids) :]
        )

    def _changed(self, pair: Pair, kinds: list[str], random: Random) -> Pair:
        """`pair` after each of `kinds`, in their order."""
        source_only = {*self.config.augment.source_only, "typos"}
        for kind in kinds:
            if kind == "merged":
                pair = self._merged(pair, random)
            elif kind == "split":
                pair = self._split_pair(pair, random)
            elif kind == "noise":
                pair = (noise(random),) * 2
            elif kind == "placeholders":
                thing, place = placeholder(random), random.random()
                pair = inserted_at(pair[0], thing, place), inserted_at(pair[1], thing, place)
            else:
                pair = (
                    within_a_line(kind, pair[0], random),
                    (pair[1] if kind in source_only else within_a_line(kind, pair[1], random)),
                )
        return pair

    def _merged(self, pair: Pair, random: Random) -> Pair:
        """With another pair of the corpus behind it."""
        other = self.corpus.pick(np.array([random.randrange(len(self.corpus))]))
        text = self._text(other.source_ids.tolist(), other.target_ids.tolist())
        languages = self.config.source_lang, self.config.target_lang
        first, second = (
            f"{one}{'' if has_no_spaces(language) else ' '}{its_next}"
            for one, its_next, language in zip(pair, text, languages, strict=True)
        )
        return first, second

    def _split_pair(self, pair: Pair, random: Random) -> Pair:
        """One sentence of several, where both sides have as many."""
        sources = split_sentences(pair[0], self.config.source_lang)
        targets = split_sentences(pair[1], self.config.target_lang)
        if len(sources) != len(targets):
            return pair
        return random.choice(list(zip(sources, targets, strict=True)))


def draw(indices: Array, *, seed: int, epoch: int) -> Array:
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


def within_a_line(kind: str, line: str, random: Random) -> str:
    if kind == "typos":
        return with_typos(line, random)
    return {"upper_case": upper_case, "title_case": title_case, "no_final_stop": without_final_stop}[kind](line)


def placeholder(random: Random) -> str:
    """What a translation must contain as it is: a placeholder of a program, a URL or an emoji."""
    name = random.choice(_NAMES)
    kind = random.randrange(4)
    if kind == 0:
        return random.choice((f"{{{name}}}", f"{{{random.randrange(10)}}}", f"${{{name}}}", f"%({name})s", f"<{name}>"))
    if kind == 1:
        host = "".join(chr(0x61 + random.randrange(26)) for _ in range(random.randint(3, 9)))
        scheme, domain = random.choice(("https://", "http://", "https://www.")), random.choice(("com", "org", "net"))
        path = random.choice(("", f"/{name}", f"/{name}?id={some_number(random)}", f"/{name}.html"))
        return f"{scheme}{host}.{domain}{path}"
    if kind == 2:
        return some_number(random)
    return random.choice(_EMOJI)


def noise(random: Random) -> str:
    """Two to six words of random letters of some script."""
    first, n_letters = random.choice(_BLOCKS)
    words = (
        "".join(chr(first + random.randrange(n_letters)) for _ in range(random.randint(2, 8)))
        for _ in range(random.randint(2, 6))
    )
    return " ".join(words)
