"""Verification: does an exported model predict what ours predicts?

Four comparisons on the same sentences: the log-probability of each token of a given translation (forced decoding),
which any wrong weight changes; the tokens of greedy search, whose rule is the same everywhere; those of a beam of 4,
whose end is decided by other rules; and greedy search from raw text to text, through the tokenizer files of the export.
All but the beam have to agree, except where rounding may decide.

Shapes: B batch, S source, T target, V vocabulary.
"""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain, islice, pairwise
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn

from transformer_cli.config.decode import DecodeConfig
from transformer_cli.config.model import Positions
from transformer_cli.config.tags import source_tag, target_tag
from transformer_cli.data.normalization import canonical
from transformer_cli.data.tags import split_tags, with_tags
from transformer_cli.data.tokenizer import Tokenizer, Tokenizers
from transformer_cli.decoding.search import SEARCHES, Constraints, ControlIds, Hypothesis, SearchRequest
from transformer_cli.errors import CheckpointError
from transformer_cli.inference.incremental import TransformerDecoder
from transformer_cli.models.file import ModelFile
from transformer_cli.models.transformer import Transformer

Ids = Sequence[int]  # without BOS and EOS
_Answer = TypeVar("_Answer")

CPU = torch.device("cpu")
N_LINES = 64
TOGETHER = 16  # lines, at most: a big model's logits and caches take much memory
_MOST_LOGITS = 1 << 21  # numbers
MAX_COMPARED_TOKENS = 128  # tokens of a line that is compared
EXTRA = 50  # tokens that a translation may have more than its source
BEAM = 4
TOLERANCE = 1e-4  # nats, of any token, of weights in float32
ROUNDED_TOLERANCE = 0.1  # nats, of the mean token, of weights in fewer bits


class Program(Protocol):
    """Another program, with the exported model loaded."""

    def translate(self, sources: Sequence[Ids], *, beam_size: int, max_tokens: int) -> list[list[int]]:
        """The best translation of each, no longer than `max_tokens`, EOS counted; nothing is gained by length.

        A program for models whose translations begin with a language takes these tokens, a sequence for each source,
        as its second argument: see `translations`.
        """

    def log_probs(self, sources: Sequence[Ids], targets: Sequence[Ids]) -> list[list[float]]:
        """The natural log-probability of each token of each target, EOS included."""


@runtime_checkable
class TextProgram(Program, Protocol):
    """One that has the tokenizer files, too."""

    def translate_text(self, lines: Sequence[str], *, max_tokens: int) -> list[str]:
        """The translation by greedy search of raw text, through the tokenizer files that were exported."""

    def shown(self, text: str) -> str:
        """What the program makes of a translation before it shows it: most leave it as it is."""


@dataclass(frozen=True)
class VerifyResult:
    """What was compared; differences are of log-probabilities, in nats, for each token."""

    lines: int
    tokens: int
    largest_difference: float
    mean_difference: float
    tolerance: float
    greedy_compared: int  # lines without a choice that rounding could turn; one that we cut as far as it goes
    greedy_identical: int
    beam_compared: int  # lines that end before they are cut
    beam_identical: int
    beam_ours_likelier: int  # of those that differ, by our own model
    text_compared: int  # the lines of greedy search that can be compared; 0 also where the program has no text
    text_identical: int
    text_rewritten: int  # of those that are identical, lines in which the program shows something else than we write
    is_float32: bool

    @property
    def holds(self) -> bool:
        """What decides are the log-probabilities, and in float32 each line of greedy search that can be compared.

        That may be none: a wrong weight moves a log-probability all the same.
        """
        if not self.is_float32:
            return self.tokens > 0 and self.mean_difference <= self.tolerance
        is_near = self.tokens > 0 and self.largest_difference <= self.tolerance
        has_our_ids = self.greedy_identical == self.greedy_compared
        return is_near and has_our_ids and self.text_identical == self.text_compared

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def lines_of_text(self) -> list[str]:
        return [
            *self.lines_of_ids(),
            "text to text, greedy: "
            + self._counted(self.text_identical, self.text_compared, "rounding could choose another token")
            + (f"; {self.text_rewritten} of them as this program rewrites them" if self.text_rewritten else ""),
        ]

    def lines_of_ids(self) -> list[str]:
        """The lines of the verdict without the comparison of texts."""
        differing = self.beam_compared - self.beam_identical
        likelier = f"; ours is the likelier one in {self.beam_ours_likelier} of {differing}" if differing else ""
        which = "largest" if self.is_float32 else "mean"
        return [
            f"log-probability of {self.tokens:,} tokens: largest difference {self.largest_difference:.1e}, mean"
            f" {self.mean_difference:.1e} nats (tolerance {self.tolerance:g}, for the {which})",
            "greedy search: "
            + self._counted(self.greedy_identical, self.greedy_compared, "rounding could choose another token"),
            f"beam {BEAM}: "
            + self._counted(self.beam_identical, self.beam_compared, "no end within the limit")
            + likelier,
        ]

    def _counted(self, identical: int, compared: int, why: str) -> str:
        """How many lines are identical, and why not all were compared."""
        left = self.lines - compared
        if not compared:
            return f"no line compared ({left}: {why})"
        return f"{identical} of {compared} lines identical" + (f", {left} not compared ({why})" if left else "")


