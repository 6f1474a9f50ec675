"""Lines of text to lines of text.

Shapes: B sentences, S source.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import groupby, islice
from typing import Any

import torch

from transformer_cli.data.tokenizer import Tokenizers
from transformer_cli.decoding.exact import FixedCache, bucket_length, check, fixed, one_thread, places
from transformer_cli.decoding.long_lines import split_line
from transformer_cli.decoding.mbr import consensus
from transformer_cli.decoding.search import SEARCHES, ControlIds, Hypothesis, Task, rows_per_sentence
from transformer_cli.logs import LOGGER
from transformer_cli.models.ensemble import AnyModel
from transformer_cli.schema import DecodeConfig, LongLines, SearchKind

N_NAMED = 10  # line numbers in a warning; the rest are counted
WHAT_BECOMES = {
    LongLines.split: "translated in parts",
    LongLines.cut: "the rest is left out; decode.long_lines=split translates all",
}


@dataclass(frozen=True)
class Translated:
    """What became of one line."""

    hypotheses: list[tuple[str, float]]  # text and score, best first; a blank line has one, "" and 0
    split: bool = False  # too long: translated in parts, joined by spaces; a score is the sum of the parts' scores
    cut: bool = False  # too long: only its beginning was translated
    hit_limit: bool = False  # the best hypothesis, or a part of it, was still going on at its longest length

    @property
    def text(self) -> str:
        return self.hypotheses[0][0]


@dataclass(frozen=True)
class Piece:
    """A line, or a part of one that is too long."""

    line: int  # index in the lines given
    part: int  # number within its line
    ids: list[int]  # without EOS


class Translator:
    """One way to translate for every caller; a translation depends on its own line and on nothing beside it.

    (A sample also depends on `seed` and on the line's number, and rounding may turn it.) Scores are as equal as the
    kernels' rounding lets them be, and with `config.exact` equal to the last bit. Raises ConfigError where that is not
    proved.
    """

    def __init__(
        self,
        model: AnyModel,
        tokenizers: Tokenizers,
        config: DecodeConfig,
        *,
        device: torch.device,
        seed: int = 1,
    ) -> None:
        if config.exact:
            check(model, device)
        self.model, self.tokenizers, self.config, self.device, self.seed = model, tokenizers, config, device, seed
        target = tokenizers.target
        self.control = ControlIds(pad=target.pad_id, bos=target.bos_id, eos=target.eos_id)
        is_mbr = config.search is SearchKind.mbr
        self.search = consensus(target.decode) if is_mbr else SEARCHES[config.search.name]

    @torch.inference_mode()
    def translate(
        self, lines: Sequence[str], *, first_line: int = 1, on_progress: Callable[[int], object] | None = None
    ) -> list[Translated]:
        """One result for each line, in order. A line without tokens gives "" and never meets the model.

        Lines are numbered from `first_line`, in the warning that names those that are too long. `on_progress` gets the
        number of lines that have been finished since it was last called.
        """
        parts, too_long = self._encode(lines, first_line)
        pieces = [Piece(line, part, ids) for line, in_line in enumerate(parts) for part, ids in enumerate(in_line)]
        found: list[list[list[Hypothesis]]] = [[[] for _ in in_line] for in_line in parts]
        waiting = [len(in_line) for in_line in parts]
        tell = on_progress or (lambda n_lines: None)
        tell(waiting.count(0))
        was_training = self.model.training
        self.model.eval()
        try:
            with one_thread() if self.config.exact else nullcontext():
                for batch in self._batches(pieces):
                    for piece, hypotheses in zip(batch, self._settle(batch, first_line), strict=True):
                        found[piece.line][piece.part] = hypotheses
                        waiting[piece.line] -= 1
                    tell(sum(waiting[line] == 0 for line in {piece.line for piece in batch}))
        finally:
            self.model.train(was_training)
        return [self._join(in_line, too_long=line in too_long) for line, in_line in enumerate(found)]

    def _encode(self, lines: Sequence[str], first_line: int) -> tuple[list[list[list[int]]], set[int]]:
        """Ids of each part of each line, most have one and blank ones none; and the lines that are too long."""
        tokenizer, config = self.tokenizers.source, self.config
        encoded = tokenizer.encode(lines)
        too_long = {line for line, ids in enumerate(encoded) if len(ids) > config.max_source_length}
        parts = [[ids] if ids else [] for ids in encoded]
        for line in too_long:
            if config.long_lines is LongLines.split:
                parts[line] = split_line(lines[line], tokenizer, max_tokens=config.max_source_length)
            else:
                parts[line] = [encoded[line][: config.max_source_length]]
        if too_long:
            LOGGER.warning(
                "%s: longer than decode.max_source_length=%d tokens, %s",
                named([first_line + line for line in sorted(too_long)]),
                config.max_source_length,
                WHAT_BECOMES[config.long_lines],
            )
        return parts, too_long

    def _batches(self, pieces: Sequence[Piece]) -> Iterator[list[Piece]]:
        if self.config.exact:
            return exact_batches(pieces, bucket=self._bucket)
        return batches(pieces, max_cells=self.config.batch_tokens // rows_per_sentence(self.config))

    def _bucket(self, piece: Piece) -> int:
        return bucket_length(len(piece.ids) + 1, longest=self.config.max_source_length + 1)

    def _settle(self, batch: Sequence[Piece], first_line: int) -> list[list[Hypothesis]]:
        """The same in any company: where rounding may have chosen, and it differs from batch to batch, ask alone."""
        found = self._search(batch, first_line)
        if self.config.exact or len(batch) == 1:
            return found
        return [
            self._search([piece], first_line)[0] if hypotheses[0].is_close else hypotheses
            for piece, hypotheses in zip(batch, found, strict=True)
        ]

    def _search(self, batch: Sequence[Piece], first_line: int) -> list[list[Hypothesis]]:
        config, source = self.config, self.tokenizers.source
        rows = [[*piece.ids, source.eos_id] for piece in batch]
        longest, n_sentences, n_beams = max(map(len, rows)), len(rows), rows_per_sentence(config)
        if config.exact:
            longest = self._bucket(batch[0])
            n_sentences = places(longest)
        source_BS = torch.full((n_sentences, longest), source.pad_id)
        for row_S, ids in zip(source_BS, rows, strict=False):  # those behind the last are fillers
            row_S[: len(ids)] = torch.tensor(ids)
        # Both sides count their EOS.
        max_lengths_B = torch.tensor([len(row) + config.max_extra_length for row in rows], device=self.device)
        cache = self.model.start(
            source_BS.to(self.device), beam_size=n_beams, max_length=longest + config.max_extra_length
        )
        seeds = [(self.seed, first_line + piece.line, piece.part) for piece in batch]
        task: Task[Any] = Task(self.model.step, cache, self.control, max_lengths_B, config, seeds)
        if config.exact:
            fixed_cache = FixedCache(cache, n_sentences=n_sentences, n_rows=n_sentences * n_beams)
            task = replace(task, step=fixed(self.model.step), cache=fixed_cache)
        return self.search(task)

    def _join(self, parts: Sequence[Sequence[Hypothesis]], *, too_long: bool) -> Translated:
        """The n-th hypothesis of a line is made of the n-th of each of its parts."""
        if not parts:
            return Translated([("", 0.0)])
        # Short parts may have fewer: their last one serves again.
        n_best = max(map(len, parts))
        ranks = [[part[min(n, len(part) - 1)] for part in parts] for n in range(n_best)]
        texts = [" ".join(filter(None, (self.tokenizers.target.decode(h.ids) for h in rank))) for rank in ranks]
        return Translated(
            hypotheses=[(text, sum(h.score for h in rank)) for text, rank in zip(texts, ranks, strict=True)],
            split=too_long and self.config.long_lines is LongLines.split,
            cut=too_long and self.config.long_lines is LongLines.cut,
            hit_limit=not all(part[0].finished for part in parts),
        )


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
