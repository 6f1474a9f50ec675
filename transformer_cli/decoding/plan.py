"""Lines as the segments that are translated one by one, and their hypotheses joined to lines again."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from transformer_cli.config.checks import AUTO
from transformer_cli.config.decode import DecodeConfig, LongLines
from transformer_cli.data.context import Context, ContextEncoder, contexts_of, without_breaks
from transformer_cli.data.normalization import format_characters, has_letters, normalize, visible
from transformer_cli.data.sentences import has_no_spaces
from transformer_cli.data.tags import split_tags
from transformer_cli.data.tokenizer import Tokenizer, Tokenizers, as_one_line
from transformer_cli.data.unknown import unknown_characters
from transformer_cli.decoding.quality import copied, repeats_itself
from transformer_cli.decoding.results import Candidate, Translated
from transformer_cli.decoding.search import Hypothesis
from transformer_cli.decoding.segmentation import EncodedText, sentences_of, split_line
from transformer_cli.decoding.terminology import Term, Terminology
from transformer_cli.decoding.training_text import TrainingText
from transformer_cli.errors import ConfigError
from transformer_cli.logs import LOGGER
from transformer_cli.registry import did_you_mean

_TAG_LIKE = re.compile(r"<2\w[^<>\s]*>|>>\w[^<>\s]*<<|__\w[^\s_]*__")  # as tags of a language are written
N_NAMED = 10  # line numbers in a warning; the rest are counted
TREATMENTS = {
    LongLines.split: "translated in parts",
    LongLines.cut: "the rest is left out; decode.long_lines=split translates all",
}
AS_IN_TRAINING = "the rest is left out, as in training"  # of a model that parts of a text would say nothing to

SegmentKey = tuple[int, int]  # line and part
Hypotheses = dict[SegmentKey, list[Hypothesis]]  # those of each segment, best first


@dataclass(frozen=True)
class Segment:
    """A line, or a part of one: a sentence, or as much as fits the model."""

    line: int  # index in the lines given
    part: int  # number within its line
    ids: list[int]  # without EOS
    text: str = ""  # which `ids` encode, without its tags
    n_tags: int = 0  # tokens before those of the text: of its tags, and of its context
    prefix: tuple[int, ...] = ()  # tokens that its translation begins with
    n_first: int = 0  # of them those that the model's every translation begins with, as that of its language
    terms: tuple[Term, ...] = ()  # of the terminology, that are in `text`
    required: tuple[tuple[int, ...], ...] = ()  # token sequences that its translation must contain
    whole: frozenset[tuple[int, ...]] = frozenset()  # of these, those that may not become a longer word

    @property
    def key(self) -> SegmentKey:
        return self.line, self.part


@dataclass(frozen=True)
class PlannedLine:
    """A line to translate. Most have one segment, blank ones and those without a letter none."""

    text: str  # without its tags
    segments: list[Segment]
    too_long: bool  # or a sentence of it, if its sentences are translated separately
    unknown: tuple[str, ...] = ()  # characters that the vocabulary does not have
    invisible: tuple[str, ...] = ()  # format characters that were left out of it
    copy: str = ""  # its translation, if it has no segments
    tags: tuple[str, ...] = ()  # before each of its segments


def goes_on() -> None:
    """Does nothing: the default callback, with which a long loop runs to its end."""


class Planner:
    """Splits lines into segments, and joins the hypotheses of segments.

    A line that begins with tags keeps these; any other gets `tags`. Raises ConfigError for a tag that the vocabulary
    does not have.
    """

    def __init__(
        self,
        tokenizers: Tokenizers,
        text: TrainingText,
        config: DecodeConfig,
        terminology: Terminology | None = None,
        tags: Sequence[str] = (),
    ) -> None:
        self.tokenizers, self.text, self.config, self.terminology = tokenizers, text, config, terminology
        check_given_tags(tags, tokenizers.source.tags)
        self.tags, self.plain_source = tuple(tags), tokenizers.source.without_tags()
        self.tag_warnings = TagWarnings(text, tokenizers.source)
        self.max_source_length, self.long_lines = text.longest_source(config), text.long_lines(config)
        self.splits_sentences = text.is_in_sentences if config.split_sentences == AUTO else config.split_sentences
        self.copies_letterless = text.copies_letterless(config) and any(map(str.isalpha, tokenizers.source.alphabet))
        # For a model that may have been trained on single sentences only, a long line is split into these.
        self.packs_sentences = config.split_sentences is False or text.multi_sentence_share is not None
        n = text.context_sentences
        self.context = ContextEncoder(tokenizers.source, n) if n else None

    def plan(
        self,
        lines: Sequence[str],
        prefixes: Sequence[tuple[int, ...]] | None = None,
        *,
        copies: bool = True,
        check: Callable[[], object] = goes_on,
        contexts: Sequence[Context] | None = None,
    ) -> list[PlannedLine]:
        """A prefix is for the first segment of its line, a term for every segment that contains it, a tag for all.

        For a model that reads `contexts`, each segment has that of its line, then the segments before it; if none are
        given, the lines are documents, which blank lines divide.

        A line without a letter has no segments if it `copies` such lines, unless it has a prefix or a term. `check` is
        called before each line; what it raises ends the planning.
        """
        source, plain, work = self.tokenizers.source, self.plain_source, []
        shown = [visible(line) if source.normalizes else line for line in lines]
        split = [split_tags(line, source.tags) for line in shown]
        if self.context is not None:
            contexts = contexts or list(contexts_of(shown, self.context.n, source.tags))
            split = [(tags, without_breaks(text)) for tags, text in split]
        encoded = plain.encode([text for _, text in split])
        for n, ((own_tags, text), ids) in enumerate(zip(split, encoded, strict=True)):
            check()
            tags = tuple(own_tags) or self.tags
            if copies and not (prefixes and prefixes[n]) and self._is_copied(text):
                copy = as_one_line(text if own_tags else lines[n]).strip() if normalize(text) else ""
                work.append(PlannedLine(text, [], too_long=False, copy=copy, tags=tags))
                continue
            own_ids = source.behind(tags, [])
            parts, too_long = self._split(text, ids, self.max_source_length - len(own_ids))
            first_ids = self.tokenizers.source.asked_ids(tags) if parts else ()
            n_first = len(first_ids) + len(self.tokenizers.target.prefix_ids)
            segments = []
            for i, part in enumerate(parts):
                given = (prefixes[n] if prefixes is not None and i == 0 else ()) or self.tokenizers.target.prefix_ids
                prefix = (*first_ids, *given)
                terms = self.terminology.find(part.text) if self.terminology else ()
                tagged = source.behind(tags, part.ids)
                n_tags = source.n_tags(tagged)
                if self.context is not None and contexts:
                    before = (*contexts[n], *(one.text for one in parts[:i]))[-self.context.n :]
                    room = [self.max_source_length - len(tagged)]
                    (context,) = self.context.before([before], room)
                    tagged, n_tags = [*tagged[:n_tags], *context, *tagged[n_tags:]], n_tags + len(context)
                segments.append(Segment(n, i, tagged, part.text, n_tags, prefix, n_first, tuple(terms)))
            invisible = tuple(dict.fromkeys(format_characters(lines[n]))) if shown[n] is not lines[n] else ()
            work.append(
                PlannedLine(text, segments, too_long, unknown_characters(text, ids, plain), invisible, tags=tags)
            )
        return work

    def _is_copied(self, text: str) -> bool:
        if not self.copies_letterless or has_letters(text):
            return False
        return self.terminology is None or not self.terminology.find(text)

    def separator(self, line: PlannedLine) -> str:
        """What stands between the translations of the segments of a line."""
        language = self.tokenizers.source.direction_of(line.tags)[1] or self.text.language_of(line.tags)
        return "" if has_no_spaces(language) else " "

    def room(self, lines: Sequence[str]) -> list[int | None]:
        """How many tokens the prefix of each line's translation may have: one less than a translation, for EOS.

        None for a blank line.
        """
        first = (line.segments[0] if line.segments else None for line in self.plan(lines, copies=False))
        source = self.tokenizers.source
        n_ends, n_languages = len(source.end_ids), 1 if source.languages else 0
        return [
            None if one is None else self.text.longest_translation(self.config, len(one.ids) + n_ends) - 1 - n_languages
            for one in first
        ]

    def _split(self, text: str, ids: list[int], longest: int) -> tuple[list[EncodedText], bool]:
        """The parts of a line that are translated separately, and whether something of it was over `longest` tokens."""
        sentences = [EncodedText(text, ids)] if ids and text.strip() else []
        if ids and self.splits_sentences:
            texts = sentences_of(text, self.text.source_lang)
            if len(texts) > 1:
                encoded = zip(texts, self.plain_source.encode(texts), strict=True)
                sentences = [EncodedText(sentence, its_ids) for sentence, its_ids in encoded if its_ids]
        longest = max(1, longest)
        too_long = any(len(sentence.ids) > longest for sentence in sentences)
        if too_long:
            sentences = [part for sentence in sentences for part in self._within_limit(sentence, longest)]
        return sentences, too_long

    def _within_limit(self, sentence: EncodedText, longest: int) -> list[EncodedText]:
        source = self.plain_source
        if len(sentence.ids) <= longest:
            return [sentence]
        if self.long_lines is LongLines.split:
            language = self.text.source_lang
            return split_line(sentence.text, source, max_tokens=longest, language=language, packs=self.packs_sentences)
        return [EncodedText(source.decode(sentence.ids[:longest]), sentence.ids[:longest])]

    def warn_too_long(self, work: Sequence[PlannedLine], first_line: int) -> None:
        if numbers := [n for n, line in enumerate(work, start=first_line) if line.too_long]:
            LOGGER.warning(
                "%s: longer than %s tokens, %s",
                named(numbers),
                self.text.named_limit(self.config),
                AS_IN_TRAINING
                if self.text.truncates and self.long_lines is LongLines.cut
                else TREATMENTS[self.long_lines],
            )

    def warn_of_tags(self, lines: Sequence[str], work: Sequence[PlannedLine], first_line: int) -> None:
        """Warns of faults in the tags of lines; each warning once."""
        for number, (given, line) in enumerate(zip(lines, work, strict=True), start=first_line):
            if line.segments:
                self.tag_warnings.check(number, given, line.tags)

    def join(self, line: PlannedLine, found: Mapping[SegmentKey, Sequence[Hypothesis]]) -> Translated:
        """The n-th candidate of a line is made of the n-th of each of its segments."""
        if not line.segments:
            return Translated([Candidate(line.copy, 0.0)], left_alone=line.copy != "")
        parts = [found[segment.key] for segment in line.segments]
        separator = self.separator(line) if len(parts) > 1 else ""
        # Short segments may have fewer: their last one is repeated.
        n_best = max(map(len, parts))
        ranks = [[part[min(n, len(part) - 1)] for part in parts] for n in range(n_best)]
        candidates = [
            Candidate(
                text=separator.join(filter(None, map(self._text, rank))),
                score=sum(h.score for h in rank),
                log_prob=sum(h.log_prob for h in rank),
                n_tokens=sum(len(h.ids) + h.finished for h in rank),
                hit_limit=not all(h.finished for h in rank),
            )
            for rank in ranks
        ]
        best = candidates[0].text
        return Translated(
            candidates,
            n_parts=len(parts),
            split=line.too_long and self.long_lines is LongLines.split,
            cut=line.too_long and self.long_lines is LongLines.cut,
            hit_limit=candidates[0].hit_limit,
            repeats_itself=repeats_itself(best, line.text),
            copied=not self.text.is_monolingual and copied(best, line.text),
            empty=not best,
            unknown=line.unknown,
            invisible=line.invisible,
        )

    def _text(self, hypothesis: Hypothesis) -> str:
        return self.tokenizers.target.decode(hypothesis.ids) if hypothesis.text is None else hypothesis.text


def check_given_tags(tags: Sequence[str], known: Sequence[str]) -> None:
    """Raise ConfigError for a tag that is not one of `known`, those of a model."""
    for tag in tags:
        if not known:
            raise ConfigError(f"--tag {tag}: the model has no tags. Leave it out")
        if tag not in known:
            guess = did_you_mean(tag, known)
            raise ConfigError(f"--tag {tag}: the model has no such tag{guess} ({listed_tags(known)})")


class TagWarnings:
    """Says once that a line has no tag where it needs one, and that one begins with what only looks like a tag."""

    def __init__(self, text: TrainingText, source: Tokenizer) -> None:
        self.text, self.known = text, source.tags
        # Without a language of its tokenizer no line is translated, so that there is nothing to warn of.
        self.lacked, self.unlike = bool(source.languages), False

    def check(self, number: int, line: str, tags: Sequence[str]) -> None:
        if not self.known:
            return
        if not self.unlike and (unknown := _TAG_LIKE.match(split_tags(line, self.known)[1].lstrip())):
            self.unlike = True
            LOGGER.warning(
                "line %d: %s is no tag of the model, and read as text%s (%s)",
                *(number, unknown[0], did_you_mean(unknown[0], self.known), listed_tags(self.known)),
            )
        if not self.lacked and self.text.lacks_tag(tags):
            self.lacked = True
            what = "no tag, but every line of training had one"
            if self.text.is_multilingual:
                what = f"no tag, or several, for one of the target languages {self.text.target_lang}"
            LOGGER.warning("line %d: has %s. Give it one, or --tag (%s)", number, what, listed_tags(self.known))


def listed_tags(tags: Sequence[str]) -> str:
    """`tags: <2de>, <2fr>`; of very many, the first."""
    more = f" and {len(tags) - N_NAMED} more" if len(tags) > N_NAMED else ""
    return f"tags: {', '.join(tags[:N_NAMED])}{more}"


def named(numbers: Sequence[int]) -> str:
    """`line 3`; `lines 3, 8`; `lines 1, 2, …, 10 and 73 more`."""
    more = f" and {len(numbers) - N_NAMED} more" if len(numbers) > N_NAMED else ""
    return ("line " if len(numbers) == 1 else "lines ") + ", ".join(map(str, numbers[:N_NAMED])) + more
