"""What scores do not show of translations: their length, degenerate outputs, and what they have lost of their sources.

Nothing here knows a language, so a figure is to be compared with that of another system on the same lines, and with
that of the reference, rather than with zero.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_

from transformer_cli.decoding.quality import copied, repeats_itself
from transformer_cli.evaluation.metrics import Translations
from transformer_cli.evaluation.tokenization import KOREAN, PLAIN, suited_tokenizer
from transformer_cli.evaluation.verbatim import links, numbers

UNKNOWN_SIGNS = ("⁇", "<unk>", "\ufffd")
_WITHOUT_BLANKS = re.compile(r"[\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3041-\u30ff\u3400-\u4dbf\u4e00-\u9fff]")


@dataclass(frozen=True)
class Losses:
    """Lines that have something to be kept, and in how many of them some of it is lost."""

    n_lines: int
    n_lost: int
    n_lost_in_reference: int | None = None  # where translations are compared with their sources

    def as_dict(self) -> dict[str, object]:
        found: dict[str, object] = {"lines": self.n_lines, "lost": self.n_lost}
        return found if self.n_lost_in_reference is None else {**found, "lost_in_reference": self.n_lost_in_reference}


@dataclass(frozen=True)
class TextStatistics:
    """Counts of lines. The length ratio is that of all lines together, to the references of the closest length."""

    n_lines: int
    length_ratio: float | None  # None: the references are empty
    length_unit: str  # words, or characters where the script has no blanks between words
    n_loops: int  # `decoding.quality.repeats_itself`, compared with the source, else with the reference
    n_copies: int | None  # `decoding.quality.copied`; None without sources
    n_empty: int
    n_empty_wrongly: int  # and the references are not
    n_unknown: int  # lines with a sign of the unknown token that their source, else their reference, does not have
    numbers: Losses
    links: Losses  # URLs and e-mail addresses
    compared_with: str  # source or reference: what numbers and links are looked up in

    def as_dict(self) -> dict[str, object]:
        """The statistics for programs."""
        return {
            "lines": self.n_lines,
            "length_ratio": self.length_ratio,
            "length_unit": self.length_unit,
            "loops": self.n_loops,
            "copies": self.n_copies,
            "empty": self.n_empty,
            "empty_but_reference_is_not": self.n_empty_wrongly,
            "unknown_signs": self.n_unknown,
            "compared_with": self.compared_with,
            "numbers": self.numbers.as_dict(),
            "urls": self.links.as_dict(),
        }

    def lines(self) -> list[str]:
        """The statistics for people: one line of what is well, and one of each thing that is not."""
        counts = {"loops": self.n_loops, "empty lines": self.n_empty_wrongly, "unknown signs": self.n_unknown}
        if self.n_copies is not None:
            counts["copies of the source"] = self.n_copies
        losses = {"numbers": self.numbers, "URLs": self.links}
        ratio = "none" if self.length_ratio is None else f"{self.length_ratio:.3f} in {self.length_unit}"
        well = [f"no {name}" for name, count in counts.items() if not count]
        well += [f"{name} kept ({_lines(it.n_lines)})" for name, it in losses.items() if it.n_lines and not it.n_lost]
        rows = [f"length ratio {ratio}; " + ", ".join(well)] if well else [f"length ratio {ratio}"]
        rows += [f"{name}: {_share(count, self.n_lines)}" for name, count in counts.items() if count]
        for name, it in losses.items():
            if it.n_lost:
                of_reference = it.n_lost_in_reference
                beside = "" if of_reference is None else f"; the reference loses some in {of_reference:,}"
                rows.append(
                    f"{name} lost: {_share(it.n_lost, it.n_lines)} with some in the {self.compared_with}{beside}"
                )
        return rows


def text_statistics(translations: Translations) -> TextStatistics:
    """The statistics of `translations`; those that need sources only where there are sources.

    A number is lost if the translation has it less often than the source; it is compared by its digits alone
    (`verbatim.numbers`), so 1,000.5 is kept as 1.000,5, and lost if it is written in words. A URL or an e-mail address
    is lost if it is not there exactly. Without sources it is what all references have that may be lost.
    """
    hypotheses, references, sources = translations.hypotheses, translations.references, translations.sources
    origins = sources or references[0]
    pairs = list(zip(hypotheses, origins, strict=True))
    suited = suited_tokenizer(references, PLAIN)
    has_blanks = suited in (None, KOREAN)
    return TextStatistics(
        n_lines=len(hypotheses),
        length_ratio=length_ratio(hypotheses, references, has_blanks=has_blanks),
        length_unit="words" if has_blanks else "characters",
        n_loops=sum(repeats_itself(text, origin) for text, origin in pairs),
        n_copies=sum(is_copy(text, source) for text, source in pairs) if sources else None,
        n_empty=sum(not text.strip() for text in hypotheses),
        n_empty_wrongly=sum(
            not text.strip() and all(reference[i].strip() for reference in references)
            for i, text in enumerate(hypotheses)
        ),
        n_unknown=sum(has_unknown_sign(text, origin) for text, origin in pairs),
        numbers=_losses(numbers, translations),
        links=_losses(links, translations),
        compared_with="source" if sources else "reference",
    )


def length_ratio(hypotheses: Sequence[str], references: Sequence[Sequence[str]], *, has_blanks: bool) -> float | None:
    """Words (or characters but blanks) of the hypotheses for each of the references; of several, the closest in length.

    Of two that are equally close the shorter one counts, as in BLEU.
    """

    def size(text: str) -> int:
        return len(text.split()) if has_blanks else sum(not sign.isspace() for sign in text)

    n_ours = n_theirs = 0
    for text, *of_line in zip(hypotheses, *references, strict=True):
        length = size(text)
        n_ours += length
        n_theirs += min((size(reference) for reference in of_line), key=lambda other: (abs(other - length), other))
    return n_ours / n_theirs if n_theirs else None


def is_copy(text: str, source: str) -> bool:
    """`copied`, with every character a word in scripts without blanks."""
    return copied(*(_WITHOUT_BLANKS.sub(r" \g<0> ", it) for it in (text, source)))


def has_unknown_sign(text: str, origin: str) -> bool:
    return any(sign in text and sign not in origin for sign in UNKNOWN_SIGNS)


def _losses(found_in: Callable[[str], Counter[str]], translations: Translations) -> Losses:
    references = translations.references
    if translations.sources:
        wanted = [found_in(source) for source in translations.sources]
    else:
        wanted = [reduce(and_, map(found_in, of_line)) for of_line in zip(*references, strict=True)]
    return Losses(
        n_lines=sum(map(bool, wanted)),
        n_lost=_count_lost(found_in, wanted, translations.hypotheses),
        n_lost_in_reference=_count_lost(found_in, wanted, references[0]) if translations.sources else None,
    )


def _count_lost(found_in: Callable[[str], Counter[str]], wanted: Sequence[Counter[str]], texts: Sequence[str]) -> int:
    return sum(not parts <= found_in(text) for parts, text in zip(wanted, texts, strict=True) if parts)


def _share(count: int, n_lines: int) -> str:
    return f"{count:,} of {_lines(n_lines)} ({100 * count / n_lines:.1f} %)"


def _lines(count: int) -> str:
    return f"{count:,} line{'s' * (count != 1)}"
