"""Lines of text to lines of text.

Shapes: B sentences, S source.
"""

import copy
import math
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from itertools import accumulate, chain, groupby, islice
from typing import Any

import torch

from transformer_cli.config.checks import AUTO
from transformer_cli.config.decode import LARGEST_BEAM, DecodeConfig, LongLines, Quantize, SearchKind
from transformer_cli.data.sentences import has_no_spaces, split_sentences
from transformer_cli.data.tokenizer import Tokenizer, Tokenizers, normalize
from transformer_cli.data.unknown import unknown_characters
from transformer_cli.decoding.alignment import align_words, word_numbers
from transformer_cli.decoding.placement import Placement, Translation
from transformer_cli.decoding.quality import copied, repeats_itself
from transformer_cli.decoding.search import (
    SEARCHES,
    ControlIds,
    Demands,
    Hypothesis,
    Task,
    longest_translation,
    rows_per_sentence,
)
from transformer_cli.decoding.search.mbr import consensus
from transformer_cli.decoding.segmentation import Segment, split_line
from transformer_cli.decoding.terminology import Term, Terminology, holds
from transformer_cli.decoding.training_text import NOTHING_KNOWN, TrainingText
from transformer_cli.errors import ConfigError, DataError, quoted
from transformer_cli.inference.batch_invariance import (
    EXACT_BUCKET,
    FixedCache,
    bucket_length,
    check,
    fixed,
    one_thread,
    places,
)
from transformer_cli.inference.cuda_graphs import Replayed, can_replay, on_cuda
from transformer_cli.inference.force_decode import ReadBack, read_back
from transformer_cli.inference.prepack import can_pack, pack
from transformer_cli.inference.worker_pool import Streams
from transformer_cli.logs import LOGGER
from transformer_cli.models.ensemble import AnyModel, Ensemble
from transformer_cli.models.memory import in_halves
from transformer_cli.models.transformer import Transformer

N_NAMED = 10  # line numbers in a warning; the rest are counted
WHAT_BECOMES = {
    LongLines.split: "translated in parts",
    LongLines.cut: "the rest is left out; decode.long_lines=split translates all",
}
QUANTIZED_BUCKET = 4  # tokens; sources of other lengths do not share a batch
FEWEST_TOGETHER = 8  # sentences: fewer are not worth a stream of their own
AGAIN_BEAM = 8  # hypotheses that are followed when a line is translated again, at least
AGAIN_NO_REPEAT = 3  # tokens in a row that are then not said twice


@dataclass(frozen=True)
class Candidate:
    """One translation of a line. Of a line in parts, the numbers are sums over its parts."""

    text: str
    score: float
    log_prob: float = 0.0  # natural logarithm
    n_tokens: int = 0  # with the end, where there is one


@dataclass(frozen=True)
class Translated:
    """What became of one line."""

    candidates: list[Candidate]  # best first; a blank line has one, "" and 0
    n_parts: int = 1  # that were translated one by one, and joined again
    split: bool = False  # too long, and so translated in parts
    cut: bool = False  # too long: only its beginning was translated
    hit_limit: bool = False  # the best candidate, or a part of it, was still going on at its longest length
    repeats_itself: bool = False
    copied: bool = False  # says what its source says
    empty: bool = False  # and its source is not
    unknown: tuple[str, ...] = ()  # characters of the source that the vocabulary does not have
    retried: bool = False  # was translated again, because of one of these four
    replaced: bool = False  # and the second translation is here, because it has fewer of them
    unmet: tuple[Term, ...] = ()  # terms of its source that are not in it
    misplaced: tuple[Term, ...] = ()  # terms that are in it, but not as the translation of their source phrase
    alignment: list[tuple[int, int]] | None = None  # words of the source and of the translation, from 0
    tokens: list[tuple[str, float]] | None = None  # pieces, and the log-probability of each

    @property
    def text(self) -> str:
        return self.candidates[0].text

    @property
    def hypotheses(self) -> list[tuple[str, float]]:
        """Text and score of each candidate."""
        return [(candidate.text, candidate.score) for candidate in self.candidates]

    @property
    def n_flaws(self) -> int:
        """How much is wrong with it that another search may do better."""
        return self.hit_limit + self.repeats_itself + self.copied + self.empty


