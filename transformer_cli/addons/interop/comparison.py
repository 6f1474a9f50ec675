"""Does an imported model predict what the original does? Asked one after the other: memory holds one of them at a time.

The original answers first, and is gone before our model is read from its new file. What is compared: how both cut the
text, the log-probability of each token of the original's own translations, the ids of greedy search and of a beam of 4,
and the text that both make of the same ids.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

import numpy as np

from transformer_cli.addons.interop.verify import (
    BEAM,
    CPU,
    EXTRA,
    MAX_COMPARED_TOKENS,
    TOLERANCE,
    Ids,
    Program,
    VerifyResult,
    first_ids,
    forced,
    is_same,
    log_probs,
    searches,
    translations,
)
from transformer_cli.data.tokenizer import Tokenizers
from transformer_cli.errors import CheckpointError
from transformer_cli.models.file import ModelFile


class Texts(Protocol):
    """What a Program may have beside its methods: the tokenizers of the original."""

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """Ids of each source line, without EOS."""

    def decode(self, sentences: Sequence[Ids]) -> list[str]:
        """The text of each translation, of ids without BOS and EOS."""


@dataclass(frozen=True)
class Answers:
    """What the original made of some lines. `encoded` and `texts` are None without tokenizers of its own."""

    lines: Sequence[str]
    sources: Sequence[Ids]  # as we cut the lines; both programs translate these
    begun: Sequence[Ids]  # what their translations begin with
    max_tokens: int
    greedy: Sequence[Ids]
    beam: Sequence[Ids]
    log_probs: Sequence[list[float]]  # of the tokens of `beam`, EOS counted
    encoded: Sequence[Ids] | None
    texts: Sequence[str] | None  # of `beam`


@dataclass(frozen=True)
class ImportComparison:
    """The verdict on ids, and on text where the original has tokenizers of its own."""

    verdict: VerifyResult
    encoded_identical: int | None
    decoded_identical: int | None
    text_identical: int | None  # from text to text, of the lines whose beams are compared

    @property
    def holds(self) -> bool:
        alike = all(n in (None, self.verdict.lines) for n in (self.encoded_identical, self.decoded_identical))
        return self.verdict.holds and alike

    def lines_of_text(self) -> list[str]:
        n, lines = self.verdict.lines, self.verdict.lines_of_ids()
        if self.encoded_identical is None:
            return [*lines, "text: not compared, as the original has no tokenizer of its own"]
        return [
            *lines,
            f"tokenizers: {self.encoded_identical} of {n} lines have the same ids, {self.decoded_identical} of {n}"
            " translations the same text",
            *(
                [f"text to text, beam {BEAM}: {self.text_identical} of {compared} lines identical"]
                if (compared := self.verdict.beam_compared)
                else []
            ),
        ]


def ask(
    load: Callable[[], Program], tokenizers: Tokenizers, lines: Sequence[str], *, max_positions: int | None = None
) -> Answers:
    """Load the original, and ask it. Nothing of it is left in memory after that."""
    longest = MAX_COMPARED_TOKENS if max_positions is None else min(MAX_COMPARED_TOKENS, max_positions - EXTRA - 1)
    encoded = zip(lines, tokenizers.source.encode(lines), strict=True)
    chosen = [(line, ids) for line, ids in encoded if 0 < len(ids) <= longest]
    if not chosen:
        raise CheckpointError(
            f"no line of at most {longest} tokens to compare the original with. Name a file with some in --lines"
        )
    sources = [ids for _, ids in chosen]
    max_tokens = max(map(len, sources)) + 1 + EXTRA
    program, n_outputs = load(), tokenizers.n_outputs
    begun = [first_ids(tokenizers, line) for line, _ in chosen]
    greedy, beam = (
        translations(program, sources, begun, beam_size=beam_size, max_tokens=max_tokens, n_outputs=n_outputs)
        for beam_size in (1, BEAM)
    )
    has_texts = hasattr(program, "encode") and hasattr(program, "decode")
    texts = cast(Texts, program) if has_texts else None
    return Answers(
        lines=[line for line, _ in chosen],
        sources=sources,
        begun=begun,
        max_tokens=max_tokens,
        greedy=greedy,
        beam=beam,
        log_probs=forced(program.log_probs, sources, beam, n_outputs),
        encoded=None if texts is None else texts.encode([line for line, _ in chosen]),
        texts=None if texts is None else texts.decode(beam),
    )


def compare_answers(model: ModelFile, answers: Answers) -> ImportComparison:
    """Ask our model the same. What to do about a comparison that does not hold is left to the caller."""
    transformer, target = model.build(CPU, copies=False), model.tokenizers.target
    sources, n = answers.sources, len(answers.sources)

    def read(sources: Sequence[Ids], targets: Sequence[Ids]) -> list[list[float]]:
        return log_probs(transformer, sources, targets, model.tokenizers)

    greedy, beam = (
        searches(transformer, sources, answers.begun, model.tokenizers, beam_size) for beam_size in (1, BEAM)
    )
    ours = forced(read, sources, answers.beam, model.tokenizers.n_outputs)
    differences = np.abs(np.concatenate(ours) - np.concatenate([*answers.log_probs]))
    clear = [i for i, h in enumerate(greedy) if not h.is_near_tie]
    whole = [i for i, h in enumerate(beam) if h.finished]
    differing = [i for i in whole if beam[i].ids != answers.beam[i]]
    verdict = VerifyResult(
        lines=n,
        tokens=differences.size,
        largest_difference=float(differences.max()),
        mean_difference=float(differences.mean()),
        tolerance=TOLERANCE,
        greedy_compared=len(clear),
        greedy_identical=sum(is_same(greedy[i], answers.greedy[i]) for i in clear),
        beam_compared=len(whole),
        beam_identical=len(whole) - len(differing),
        beam_ours_likelier=sum(beam[i].log_prob >= sum(ours[i]) for i in differing),
        text_compared=0,  # `ImportComparison` has what is compared of texts here
        text_identical=0,
        text_rewritten=0,
        is_float32=True,
    )
    if answers.encoded is None or answers.texts is None:
        return ImportComparison(verdict, None, None, None)
    is_encoded = [list(a) == list(b) for a, b in zip(sources, answers.encoded, strict=True)]
    theirs = [one_line(text) for text in answers.texts]
    return ImportComparison(
        verdict,
        encoded_identical=sum(is_encoded),
        decoded_identical=sum(target.decode(ids) == text for ids, text in zip(answers.beam, theirs, strict=True)),
        text_identical=sum(is_encoded[i] and target.decode(beam[i].ids) == theirs[i] for i in whole),
    )


def one_line(text: str) -> str:
    """The text as our tokenizers write it: line ends become spaces, none at its ends."""
    return text.translate(LINE_ENDS).strip(" ")


LINE_ENDS: dict[int, Any] = dict.fromkeys(map(ord, "\n\v\f\r\x1c\x1d\x1e\x85\u2028\u2029"), " ")
