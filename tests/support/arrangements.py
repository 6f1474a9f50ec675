"""The same lines in batches of other composition: alone, in batches of any size, in any order, sorted or not."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from transformer_cli.config.decode import DecodeConfig
from transformer_cli.decoding.plan import Segment
from transformer_cli.decoding.results import Translated
from transformer_cli.decoding.torch_engine import TorchEngine
from transformer_cli.decoding.translator import Translator

Hypotheses = list[tuple[str, float]]  # text and score of each


@dataclass(frozen=True)
class Arrangement:
    """What may differ from run to run and must not change a translation."""

    batch_tokens: int = 4096  # 1: every line alone
    order: int | None = None  # seed of a shuffle; unset: as the lines are given
    sort: bool = True  # False: batches of any lengths, in the given order
    at_a_time: int | None = None  # lines in one call; unset: all
    guest: str | None = None  # a line among the others


ALONE = Arrangement(batch_tokens=1)


class Unsorted(TorchEngine):
    """Batches lines as they come, so that long and short ones meet."""

    def _batches(self, segments: Sequence[Segment], config: DecodeConfig) -> Iterator[list[Segment]]:
        batch: list[Segment] = []
        for segment in segments:
            longest = max(len(other.ids) + 1 for other in [*batch, segment])
            if batch and (len(batch) + 1) * longest > config.batch_tokens:
                yield batch
                batch = []
            batch.append(segment)
        if batch:
            yield batch


def translate_in(arrangement: Arrangement, translator: Translator, lines: Sequence[str]) -> list[Hypotheses]:
    """What each of `lines` becomes, in the order in which they are given here."""
    places: list[int | None] = list(range(len(lines)))
    if arrangement.guest is not None:
        places.insert(len(places) // 2, None)
    if arrangement.order is not None:
        random.Random(arrangement.order).shuffle(places)
    engine = translator.engine
    assert isinstance(engine, TorchEngine)
    rearranged = (TorchEngine if arrangement.sort else Unsorted)(
        engine.model, engine.tokenizers, device=engine.device, batch_invariant=engine.batch_invariant
    )
    config = replace(translator.config, batch_tokens=arrangement.batch_tokens)
    arranged = Translator(rearranged, config, seed=translator.seed)
    text = [arrangement.guest or "" if place is None else lines[place] for place in places]
    size = arrangement.at_a_time or len(text)
    results: list[Translated] = []
    for start in range(0, len(text), size):
        results += arranged.translate(text[start : start + size], first_line=start + 1)
    found: list[Hypotheses] = [[] for _ in lines]
    for place, result in zip(places, results, strict=True):
        if place is not None:
            found[place] = result.hypotheses
    return found


@dataclass(frozen=True)
class Difference:
    """A line of which one arrangement differs from that of the first."""

    line: str
    expected: Hypotheses
    found: Hypotheses

    @property
    def gap(self) -> float:
        """The difference between the scores of the best hypotheses."""
        return abs(self.expected[0][1] - self.found[0][1])

    def __str__(self) -> str:
        (text, score), (other, other_score) = self.expected[0], self.found[0]
        return f"{self.line!r}: {text!r} ({score:.7f}) or {other!r} ({other_score:.7f}), a gap of {self.gap:.1e}"


def differences(
    lines: Sequence[str], expected: Sequence[Hypotheses], found: Sequence[Hypotheses], *, tolerance: float
) -> list[Difference]:
    """Lines with another text, or with a score that is further away than `tolerance`."""
    return [
        Difference(line, one, other)
        for line, one, other in zip(lines, expected, found, strict=True)
        if [text for text, _ in one] != [text for text, _ in other] or score_gap(one, other) > tolerance
    ]


def score_gap(one: Hypotheses, other: Hypotheses) -> float:
    """The largest difference between scores of the same rank."""
    return max(abs(score - other_score) for (_, score), (_, other_score) in zip(one, other, strict=True))