@dataclass(frozen=True)
class Wishes:
    """What a caller wants beside the search that the config describes."""

    terminology: Terminology | None = None
    retry: bool = False  # translate lines again whose translation has flaws
    read_back: bool = False  # tell alignment and tokens


@dataclass(frozen=True)
class Piece:
    """A line, or a part of one: a sentence, or what is not too long for the model."""

    line: int  # index in the lines given
    part: int  # number within its line
    ids: list[int]  # without EOS
    text: str = ""  # which `ids` are of
    prefix: tuple[int, ...] = ()  # how its translation begins
    terms: tuple[Term, ...] = ()  # what its translation holds


@dataclass(frozen=True)
class Line:
    """A line to translate. Most have one piece, blank ones none."""

    text: str
    pieces: list[Piece]
    too_long: bool  # or a sentence of it, if its sentences are translated one by one
    unknown: tuple[str, ...] = ()  # characters that the vocabulary does not have


@dataclass(frozen=True)
class Choice:
    """Which translations of a piece with terms are taken, best first; none, if a term is given up."""

    hypotheses: list[Hypothesis]
    misplaced: tuple[Term, ...] = ()  # of the first
    given_up: tuple[Term, ...] = ()


TermsOfLines = dict[int, tuple[Term, ...]]
Found = dict[tuple[int, int], list[Hypothesis]]  # for each piece, by its line and part
NO_WISHES = Wishes()