def verify(model: ModelFile, program: Program, lines: Sequence[str], *, is_float32: bool) -> VerifyResult:
    """Compare on `lines`. What to do about a verdict that does not hold is left to the caller."""
    transformer, source = model.build(CPU).float(), model.tokenizers.source
    room = (
        model.config.max_positions if model.config.positions is Positions.learned else MAX_COMPARED_TOKENS + EXTRA + 1
    )
    longest = min(MAX_COMPARED_TOKENS, room - EXTRA - 1)
    chosen = [(line, ids) for line, ids in zip(lines, source.encode(lines), strict=True) if 0 < len(ids) <= longest]
    texts, sources = [line for line, _ in chosen], [ids for _, ids in chosen]
    if not sources:
        raise CheckpointError(
            f"model.max_positions={room}: leaves no room for a sentence and a translation to compare, so nothing is"
            " exported. Export a model with more positions"
        )
    max_tokens = max(map(len, sources)) + 1 + EXTRA

    def read(sources: Sequence[Ids], targets: Sequence[Ids]) -> list[list[float]]:
        return log_probs(transformer, sources, targets, model.tokenizers)

    begun = [first_ids(model.tokenizers, line) for line in texts]
    n_outputs = model.tokenizers.n_outputs
    greedy, beam = (searches(transformer, sources, begun, model.tokenizers, beam_size) for beam_size in (1, BEAM))
    their_greedy, their_beam = (
        translations(program, sources, begun, beam_size=beam_size, max_tokens=max_tokens, n_outputs=n_outputs)
        for beam_size in (1, BEAM)
    )
    clear = [i for i, h in enumerate(greedy) if not h.is_near_tie]
    text = TextComparison()
    if isinstance(program, TextProgram):
        chosen_texts = [model.tokenizers.target.decode(greedy[i].ids) for i in clear]
        text = compare_texts(program, [texts[i] for i in clear], chosen_texts, [greedy[i] for i in clear], max_tokens)
    whole = [i for i, h in enumerate(beam) if h.finished]
    differing = [i for i in whole if beam[i].ids != their_beam[i]]
    targets = [h.ids for h in beam]
    differences = np.abs(
        np.concatenate(forced(read, sources, targets, n_outputs))
        - np.concatenate(forced(program.log_probs, sources, targets, n_outputs))
    )
    their_log_probs = forced(read, [sources[i] for i in differing], [their_beam[i] for i in differing], n_outputs)
    return VerifyResult(
        lines=len(sources),
        tokens=differences.size,
        largest_difference=float(differences.max()),
        mean_difference=float(differences.mean()),
        tolerance=TOLERANCE if is_float32 else ROUNDED_TOLERANCE,
        greedy_compared=len(clear),
        greedy_identical=sum(is_same(greedy[i], their_greedy[i]) for i in clear),
        beam_compared=len(whole),
        beam_identical=len(whole) - len(differing),
        beam_ours_likelier=sum(
            beam[i].log_prob >= sum(theirs) for i, theirs in zip(differing, their_log_probs, strict=True)
        ),
        text_compared=text.compared,
        text_identical=text.identical,
        text_rewritten=text.rewritten,
        is_float32=is_float32,
    )


def is_same(ours: Hypothesis, theirs: Ids) -> bool:
    """Whether they are the same; of what we cut at our limit, its beginning is."""
    return ours.ids == theirs[: None if ours.finished else len(ours.ids)]


