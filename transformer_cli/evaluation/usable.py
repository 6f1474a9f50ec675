"""Whether a trained model is of any use, by what it makes of a test set: for the last line of a run."""

from collections import Counter
from collections.abc import Sequence

from transformer_cli.decoding.quality import repeats_itself
from transformer_cli.evaluation.metrics import Score

# Scores of text that has nothing to do with its references: chance matches of single words, or of letters.
CHANCE = {"BLEU": 1.0, "chrF2": 10.0}


def unusable_outputs(sources: Sequence[str], outputs: Sequence[str]) -> str:
    """The fault of more than half of the translations of lines with text, in a clause; empty if there is none."""
    pairs = {source: output for source, output in zip(sources, outputs, strict=True) if source.strip()}
    if not pairs:
        return ""
    texts = [output.strip() for output in pairs.values()]
    (_, n_same), *_ = Counter(texts).most_common(1)
    counts = {
        "empty": texts.count(""),
        "the same text": n_same if n_same > 1 else 0,
        "loops of words": sum(repeats_itself(output, source) for source, output in pairs.items()),
    }
    for what, count in counts.items():
        if 2 * count > len(texts):
            return f"{count:,} of {len(texts):,} translations are {what}"
    return ""


def chance_score(scores: Sequence[Score]) -> str:
    """A clause for a score that text without any relation to its references has; empty for a higher one."""
    for name, most in CHANCE.items():
        for score in scores:
            if score.name == name:
                is_chance = score.value < most
                return f"{name} is {score.value:.{score.digits}f}, which is no more than chance" if is_chance else ""
    return ""