class Translator:
    """One way to translate for every caller; a translation depends on its own line and on nothing beside it.

    (A sample also depends on `seed` and on the line's number, and rounding may turn it.) Scores are as equal as the
    kernels' rounding lets them be, and with `config.batch_invariant` equal to the last bit. Raises ConfigError where
    that is not proved, or a search cannot do what is wished, and DataError for a term that the vocabulary cannot write.

    `text`, what the model was trained on, says how long a source may be, and whether lines are split into sentences.

    It is for the weights that `model` has when it is made: some are copied, others shared, so that a model which goes
    on learning needs a new one.
    """

    def __init__(
        self,
        model: AnyModel,
        tokenizers: Tokenizers,
        config: DecodeConfig,
        *,
        device: torch.device,
        seed: int = 1,
        wishes: Wishes = NO_WISHES,
        text: TrainingText = NOTHING_KNOWN,
        whole_machine: bool = False,
    ) -> None:
        """With `whole_machine` every core takes batches of its own, in a forked process; a GPU replays its steps."""
        if config.batch_invariant:
            check(model, device)
        if wishes.terminology is not None:
            check_terms_can_be_met(config)
        if wishes.retry and config.search is SearchKind.mbr:
            raise ConfigError(
                "on_issue=retry: looks again with a beam, whose scores are no scores of decode.search=mbr."
                " Choose decode.search=beam, or leave out --on-issue"
            )
        self.model: AnyModel = model
        if isinstance(model, Ensemble):
            members = [prepared(member, config, device) for member in model.members]
            self.model = Ensemble(members).train(model.training)
        elif isinstance(model, Transformer):
            self.model = prepared(model, config, device)
        self.tokenizers, self.config, self.device, self.seed = tokenizers, config, device, seed
        target = tokenizers.target
        self.control = ControlIds.of(target)
        self.text, self.max_source_length = text, text.longest_source(config)
        self.splits_sentences = text.is_in_sentences if config.split_sentences == AUTO else config.split_sentences
        # Of a model that may have met single sentences only, a long line is split into these.
        self.packs_sentences = config.split_sentences is False or text.multi_sentence_share is not None
        is_mbr = config.search is SearchKind.mbr
        self.search = consensus(target.decode) if is_mbr else SEARCHES[config.search.name]
        self.wishes = wishes
        self.streams: Streams[tuple[list[Piece], int], list[list[Hypothesis]]] | None = None
        if whole_machine and device.type == "cpu" and not config.batch_invariant:
            self.streams = Streams(lambda item: self._settle(*item))
        self.decoder: Any = self.model  # which takes the steps of a search
        if whole_machine and can_replay(self.model, device):
            self.decoder = Replayed(self.model, source_pad_id=tokenizers.source.pad_id, record=on_cuda(device))
        self.term_ids = {} if wishes.terminology is None else ids_of_terms(wishes.terminology, target)

    @torch.inference_mode()
    def translate(
        self,
        lines: Sequence[str],
        *,
        first_line: int = 1,
        prefixes: Sequence[tuple[int, ...]] | None = None,
        on_progress: Callable[[int], object] | None = None,
    ) -> list[Translated]:
        """One result for each line, in order. A line without tokens gives "" and never meets the model.

        `prefixes` are ids that the translation of each line begins with, at most as many as `room` says. Lines are
        numbered from `first_line`, in the warnings that name some. `on_progress` gets the number of lines that have
        been finished since it was last called.
        """
        work = self._encode(lines, prefixes)
        self._tell_too_long(work, first_line)
        tell, waiting = on_progress or (lambda n_lines: None), [len(line.pieces) for line in work]

        def tell_finished(batch: Sequence[Piece]) -> None:
            for piece in batch:
                waiting[piece.line] -= 1
            tell(sum(waiting[n] == 0 for n in {piece.line for piece in batch}))

        tell(waiting.count(0))
        with self._ready():
            # Without terms: few lines have any, and most of those hold them unasked.
            plain = [replace(piece, terms=()) for line in work for piece in line.pieces]
            found = self._search_all(plain, first_line, tell_finished)
            unmet, misplaced = self._meet_terms(work, found, first_line)
            tell_unmet({first_line + n: unmet[n] for n in sorted(unmet)})
            results = [
                replace(self._join(line, found), unmet=unmet.get(n, ()), misplaced=misplaced.get(n, ()))
                for n, line in enumerate(work)
            ]
            if self.wishes.retry:
                self._retry(work, found, results, first_line)
            tell_misplaced({n: result.misplaced for n, result in enumerate(results, start=first_line)})
            if self.wishes.read_back:
                self._read_back(work, found, results)
        return results

    @torch.inference_mode()
    def best(self, ids: list[int]) -> Hypothesis:
        """What the search finds for one source, given without EOS and read in one piece, however long."""
        with self._ready():
            return self._search_all([Piece(0, 0, ids)], 1)[0, 0][0]

    @contextmanager
    def _ready(self) -> Iterator[None]:
        was_training = self.model.training
        if was_training:  # asking every module takes longer than some steps
            self.model.eval()
        try:
            with one_thread() if self.config.batch_invariant else nullcontext():
                yield
        finally:
            if was_training:
                self.model.train()

    # ---- What goes in

    def room(self, lines: Sequence[str]) -> list[int | None]:
        """How many tokens the prefix of each line's translation may have, which needs one more for its end.

        None for a blank line.
        """
        first_parts = (line.pieces[0].ids if line.pieces else None for line in self._encode(lines))
        return [None if ids is None else self.longest_translation(len(ids) + 1) - 1 for ids in first_parts]

    def longest_translation(self, n_source_tokens: int) -> int:
        """How many tokens a translation may have; both sides count their EOS."""
        longest, limit = longest_translation(self.config, n_source_tokens), self.text.max_positions
        return longest if limit is None else min(longest, limit)

    def _encode(self, lines: Sequence[str], prefixes: Sequence[tuple[int, ...]] | None = None) -> list[Line]:
        """A prefix is for the first part of its line, a term for every part that it is in."""
        source, terminology, work = self.tokenizers.source, self.wishes.terminology, []
        for n, (text, ids) in enumerate(zip(lines, source.encode(lines), strict=True)):
            pieces = []
            segments, too_long = self._segments(text, ids)
            for part, segment in enumerate(segments):
                prefix = prefixes[n] if prefixes is not None and part == 0 else ()
                terms = terminology.find(segment.text) if terminology else ()
                pieces.append(Piece(n, part, segment.ids, segment.text, prefix, tuple(terms)))
            work.append(Line(text, pieces, too_long, unknown_characters(text, ids, source)))
        return work

    def _segments(self, text: str, ids: list[int]) -> tuple[list[Segment], bool]:
        """The parts of a line that are translated one by one, and whether something of it was too long."""
        sentences = [Segment(text, ids)] if ids else []
        if ids and self.splits_sentences:
            texts = split_sentences(text, self.text.source_lang)
            if len(texts) > 1:
                encoded = zip(texts, self.tokenizers.source.encode(texts), strict=True)
                sentences = [Segment(sentence, its_ids) for sentence, its_ids in encoded if its_ids]
        too_long = any(len(sentence.ids) > self.max_source_length for sentence in sentences)
        if too_long:
            sentences = [part for sentence in sentences for part in self._within_limit(sentence)]
        return sentences, too_long

    def _within_limit(self, sentence: Segment) -> list[Segment]:
        longest, source = self.max_source_length, self.tokenizers.source
        if len(sentence.ids) <= longest:
            return [sentence]
        if self.config.long_lines is LongLines.split:
            language = self.text.source_lang
            return split_line(sentence.text, source, max_tokens=longest, language=language, packs=self.packs_sentences)
        return [Segment(source.decode(sentence.ids[:longest]), sentence.ids[:longest])]

    def _tell_too_long(self, work: Sequence[Line], first_line: int) -> None:
        if numbers := [n for n, line in enumerate(work, start=first_line) if line.too_long]:
            LOGGER.warning(
                "%s: longer than %s tokens, %s",
                named(numbers),
                self.text.named_limit(self.config),
                WHAT_BECOMES[self.config.long_lines],
            )

    # ---- What comes out

    def _meet_terms(self, work: Sequence[Line], found: Found, first_line: int) -> tuple[TermsOfLines, TermsOfLines]:
        """Put into `found` translations that hold their terms; what comes back are terms that are unmet, and misplaced.

        Whoever translates as the terms ask without being told keeps that translation. A term that the search does not
        get in, or only by leaving a sentence without its end, or in a wrong place at too high a cost, is given up, and
        the others are tried without it.
        """
        unmet: TermsOfLines = {}
        misplaced: TermsOfLines = {}
        waiting = [piece for line in work for piece in line.pieces if self._lacking(piece, found)]
        while waiting:
            tried, waiting = self._constrained(waiting, found, first_line), []
            for piece, choice in tried:
                place = piece.line, piece.part
                if not choice.given_up:
                    found[place] = choice.hypotheses
                    if choice.misplaced:
                        misplaced[piece.line] = (*misplaced.get(piece.line, ()), *choice.misplaced)
                    continue
                unmet[piece.line] = (*unmet.get(piece.line, ()), *choice.given_up)
                with_the_rest = replace(piece, terms=tuple(term for term in piece.terms if term not in choice.given_up))
                if self._lacking(with_the_rest, found):
                    waiting.append(with_the_rest)
        return unmet, misplaced

    def _constrained(self, pieces: Sequence[Piece], plain: Found, first_line: int) -> list[tuple[Piece, Choice]]:
        """What the search finds for `pieces` with their terms, beside what it has found without.

        All that it finds is looked at: the likeliest often says a term in addition, and not in the place of a word.
        """
        again = self._search_all(pieces, first_line)
        judged = [(piece, self._candidates(piece, plain, again)) for piece in pieces]
        pairs = [
            (piece.ids, h.ids) for piece, candidates in judged for h in (plain[piece.line, piece.part][0], *candidates)
        ]
        read = iter(self._read(pairs))
        choices = []
        for piece, candidates in judged:
            if not candidates:
                next(read)
                lacking = self._lacking(piece, again)
                choices.append((piece, Choice([], given_up=lacking or piece.terms)))
                continue
            told = list(islice(read, 1 + len(candidates)))
            choices.append((piece, self._choice(piece, plain[piece.line, piece.part][0], candidates, told)))
        return choices

    def _read(self, pairs: Sequence[tuple[list[int], list[int]]]) -> list[ReadBack]:
        return read_back(
            self.model,
            pairs,
            self.tokenizers,
            device=self.device,
            batch_tokens=self.config.batch_tokens,
            with_attention=True,
        )

    def _candidates(self, piece: Piece, plain: Found, again: Found) -> list[Hypothesis]:
        """Translations of `piece` that hold all of its terms, and have an end if the one without terms has."""
        place = piece.line, piece.part
        needs_end = plain[place][0].finished
        return [
            hypothesis
            for hypothesis in again[place]
            if (hypothesis.finished or not needs_end) and not self._lacking(piece, {place: [hypothesis]})
        ]

    def _choice(
        self, piece: Piece, plain: Hypothesis, candidates: Sequence[Hypothesis], read: Sequence[ReadBack]
    ) -> Choice:
        """The likeliest translation whose terms are all in their place; if there is none, the likeliest."""
        ours, *theirs = [
            Translation(h.ids, told.attention_TS) for h, told in zip((plain, *candidates), read, strict=True)
        ]
        placement = Placement(piece.ids, self.tokenizers, ours)
        misplaced = [placement.misplaced(piece.terms, translation) for translation in theirs]
        order = sorted(range(len(candidates)), key=lambda i: len(misplaced[i]))  # stable: the likeliest first
        best = order[0]
        most = self.config.max_misplaced_cost
        if misplaced[best] and most is not None and per_token(plain) - per_token(candidates[best]) > most:
            return Choice([], given_up=misplaced[best])
        return Choice([candidates[i] for i in order][: self.config.n_best], misplaced=misplaced[best])

    def _lacking(self, piece: Piece, found: Found) -> tuple[Term, ...]:
        """The terms of `piece` that its best translation does not hold."""
        if not piece.terms:
            return ()
        text = self.tokenizers.target.decode(found[piece.line, piece.part][0].ids)
        return tuple(term for term in piece.terms if not any(holds(text, target) for target in term.targets))

    def _retry(self, work: Sequence[Line], found: Found, results: list[Translated], first_line: int) -> None:
        """Translate lines with flaws again, and take what has fewer of them, and no term less.

        Not those that were cut, because what they lack is their source.
        """
        flawed = [n for n, result in enumerate(results) if result.n_flaws and not result.cut]
        if not flawed:
            return
        lines = [
            replace(
                work[n],
                pieces=[
                    replace(piece, terms=tuple(term for term in piece.terms if term not in results[n].unmet))
                    for piece in work[n].pieces
                ],
            )
            for n in flawed
        ]
        other = copy.copy(self)
        other.config = again_config(self.config)
        other.search, other.streams = SEARCHES[other.config.search.name], None
        again = other._search_all([replace(piece, terms=()) for line in lines for piece in line.pieces], first_line)
        unmet, misplaced = other._meet_terms(lines, again, first_line)
        for n in flawed:
            first, second = results[n], replace(self._join(work[n], again), misplaced=misplaced.get(n, ()))
            is_worse = n in unmet or len(second.misplaced) > len(first.misplaced)
            if is_worse or second.n_flaws >= first.n_flaws:
                results[n] = replace(first, retried=True)
                continue
            results[n] = replace(second, retried=True, replaced=True, unmet=first.unmet)
            found |= {place: hypotheses for place, hypotheses in again.items() if place[0] == n}

    def _read_back(self, work: Sequence[Line], found: Found, results: list[Translated]) -> None:
        """Add to `results` what the model says of them when it reads them."""
        pieces = [piece for line in work for piece in line.pieces]
        best = [found[piece.line, piece.part][0] for piece in pieces]
        read = self._read([(piece.ids, hypothesis.ids) for piece, hypothesis in zip(pieces, best, strict=True)])
        results[:] = [replace(result, alignment=[], tokens=[]) for result in results]
        source, target = self.tokenizers.source, self.tokenizers.target
        for piece, hypothesis, told in zip(pieces, best, read, strict=True):
            alignment, tokens = results[piece.line].alignment, results[piece.line].tokens
            assert alignment is not None
            assert tokens is not None
            ids = [*hypothesis.ids, target.eos_id] if hypothesis.finished else hypothesis.ids
            tokens += zip(target.pieces(ids), told.log_probs, strict=False)
            if target.decode(hypothesis.ids):
                assert told.attention_TS is not None
                first_source, first_target = self._first_word(work[piece.line], piece.part), len(alignment)
                links = align_words(
                    told.attention_TS, word_numbers(piece.ids, source), word_numbers(hypothesis.ids, target)
                )
                if alignment and not self._joiner:  # its first word goes on with the last one
                    links = links[1:]
                alignment += [(first_source + i, first_target + j) for j, i in enumerate(links)]

    def _first_word(self, line: Line, part: int) -> int:
        """The number of the word that a part of a line begins with, or in."""
        ends = list(accumulate(len(word) for word in normalize(line.text).split()))
        before = (normalize(piece.text) for piece in line.pieces[:part])
        return min(bisect_right(ends, sum(len("".join(text.split())) for text in before)), len(ends) - 1)

    # ---- The search

    def _search_all(
        self, pieces: Sequence[Piece], first_line: int, on_batch: Callable[[list[Piece]], object] = lambda batch: None
    ) -> Found:
        found: Found = {}
        work = ((batch, first_line) for batch in self._batches(pieces))
        settled = ((item, self._settle(*item)) for item in work) if self.streams is None else self.streams(work)
        for (batch, _), hypotheses in settled:
            found |= zip(((piece.line, piece.part) for piece in batch), hypotheses, strict=True)
            on_batch(batch)
        return found

    def _batches(self, pieces: Sequence[Piece]) -> Iterator[list[Piece]]:
        if self.config.batch_invariant:
            return exact_batches(pieces, bucket=self._bucket)
        max_cells = self._cells(pieces)
        if self.config.quantize is Quantize.none:
            return batches(pieces, max_cells=max_cells)
        by_bucket = groupby(sorted(pieces, key=lambda piece: -len(piece.ids)), key=self._bucket)
        return chain.from_iterable(batches(list(alike), max_cells=max_cells) for _, alike in by_bucket)

    def _cells(self, pieces: Sequence[Piece]) -> int:
        """What `batch_tokens` allows; less where every stream would not have as much to do as the others."""
        allowed = self.config.batch_tokens // rows_per_sentence(self.config)
        if self.streams is None or len(pieces) < self.streams.n_streams * FEWEST_TOGETHER:
            return allowed
        lengths = [len(piece.ids) + 1 for piece in pieces]
        rounds = math.ceil(sum(lengths) / (allowed * self.streams.n_streams))
        return min(allowed, math.ceil(sum(lengths) / (rounds * self.streams.n_streams)) + max(lengths))

    def _bucket(self, piece: Piece) -> int:
        """What a source is padded to whatever its neighbours; with bytes, a rounding that they turned would grow."""
        size = EXACT_BUCKET if self.config.batch_invariant else QUANTIZED_BUCKET
        return bucket_length(len(piece.ids) + 1, size=size, longest=self.max_source_length + 1)

    def _settle(self, batch: Sequence[Piece], first_line: int) -> list[list[Hypothesis]]:
        """The same in any company: where rounding may have chosen, and it differs from batch to batch, ask alone."""
        found = self._search_in_halves(batch, first_line)
        if self.config.batch_invariant or self.config.quantize is not Quantize.none or len(batch) == 1:
            return found
        return [
            self._search_in_halves([piece], first_line)[0] if hypotheses[0].is_close else hypotheses
            for piece, hypotheses in zip(batch, found, strict=True)
        ]

    def _search_in_halves(self, batch: Sequence[Piece], first_line: int) -> list[list[Hypothesis]]:
        """`_search` of as many at a time as there is memory for."""
        rows = "n_samples" if self.config.search is SearchKind.mbr else "beam_size"
        return in_halves(
            batch,
            lambda part: self._search(part, first_line),
            lower="decode.batch_tokens",
            alone=f"Lower decode.{rows} or decode.max_source_length, or choose another device=",
            on_split=self._drop_recorded,
        )

    def _drop_recorded(self) -> None:
        """Recorded steps keep the memory that they were recorded with."""
        self.decoder = self.model

    def _search(self, batch: Sequence[Piece], first_line: int) -> list[list[Hypothesis]]:
        config, source = self.config, self.tokenizers.source
        if any(piece.terms for piece in batch):  # all that is found is looked at
            config = replace(config, n_best=max(config.n_best, config.beam_size))
        rows = [[*piece.ids, source.eos_id] for piece in batch]
        longest, n_sentences, n_beams = max(map(len, rows)), len(rows), rows_per_sentence(config)
        if config.batch_invariant or config.quantize is not Quantize.none:
            longest = self._bucket(batch[0])
        if config.batch_invariant:
            n_sentences = places(longest)
        source_BS = torch.full((n_sentences, longest), source.pad_id)
        for row_S, ids in zip(source_BS, rows, strict=False):  # those behind the last are fillers
            row_S[: len(ids)] = torch.tensor(ids)
        lengths_B = torch.tensor(list(map(len, rows)), device=self.device)
        max_lengths_B = torch.tensor([self.longest_translation(len(row)) for row in rows], device=self.device)
        cache = self.decoder.start(
            source_BS.to(self.device),
            beam_size=n_beams,
            max_length=self.longest_translation(longest),
            keeps_attention=config.coverage_penalty > 0,
        )
        seeds = [(self.seed, first_line + piece.line, piece.part) for piece in batch]
        demands = [Demands(piece.prefix, tuple(self.term_ids[term] for term in piece.terms)) for piece in batch]
        demands = demands if any(piece.prefix or piece.terms for piece in batch) else []
        task: Task[Any] = Task(self.decoder.step, cache, self.control, max_lengths_B, config, seeds, demands, lengths_B)
        if config.batch_invariant:
            fixed_cache = FixedCache(cache, n_sentences, n_rows=n_sentences * n_beams, n_going=len(batch))
            task = replace(task, step=fixed(self.model.step), cache=fixed_cache)
        return self.search(task)

    @property
    def _joiner(self) -> str:
        """What stands between the translations of parts."""
        return "" if has_no_spaces(self.text.target_lang) else " "

    def _join(self, line: Line, found: Found) -> Translated:
        """The n-th candidate of a line is made of the n-th of each of its parts."""
        if not line.pieces:
            return Translated([Candidate("", 0.0)])
        parts = [found[piece.line, piece.part] for piece in line.pieces]
        # Short parts may have fewer: their last one serves again.
        n_best = max(map(len, parts))
        ranks = [[part[min(n, len(part) - 1)] for part in parts] for n in range(n_best)]
        candidates = [
            Candidate(
                text=self._joiner.join(filter(None, (self.tokenizers.target.decode(h.ids) for h in rank))),
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


def prepared(model: Transformer, config: DecodeConfig, device: torch.device) -> Transformer:
    """`model` as this device translates with it fastest. Raises ConfigError where it cannot be as `config` says."""
    in_bytes = config.quantize is Quantize.int8
    if can_pack(model, quantize=in_bytes) and not config.batch_invariant:
        return pack(model, quantize=in_bytes)
    if in_bytes:
        raise ConfigError(
            f"decode.quantize=int8: is for CPUs, and this is device={device.type} with torch {torch.__version__}."
            " Choose device=cpu, or leave it out"
        )
    return model


def check_terms_can_be_met(config: DecodeConfig) -> None:
    """Raises ConfigError for a search that cannot look for translations with terms."""
    for key, value, instead in (
        ("search", config.search.name, SearchKind.beam.name),
        ("diversity_groups", config.diversity_groups, 1),
    ):
        if value != instead:
            raise ConfigError(
                f"decode.{key}={value}: cannot look for translations with terms."
                f" Choose decode.{key}={instead}, or leave out --terms"
            )


def again_config(config: DecodeConfig) -> DecodeConfig:
    """How to search where `config` has led to a flaw: with a wider beam that does not repeat itself."""
    return replace(
        config,
        search=SearchKind.beam,
        beam_size=min(max(AGAIN_BEAM, 2 * config.beam_size, config.n_best), LARGEST_BEAM),
        no_repeat_ngram=config.no_repeat_ngram or AGAIN_NO_REPEAT,
        diversity_groups=1,
        diversity_strength=0.5,
        temperature=1.0,
        top_k=None,
        top_p=None,
    )


def ids_of_terms(terminology: Terminology, target: Tokenizer) -> dict[Term, tuple[int, ...]]:
    """What a translation must hold for each term. Raises DataError for one that the vocabulary cannot write."""
    term_ids = {}
    for term in terminology.terms:
        ids = written_ids(term.targets[0], target)
        if ids is None:
            raise DataError(
                f"{terminology.name}:{term.line}: {quoted(term.targets[0])} cannot be written with the pieces of this"
                " model. Write it in other letters, or remove the line"
            )
        term_ids[term] = ids
    return term_ids


def written_ids(text: str, target: Tokenizer) -> tuple[int, ...] | None:
    """The ids that write `text`; None where they write something else, because it is not in the vocabulary."""
    (ids,) = target.encode([text])
    return tuple(ids) if target.unk_id not in ids and target.decode(ids) == normalize(text) else None


def per_token(hypothesis: Hypothesis) -> float:
    return hypothesis.log_prob / max(1, len(hypothesis.ids) + hypothesis.finished)


def tell_misplaced(misplaced: Mapping[int, Sequence[Term]]) -> None:
    """One warning, if there are any."""
    if lines := [line for line, terms in misplaced.items() if terms]:
        LOGGER.warning("%s: a term is not where its source phrase is translated, or stands beside it", named(lines))


def tell_unmet(unmet: Mapping[int, Sequence[Term]]) -> None:
    """One warning for each term of the first few lines, and how many there are more."""
    terms = [(line, term) for line, of_line in unmet.items() for term in of_line]
    for line, term in terms[:N_NAMED]:
        LOGGER.warning(
            "line %d: %s has no room or no likely place in its translation as %s, and is left to the model",
            line,
            quoted(term.source),
            quoted(term.targets[0]),
        )
    if len(terms) > N_NAMED:
        LOGGER.warning("%d more terms have no room or no likely place in their translations", len(terms) - N_NAMED)


def batches(pieces: Sequence[Piece], *, max_cells: int) -> Iterator[list[Piece]]:
    """The longest first, so that memory runs out at once or never: rows × longest ≤ `max_cells`, or a single piece."""
    batch: list[Piece] = []
    for piece in sorted(pieces, key=lambda piece: -len(piece.ids)):
        # The longest of a batch is its first; EOS is one more cell.
        if batch and (len(batch) + 1) * (len(batch[0].ids) + 1) > max_cells:
            yield batch
            batch = []
        batch.append(piece)
    if batch:
        yield batch


def exact_batches(pieces: Sequence[Piece], *, bucket: Callable[[Piece], int]) -> Iterator[list[Piece]]:
    """The longest first; in each batch only pieces of one bucket, and at most as many as it has places for."""
    for length, in_bucket in groupby(sorted(pieces, key=lambda piece: -len(piece.ids)), key=bucket):
        while batch := list(islice(in_bucket, places(length))):
            yield batch


def named(numbers: Sequence[int]) -> str:
    """`line 3`; `lines 3, 8`; `lines 1, 2, …, 10 and 73 more`."""
    more = f" and {len(numbers) - N_NAMED} more" if len(numbers) > N_NAMED else ""
    return ("line " if len(numbers) == 1 else "lines ") + ", ".join(map(str, numbers[:N_NAMED])) + more
