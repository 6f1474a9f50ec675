"""The lines of a test set on which a system gains or loses most against the baseline."""

from collections.abc import Sequence

from transformer_cli.addons.comparison.results import Sentence
from transformer_cli.evaluation.metrics import Translations


def differing_sentences(
    systems: Sequence[Translations],
    scores: Sequence[Sequence[float]],
    *,
    higher_is_better: bool,
    n: int,
) -> tuple[dict[int, list[Sentence]], dict[int, list[Sentence]]]:
    """System → the `n` lines on which it gains most, and those on which it loses most, the largest difference first.

    `scores` are those of each line, by system; system 0 is the baseline. A line with equal scores is in neither.
    """
    better: dict[int, list[Sentence]] = {}
    worse: dict[int, list[Sentence]] = {}
    sign = 1 if higher_is_better else -1

    def sentence(line: int) -> Sentence:
        return Sentence(
            line + 1,
            systems[0].sources[line] if systems[0].sources else None,
            [reference[line] for reference in systems[0].references],
            [one.hypotheses[line] for one in systems],
            [values[line] for values in scores],
        )

    for system in range(1, len(systems)):
        gains = [sign * (ours - base) for ours, base in zip(scores[system], scores[0], strict=True)]
        order = sorted(range(len(gains)), key=lambda line: -gains[line])
        better[system] = [sentence(line) for line in order[:n] if gains[line] > 0]
        order = sorted(range(len(gains)), key=lambda line: gains[line])
        worse[system] = [sentence(line) for line in order[:n] if gains[line] < 0]
    return better, worse
