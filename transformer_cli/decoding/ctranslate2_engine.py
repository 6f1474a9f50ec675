"""The same Translator with CTranslate2 as its engine: an exported model, searched by that library.

It follows the same number of hypotheses, but a sentence is done as soon as N of them have ended, or without a length
penalty as soon as the likeliest has.
What it finds is scored and ranked as our own search does, so that a score means the same.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from enum import Enum
from pathlib import Path
from typing import Any

import torch
from torch import nn

from transformer_cli.config.decode import DecodeConfig, SearchKind
from transformer_cli.decoding.search import Hypothesis
from transformer_cli.decoding.search.scores import divisor
from transformer_cli.decoding.training_text import training_text
from transformer_cli.decoding.translator import NO_WISHES, Piece, Translator, Wishes, batches
from transformer_cli.errors import CheckpointError, ConfigError, EnvironmentFault, quoted
from transformer_cli.extras import imported
from transformer_cli.interop.exported import Exported
from transformer_cli.models.memory import in_halves

# Keys of `decode` that this engine obeys; it refuses any other that is not at its default.
OBEYED = (
    *("search", "beam_size", "length_penalty", "length_normalization", "n_best", "no_repeat_ngram"),
    *(
        "max_extra_length",
        "max_length",
        "min_length",
        "max_source_length",
        "long_lines",
        "split_sentences",
        "batch_tokens",
    ),
)
DAMAGED = (ValueError, LookupError)  # what the library raises for contents that do not fit together
BATCHES_AT_ONCE = 16  # for each thread: enough to keep all busy, few enough to see progress


class CTranslate2Translator(Translator):
    """Lines to lines. Raises ConfigError for what CTranslate2 cannot do, and CheckpointError for a damaged model."""

    def __init__(
        self,
        exported: Exported,
        config: DecodeConfig,
        *,
        device: torch.device,
        seed: int = 1,
        wishes: Wishes = NO_WISHES,
    ) -> None:
        check(config, exported)
        text = training_text([exported], max_positions=exported.max_positions)
        super().__init__(nothing(), exported.tokenizers, config, device=device, seed=seed, wishes=wishes, text=text)
        self.n_threads = torch.get_num_threads()
        self.directory = exported.directory
        library = imported("ctranslate2", needs="engine=ctranslate2")
        try:
            # Each thread takes batches of its own: one product is too small to be shared.
            self.engine = library.Translator(
                os.fsencode(exported.directory), device=device.type, inter_threads=self.n_threads, intra_threads=1
            )
        except (RuntimeError, MemoryError, *DAMAGED) as error:
            raise CheckpointError(
                f"{exported.directory}: CTranslate2 cannot load it ({quoted(str(error))})."
                " Write it again with `tfm export ctranslate2 --overwrite`"
            ) from error
        target = exported.tokenizers.target
        self.ids = {piece: number for number, piece in enumerate(target.pieces(range(len(target))))}

    @property
    def _goes_on(self) -> bool:
        """Whether a sentence is done only when as many hypotheses have ended as are followed."""
        return divisor(2, self.config) > 1 and self.config.beam_size > 1

    @property
    def _bans(self) -> bool:
        return self.config.min_length > 0 or self.config.no_repeat_ngram is not None

    def _batches(self, pieces: Sequence[Piece]) -> Iterator[list[Piece]]:
        """As many together as keep all threads busy; the longest first."""
        cells = self.config.batch_tokens * BATCHES_AT_ONCE * self.n_threads
        return batches(pieces, max_cells=cells // self.config.beam_size)

    def _settle(self, batch: Sequence[Piece], first_line: int) -> list[list[Hypothesis]]:
        """What the library finds; once more, alone, where it said what is banned, or went on for too long.

        It knows one longest length for a batch.
        """
        parts = list(batches(batch, max_cells=self.config.batch_tokens // self.config.beam_size))
        found = {
            (piece.line, piece.part): hypotheses
            for part, results in zip(parts, [self._ask(part) for part in parts], strict=True)
            for piece, hypotheses in zip(part, map(self._hypotheses, self._wait(part, results)), strict=True)
        }
        banned = set(self.control.banned)
        for piece in batch:
            hypotheses = found[piece.line, piece.part]
            never: Sequence[int] = ()
            if any(not banned.isdisjoint(h.ids) for h in hypotheses):
                never = sorted(banned)
            if never or any(len(h.ids) + h.finished > self._longest([piece]) for h in hypotheses):
                (result,) = self._wait([piece], self._ask([piece], never=never), never=never)
                hypotheses = self._hypotheses(result)
            if never or self._bans:
                hypotheses = self._reread(piece, hypotheses)
            found[piece.line, piece.part] = hypotheses
        return [found[piece.line, piece.part] for piece in batch]

    def _reread(self, piece: Piece, hypotheses: Sequence[Hypothesis]) -> list[Hypothesis]:
        """With the scores that the model gives them: the library gives the share of what is banned to other tokens."""
        source, target = self.tokenizers.source, self.tokenizers.target
        sources, targets = [source.pieces(piece.ids)] * len(hypotheses), [target.pieces(h.ids) for h in hypotheses]
        with faults_of(self.directory):
            read = self.engine.score_batch(sources, targets, max_input_length=0)
        return self._ranked(
            (h.ids, sum(told.log_probs[: len(h.ids) + h.finished]), h.finished)
            for h, told in zip(hypotheses, read, strict=True)
        )

    def _ask(self, batch: Sequence[Piece], *, never: Sequence[int] = ()) -> list[Any]:
        """Results to wait for, one for each piece; `never` are tokens that may not be said."""
        config, target = self.config, self.tokenizers.target
        results: list[Any] = self.engine.translate_batch(
            [self.tokenizers.source.pieces(piece.ids) for piece in batch],
            asynchronous=True,
            beam_size=config.beam_size,
            # With a length penalty it goes on until N have ended; all of them are asked for, and ranked here.
            num_hypotheses=config.beam_size if self._goes_on else config.n_best,
            length_penalty=1.0 if self._goes_on else 0.0,
            max_decoding_length=self._longest(batch),
            min_decoding_length=config.min_length,
            no_repeat_ngram_size=config.no_repeat_ngram or 0,
            max_input_length=0,
            return_scores=True,
            return_end_token=True,
            suppress_sequences=[[piece] for piece in target.pieces(never)] or None,
        )
        return results

    def _wait(self, batch: Sequence[Piece], results: Sequence[Any], *, never: Sequence[int] = ()) -> list[Any]:
        """What comes of them; where the memory was too small, they are asked for again, fewer at a time."""
        asked = iter([results])

        def wait(part: Sequence[Piece]) -> list[Any]:
            return [result.result() for result in next(asked, None) or self._ask(part, never=never)]

        with faults_of(self.directory):
            return in_halves(
                batch,
                wait,
                lower="decode.batch_tokens",
                alone="Lower decode.beam_size or decode.max_source_length, or choose another device=",
            )

    def _longest(self, batch: Sequence[Piece]) -> int:
        """Tokens that a translation may have; both sides count their EOS."""
        return self.longest_translation(max(len(piece.ids) for piece in batch) + 1)

    def _hypotheses(self, result: Any) -> list[Hypothesis]:
        found = []
        for pieces, score in zip(result.hypotheses, result.scores, strict=True):
            if unknown := set(pieces) - self.ids.keys():
                raise CheckpointError(
                    f"{self.directory}: the model says {quoted(min(unknown))}, which its tokenizer does not know, so"
                    " they are not of one export. Write it again with `tfm export ctranslate2 --overwrite`"
                )
            ids = [self.ids[piece] for piece in pieces]
            finished = ids[-1:] == [self.control.eos]
            log_prob = score * len(ids) if self._goes_on else score  # theirs is divided by the length
            found.append((ids[:-1] if finished else ids, log_prob, finished))
        return self._ranked(found)

    def _ranked(self, found: Iterable[tuple[list[int], float, bool]]) -> list[Hypothesis]:
        """The best, from ids without EOS, log-probability, and whether it has ended."""
        hypotheses = [
            Hypothesis(ids, log_prob / divisor(len(ids) + finished, self.config), log_prob, finished)
            for ids, log_prob, finished in found
        ]
        hypotheses.sort(key=lambda h: (h.finished, h.score), reverse=True)
        return hypotheses[: self.config.n_best]


def check(config: DecodeConfig, exported: Exported) -> None:
    """Refuse by name what the engine would not do."""
    if config.search in (SearchKind.sample, SearchKind.mbr):
        raise ConfigError(
            f"decode.search={config.search.name}: engine=ctranslate2 draws by a seed of its own for each"
            " thread, so that no sample could be had again. Leave engine=ctranslate2 out, or choose decode=beam"
        )
    defaults = DecodeConfig()
    for key in (field.name for field in fields(config) if field.name not in OBEYED):
        if (value := getattr(config, key)) != getattr(defaults, key):
            said = value.name if isinstance(value, Enum) else value
            raise ConfigError(f"decode.{key}={said}: engine=ctranslate2 does not have it. Leave one of them out")
    if config.max_source_length is None:
        return  # as long as there is room for
    longest = config.max_source_length + config.max_extra_length + 1
    if exported.max_positions is not None and longest > exported.max_positions:
        raise ConfigError(
            f"decode.max_source_length={config.max_source_length}: with decode.max_extra_length"
            f"={config.max_extra_length} up to {longest} tokens, and {exported.directory} knows"
            f" {exported.max_positions}. Lower one of them"
        )


@contextmanager
def faults_of(directory: Path) -> Iterator[None]:
    """The library's own failures while it translates, told as ours."""
    try:
        yield
    except DAMAGED as error:
        raise CheckpointError(
            f"{directory}: CTranslate2 cannot translate with it ({quoted(str(error))})."
            " Write it again with `tfm export ctranslate2 --overwrite`"
        ) from error
    except RuntimeError as error:  # of the device
        raise EnvironmentFault(
            f"{directory}: CTranslate2 failed while it translated ({quoted(str(error))})."
            " Add --device cpu, or look at the device"
        ) from error


def nothing() -> Any:
    """In the place of the model, which is elsewhere."""
    return nn.Module()
