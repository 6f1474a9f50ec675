"""Lines as the segments that are translated one by one, and their hypotheses joined to lines again."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from transformer_cli.config.checks import AUTO
from transformer_cli.config.decode import DecodeConfig, LongLines
from transformer_cli.data.sentences import has_no_spaces, split_sentences
from transformer_cli.data.tokenizer import Tokenizers
from transformer_cli.data.unknown import unknown_characters
from transformer_cli.decoding.quality import copied, repeats_itself
from transformer_cli.decoding.results import Candidate, Translated
from transformer_cli.decoding.search import Hypothesis
from transformer_cli.decoding.segmentation import EncodedText, split_line
from transformer_cli.decoding.terminology import Term, Terminology
from transformer_cli.decoding.training_text import TrainingText
from transformer_cli.logs import LOGGER

N_NAMED = 10  # line numbers in a warning; the rest are counted
TREATMENTS = {
    LongLines.split: "translated in parts",
    LongLines.cut: "the rest is left out; decode.long_lines=split translates all",
}

SegmentKey = tuple[int, int]  # line and part
Hypotheses = dict[SegmentKey, list[Hypothesis]]  # those of each segment, best first


@dataclass(frozen=True)
class Segment:
    """A line, or a part of one: a sentence, or as much as fits the model."""

    line: int  # index in the lines given
    part: int  # number within its line
    ids: list[int]  # without EOS
    text: str = ""  # which `ids` encode
    prefix: tuple[int, ...] = ()  # tokens that its translation begins with
    terms: tuple[Term, ...] = ()  # of the terminology, that are in `text`
    required: tuple[tuple[int, ...], ...] = ()  # token sequences that its translation must contain

    @property
    def key(self) -> SegmentKey:
        return self.line, self.part


@dataclass(frozen=True)
class Line:
    """A line to translate. Most have one segment, blank ones none."""

    text: str
    segments: list[Segment]
    too_long: bool  # or a sentence of it, if its sentences are translated separately
    unknown: tuple[str, ...] = ()  # characters that the vocabulary does not have


class Planner:
    """Splits lines into segments, and joins the hypotheses of segments."""

    def __init__(
        self, tokenizers: Tokenizers, text: TrainingText, config: DecodeConfig, terminology: Terminology | None = None
    ) -> None:
        self.tokenizers, self.text, self.config, self.terminology = tokenizers, text, config, terminology
        self.max_source_length = text.longest_source(config)
        self.splits_sentences = text.is_in_sentences if config.split_sentences == AUTO else config.split_sentences
        # For a model that may have been trained on single sentences only, a long line is split into these.
        self.packs_sentences = config.split_sentences is False or text.multi_sentence_share is not None
        self.separator = "" if has_no_spaces(text.target_lang) else " "  # between the translations of segments

    def plan(self, lines: Sequence[str], prefixes: Sequence[tuple[int, ...]] | None = None) -> list[Line]:
        """A prefix is for the first segment of its line, a term for every segment that contains it."""
        source, work = self.tokenizers.source, []
        for n, (text, ids) in enumerate(zip(lines, source.encode(lines), strict=True)):
            parts, too_long = self._split(text, ids)
            segments = []
            for i, part in enumerate(parts):
                prefix = prefixes[n] if prefixes is not None and i == 0 else ()
                terms = self.terminology.find(part.text) if self.terminology else ()
                segments.append(Segment(n, i, part.ids, part.text, prefix, tuple(terms)))
            work.append(Line(text, segments, too_long, unknown_characters(text, ids, source)))
        return work

    def room(self, lines: Sequence[str]) -> list[int | None]:
        """How many tokens the prefix of each line's translation may have: one less than a translation, for EOS.

        None for a blank line.
        """
        first = (line.segments[0].ids if line.segments else None for line in self.plan(lines))
        return [None if ids is None else self.text.longest_translation(self.config, len(ids) + 1) - 1 for ids in first]

    def _split(self, text: str, ids: list[int]) -> tuple[list[EncodedText], bool]:
        """The parts of a line that are translated separately, and whether something of it was too long."""
        sentences = [EncodedText(text, ids)] if ids else []
        if ids and self.splits_sentences:
            texts = split_sentences(text, self.text.source_lang)
            if len(texts) > 1:
                encoded = zip(texts, self.tokenizers.source.encode(texts), strict=True)
                sentences = [EncodedText(sentence, its_ids) for sentence, its_ids in encoded if its_ids]
        too_long = any(len(sentence.ids) > self.max_source_length for sentence in sentences)
        if too_long:
            sentences = [part for sentence in sentences for part in self._within_limit(sentence)]
        return sentences, too_long

    def _within_limit(self, sentence: EncodedText) -> list[EncodedText]:
        longest, source = self.max_source_length, self.tokenizers.source
        if len(sentence.ids) <= longest:
            return [sentence]
        if self.config.long_lines is LongLines.split:
            language = self.text.source_lang
            return split_line(sentence.text, source, max_tokens=longest, language=language, packs=self.packs_sentences)
        return [EncodedText(source.decode(sentence.ids[:longest]), sentence.ids[:longest])]

    def warn_too_long(self, work: Sequence[Line], first_line: int) -> None:
        if numbers := [n for n, line in enumerate(work, start=first_line) if line.too_long]:
            LOGGER.warning(
                "%s: longer than %s tokens, %s",
                named(numbers),
                self.text.named_limit(self.config),
                TREATMENTS[self.config.long_lines],
            )

    def join(self, line: Line, found: Mapping[SegmentKey, Sequence[Hypothesis]]) -> Translated:
        """The n-th candidate of a line is made of the n-th of each of its segments."""
        if not line.segments:
            return Translated([Candidate("", 0.0)])
        parts = [found[segment.key] for segment in line.segments]
        # Short segments may have fewer: their last one is repeated.
        n_best = max(map(len, parts))
        ranks = [[part[min(n, len(part) - 1)] for part in parts] for n in range(n_best)]
        candidates = [
            Candidate(
                text=self.separator.join(filter(None, (self.tokenizers.target.decode(h.ids) for h in rank))),
                score=sum(h.score for h in rank),
                log_prob=sum(h.log_prob for h in rank),
                n_tokens=sum(len(h.ids) + h.finished for h in rank),
            )
            for rank in ranks
        ]
        best = candidates[0].text
        return Translated(
            candidates,
            n_parts=len(parts),
            split=line.too_long and self.config.long_lines is LongLines.split,
            cut=line.too_long and self.config.long_lines is LongLines.cut,
            hit_limit=not all(part[0].finished for part in parts),
            repeats_itself=repeats_itself(best, line.text),
            copied=copied(best, line.text),
            empty=not best,
            unknown=line.unknown,
        )


def named(numbers: Sequence[int]) -> str:
    """`line 3`; `lines 3, 8`; `lines 1, 2, …, 10 and 73 more`."""
    more = f" and {len(numbers) - N_NAMED} more" if len(numbers) > N_NAMED else ""
    return ("line " if len(numbers) == 1 else "lines ") + ", ".join(map(str, numbers[:N_NAMED])) + more