@dataclass(frozen=True)
class TextComparison:
    compared: int = 0
    identical: int = 0
    rewritten: int = 0


def compare_texts(
    program: TextProgram, lines: Sequence[str], ours: Sequence[str], found: Sequence[Hypothesis], max_tokens: int
) -> TextComparison:
    """Compares, of raw `lines`, the program's text with `ours`, which is the text of the hypotheses `found`."""
    theirs = in_parts(partial(program.translate_text, max_tokens=max_tokens), lines)
    shown = [program.shown(text) for text in ours]
    same = [is_same_text(*each) for each in zip(found, shown, theirs, strict=True)]
    rewritten = [is_same and a != b for is_same, a, b in zip(same, shown, ours, strict=True)]
    return TextComparison(len(lines), sum(same), sum(rewritten))


def is_same_text(ours: Hypothesis, shown: str, theirs: str) -> bool:
    """Whether two texts are the same as `is_same` defines it; a cut may go through the bytes of a character."""
    theirs = theirs.strip(" ")
    return shown == theirs if ours.finished else theirs.startswith(shown.rstrip("\ufffd"))


def in_parts(
    ask: Callable[..., list[_Answer]], *columns: Sequence[Any], rows: int = 1, n_outputs: int = 1
) -> list[_Answer]:
    """`ask` about a few lines at a time, fewer of those that have many `rows` of `n_outputs` logits each."""
    n = max(1, min(TOGETHER, _MOST_LOGITS // (rows * n_outputs)))
    starts = range(0, len(columns[0]), n)
    return [answer for start in starts for answer in ask(*(column[start : start + n] for column in columns))]


def forced(
    read: Callable[[Sequence[Ids], Sequence[Ids]], list[list[float]]],
    sources: Sequence[Ids],
    targets: Sequence[Ids],
    n_outputs: int,
) -> list[list[float]]:
    """The log-probabilities of translations, by Program.log_probs or `log_probs`."""
    rows = 1 + max(map(len, targets), default=0)
    return in_parts(read, sources, targets, rows=rows, n_outputs=n_outputs)


def first_ids(tokenizers: Tokenizers, line: str) -> tuple[int, ...]:
    """What the translation of a line begins with, by the tags of the line."""
    return tokenizers.first_ids(split_tags(line, tokenizers.source.tags)[0])


def in_all_languages(lines: Sequence[str], tokenizer: Tokenizer) -> list[str]:
    """The lines with tags of directions, in which each language comes in turn on both sides, if it needs these."""
    codes = list(tokenizer.languages)
    if not codes:
        return list(lines)
    step = next(n for n in range(len(codes) // 3 + 1, 3 * len(codes)) if math.gcd(n, len(codes)) == 1)
    order = [codes[n * step % len(codes)] for n in range(len(lines) + 1)]
    directions = [f"{source_tag(a)} {target_tag(b)}" for a, b in pairwise(order)]
    found = []
    for line, direction in zip(lines, directions, strict=True):
        tags, text = split_tags(line, tokenizer.tags)
        if text.strip():
            found.append(line if tokenizer.is_direction(tags) else with_tags(text, direction, tokenizer.tags))
    return found


def translations(
    program: Program, sources: Sequence[Ids], begun: Sequence[Ids], *, beam_size: int, max_tokens: int, n_outputs: int
) -> list[list[int]]:
    """The translations by `program`, which begin with the ids of `begun`."""
    columns = (sources, begun) if any(begun) else (sources,)
    translate = partial(program.translate, beam_size=beam_size, max_tokens=max_tokens)
    return in_parts(translate, *columns, rows=beam_size, n_outputs=n_outputs)


def searches(
    model: Transformer, sources: Sequence[Ids], begun: Sequence[Ids], tokenizers: Tokenizers, beam_size: int
) -> list[Hypothesis]:
    """The translations by our model."""
    ask = partial(search, model, tokenizers=tokenizers, beam_size=beam_size)
    return in_parts(ask, sources, begun, rows=beam_size, n_outputs=tokenizers.n_outputs)


def search(
    model: Transformer, sources: Sequence[Ids], begun: Sequence[Ids] = (), *, tokenizers: Tokenizers, beam_size: int
) -> list[Hypothesis]:
    """The best translation of each, as Program.translate has it. All are as wide as the longest: there are few."""
    source, target = tokenizers.source, tokenizers.target
    return searched(
        TransformerDecoder(model),
        padded_ids([[*ids, *source.end_ids] for ids in sources], source.pad_id),
        ControlIds.of(target),
        max_lengths_B=torch.tensor([len(ids) + 1 + EXTRA for ids in sources]),
        beam_size=beam_size,
        begun=begun,
    )


class _Decoder(Protocol):
    """A model that is run token by token on a cache, by us or by another program."""

    def start(self, source_BS: Tensor, *, beam_size: int, max_length: int) -> Any: ...

    def step(self, ids_R: Tensor, cache: Any) -> Tensor: ...


def searched(
    decoder: _Decoder,
    source_BS: Tensor,
    control: ControlIds,
    *,
    max_lengths_B: Tensor,
    beam_size: int,
    begun: Sequence[Ids] = (),
) -> list[Hypothesis]:
    """The best hypothesis of each sentence by our own search, which begins with the ids of `begun`.

    Nothing is gained by length.
    """
    kind = "beam" if beam_size > 1 else "greedy"
    config = DecodeConfig(search=kind, beam_size=beam_size, length_penalty=0)
    with torch.inference_mode():
        cache = decoder.start(source_BS, beam_size=beam_size, max_length=int(max_lengths_B.max()))
        constraints = [Constraints(tuple(ids)) for ids in begun] if any(begun) else []
        request = SearchRequest(decoder.step, cache, control, max_lengths_B, config, constraints=constraints)
        found = SEARCHES[kind](request)
    return [hypotheses[0] for hypotheses in found]


def log_probs(
    model: Transformer, sources: Sequence[Ids], targets: Sequence[Ids], tokenizers: Tokenizers
) -> list[list[float]]:
    """The log-probabilities of the targets by our model, as Program.log_probs returns them."""
    source, target = tokenizers.source, tokenizers.target
    source_BS = padded_ids([[*ids, *source.end_ids] for ids in sources], source.pad_id)
    target_in_BT = padded_ids([[target.bos_id, *ids] for ids in targets], target.pad_id)
    wanted, width = [[*ids, target.eos_id] for ids in targets], target_in_BT.size(1)
    real_K = torch.tensor([row * width + i for row, ids in enumerate(wanted) for i in range(len(ids))])
    n_rows = max(1, _MOST_LOGITS // tokenizers.n_outputs)
    with torch.inference_mode():
        parts = model.predict_in_parts(source_BS, target_in_BT, real_K, n_rows=n_rows)
        chosen = zip(parts, torch.split(torch.tensor(list(chain.from_iterable(wanted))), n_rows), strict=True)
        found = iter([p for logits_KV, ids_K in chosen for p in _log_probs_of(logits_KV, ids_K)])
    return [list(islice(found, len(ids))) for ids in wanted]


def _log_probs_of(logits_KV: Tensor, ids_K: Tensor) -> list[float]:
    # Row by row, so that a large vocabulary takes no second tensor as large as the logits.
    return [float(logits_V.log_softmax(-1)[i]) for logits_V, i in zip(logits_KV, ids_K, strict=True)]


def of_targets(logits_BTV: Tensor, targets: Sequence[Ids], eos_id: int) -> list[list[float]]:
    """The log-probability of each token of the targets and of their EOS, as Program.log_probs has it."""
    return [
        _log_probs_of(logits_TV[: len(ids) + 1], torch.tensor([*ids, eos_id]))
        for logits_TV, ids in zip(logits_BTV, targets, strict=True)
    ]


def padded_ids(sentences: Sequence[Ids], pad_id: int) -> Tensor:
    return nn.utils.rnn.pad_sequence([torch.tensor(ids) for ids in sentences], batch_first=True, padding_value=pad_id)


def made_up(tokenizer: Tokenizer) -> list[str]:
    """Lines of random pieces, for a model whose own text is not at hand."""
    chooser = random.Random(1)
    pieces = [[chooser.randrange(len(tokenizer)) for _ in range(chooser.randint(1, 24))] for _ in range(2 * N_LINES)]
    texts = (canonical(tokenizer.decode([i for i in ids if i != tokenizer.unk_id])) for ids in pieces)
    return [text for text in texts if text][:N_LINES]
