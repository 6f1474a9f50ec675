"""A comparison without systems: three, two of them runs of one config with other seeds, with everything a page has."""

import random
from collections.abc import Sequence

from transformer_cli.addons.comparison.results import (
    Breakdown,
    Bucket,
    Comparison,
    ConfigDifference,
    Curve,
    GroupComparison,
    GroupScore,
    Sentence,
    System,
)
from transformer_cli.evaluation.significance import MetricComparison, PairedResult, SystemScore

NAMES = ["base/1", "deep/1", "deep/2"]
TEXT = "ein Mann mit einem roten Hut steht neben zwei Hunden und sieht auf das Wasser"


def toy_comparison(
    *, names: Sequence[str] = NAMES, text: str | None = None, n_sentences: int = 12, seed: int = 1
) -> Comparison:
    """`text` takes the place of every text that users write."""
    draw = random.Random(seed)
    systems = range(len(names))

    def line() -> str:
        return text if text is not None else " ".join(draw.sample(TEXT.split(), draw.randint(3, 12))) + "."

    def sentence(number: int, *, baseline_wins: bool) -> Sentence:
        """A sentence whose best or worst translation is the baseline's."""
        scores = sorted((draw.uniform(0, 100) for _ in systems), reverse=baseline_wins)
        return Sentence(number, line(), [line(), line()], [line() for _ in systems], scores)

    def bucket(label: str) -> Bucket:
        return Bucket(label, draw.randint(1, 900), [draw.uniform(10, 60) for _ in systems])

    lines = draw.sample(range(1, 4000), 2 * n_sentences * len(names))
    better, worse = (
        {i: [sentence(lines.pop(), baseline_wins=wins) for _ in range(n_sentences)] for i in systems if i}
        for wins in (False, True)
    )
    p_values = [(0.0, 0.0), (0.000999, 0.003), (0.41, 0.4445), *((draw.random(), None) for _ in systems)]

    def metric(name: str, first: list[float], low: int, *, higher_is_better: bool) -> MetricComparison:
        scores = [*first, *(draw.uniform(low, low + 20) for _ in systems)][: len(names)]
        paired = [PairedResult(score - scores[0], *p) for score, p in zip(scores, p_values, strict=False)]
        shown = [SystemScore(score, score + 0.02, 0.87 + i / 100) for i, score in enumerate(scores)]
        signature = f"nrefs:2|bs:1000|seed:12345|{text or 'tok:13a'}"
        return MetricComparison(name, signature, higher_is_better, shown, [None, *paired[1:]])

    def system(i: int, name: str) -> System:
        path, search, group = f"runs/{name}{text or ''}", f"beam:4|{text or 'length_penalty:0.6'}", name.split("/")[0]
        return System(name, path, "run", [line(), line()], search, f"{i}f9c2e" * 10 + "abcd", text or group)

    def curve(i: int, name: str) -> Curve:
        points = [(250 * n, 35 * (1 - 0.8**n) + i + draw.random()) for n in range(1, 17)]
        return Curve(i, name, points, higher_is_better=name == "dev_bleu")

    base, deep, words = text or "base", text or "deep", text or "words of the reference"
    lengths = [bucket(label) for label in ("1–10", "11–20", "21–30", text or "31+")]
    frequencies = [bucket("100+"), bucket("10–99"), Bucket("0", 0, [None for _ in systems])]
    return Comparison(
        test_set=text or "test_2016_flickr",
        n_lines=1234,
        n_references=2,
        systems=[system(i, name) for i, name in enumerate(names)],
        metrics=[
            metric("BLEU", [30.11, 31.35, 29.97], 20, higher_is_better=True),
            metric("TER", [50.23, 48.71, 50.31], 40, higher_is_better=False),
        ],
        sentence_metric=text or "chrF2",
        better=better,
        worse=worse,
        groups=[
            GroupScore(base, "BLEU", 1, 30.11, 0.0, 30.11, 30.11),
            GroupScore(deep, "BLEU", 2, 30.66, 0.976, 29.97, 31.35),
        ],
        group_comparisons=[GroupComparison("BLEU", base, deep, 0.55, None)],
        breakdowns=[
            Breakdown(text or "chrF2 by length of the reference", text or "lines", words, lengths),
            Breakdown("Recall of words by frequency", "words", "occurrences in the training text", frequencies),
        ],
        curves=[curve(i, name) for name in ("dev_bleu", text or "dev_nll") for i in systems],
        config_differences=[
            ConfigDifference("model.n_layers", [str(4 + 2 * i) for i in systems]),
            ConfigDifference(f"data.{text or 'name'}", [None, *(text or "multi30k" for i in systems if i)]),
        ],
        statistics=[
            {
                **{"length_ratio": 0.98 + i / 97, "empty_but_reference_is_not": 1000 * i, "unknown_signs": None},
                text or "copies": 0.0123,
            }
            for i in systems
        ],
        notes=[text or "Two lines of the test set are also in the training text."],
        source_language="en",
        target_language="de",
    )
