"""Encoder inference: one vector, or one class, of each sentence.

Shapes: B batch, S source, X numbers of each sentence.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from transformer_cli.config.model import Positions
from transformer_cli.data.pairs import texts_of
from transformer_cli.data.tokenizer import Tokenizer
from transformer_cli.data.transfer import to_device
from transformer_cli.data.unknown import UnknownCounter, unknown_characters
from transformer_cli.inference.batch_size import BatchTokens, forward_tokens
from transformer_cli.models.file import ModelFile
from transformer_cli.models.memory import SplitBatches


def encode_whole(tokenizer: Tokenizer, lines: Sequence[str], *, max_length: int, n_texts: int = 1) -> list[list[int]]:
    """Ids of each line between BOS and EOS, or of pairs; of one with more than `max_length` tokens, the first ones."""
    if n_texts == 2:
        return [delimited_pair(*pair, tokenizer, max_length=max_length) for pair in encode_text_pairs(tokenizer, lines)]
    return [delimited(ids, tokenizer, max_length=max_length) for ids in tokenizer.encode(lines)]


def delimited(ids: Sequence[int], tokenizer: Tokenizer, *, max_length: int, begins: bool = True) -> list[int]:
    """A sentence with EOS, and with BOS if it `begins` with one, cut to `max_length` tokens."""
    return [*([tokenizer.bos_id] if begins else []), *ids[: max_length - begins - 1], *tokenizer.end_ids]


def encode_text_pairs(tokenizer: Tokenizer, sources: Sequence[str]) -> list[tuple[list[int], list[int]]]:
    """The ids of both texts of each source, without BOS and EOS; two times none for a blank one."""
    pairs = [texts_of(source) for source in sources]
    ids = tokenizer.encode([first for first, _ in pairs] + [second for _, second in pairs])
    ids = [[tokenizer.unk_id if i == tokenizer.eos_id else i for i in one] for one in ids]
    return [(a, b) if a and b else ([], []) for a, b in zip(ids[: len(pairs)], ids[len(pairs) :], strict=True)]


def delimited_pair(first: Sequence[int], second: Sequence[int], tokenizer: Tokenizer, *, max_length: int) -> list[int]:
    """Both with BOS and EOS; if these are more than `max_length` tokens, the longer text is cut, then both."""
    room = max(max_length - 3, 2)
    n_first = min(len(first), max(room - len(second), room - room // 2))
    n_second = min(len(second), room - n_first)
    eos_id = tokenizer.eos_id
    return [tokenizer.bos_id, *first[:n_first], eos_id, *second[:n_second], eos_id]


def longest_of(model: ModelFile) -> int:
    """Tokens of the longest sentence that the model was trained on; 256 where the file has no such entry."""
    stored = model.data.get("max_length")
    longest = stored if isinstance(stored, int) and stored >= 2 else 256
    return min(longest, model.config.max_positions) if model.config.positions is Positions.learned else longest


class LineEncoder:
    """Encodes lines in batches: `ask` maps ids, [B, S], to [B, X].

    The lines of a classifier of pairs are first<TAB>second. A blank line has no result. `cut` are the numbers of the
    lines so far that were truncated, and `unknown` counts those with characters that the vocabulary does not have.
    """

    def __init__(
        self, ask: Callable[[Tensor], Tensor], model: ModelFile, *, device: torch.device, batch_tokens: BatchTokens
    ) -> None:
        self.ask, self.tokenizer, self.device, self.batch_tokens = ask, model.tokenizers.source, device, batch_tokens
        # With BOS, which the sources of translators never contain.
        self.begins = model.task.begins
        self.n_texts = model.config.n_segments
        self.max_length = longest_of(model)
        self.begin()

    def begin(self) -> None:
        """Number the lines from 1."""
        self.cut: list[int] = []
        self.unknown = UnknownCounter()
        self.n_lines = 0

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """Ids of each line as the model reads them; none of a blank line."""
        tokenizer, begins, longest = self.tokenizer, self.begins, self.max_length
        pairs = encode_text_pairs(tokenizer, lines) if self.n_texts == 2 else []
        ids = [[*first, *second] for first, second in pairs] or tokenizer.encode(lines)
        n_added = begins + self.n_texts
        self.cut += [self.n_lines + i for i, line in enumerate(ids, start=1) if len(line) + n_added > longest]
        for number, (line, its_ids) in enumerate(zip(lines, ids, strict=True), start=self.n_lines + 1):
            self.unknown.add(number, unknown_characters(line, its_ids, tokenizer))
        self.n_lines += len(lines)
        if self.n_texts == 2:
            each = [delimited_pair(*pair, tokenizer, max_length=longest) for pair in pairs]
        else:
            each = [delimited(line, tokenizer, max_length=longest, begins=begins) for line in ids]
        return [delimited_ids if line else [] for line, delimited_ids in zip(ids, each, strict=True)]

    def answers(self, sentences: Sequence[Sequence[int]]) -> list[Tensor]:
        """The result of each of `encode`'s sentences, none of which is empty, [X]; in float32 on the CPU."""
        pad_id = self.tokenizer.pad_id
        return ask_each(self.ask, sentences, pad_id=pad_id, device=self.device, batch_tokens=self.batch_tokens)

    def read(self, lines: Sequence[str]) -> list[Tensor | None]:
        """The result of each line, [X], in float32 on the CPU."""
        sentences = self.encode(lines)
        answers = iter(self.answers([ids for ids in sentences if ids]))
        return [next(answers) if ids else None for ids in sentences]


@torch.inference_mode()
def ask_each(
    ask: Callable[[Tensor], Tensor],
    sentences: Sequence[Sequence[int]],
    *,
    pad_id: int,
    device: torch.device,
    batch_tokens: BatchTokens,
    between: Callable[[int], object] = lambda n_sentences: None,
) -> list[Tensor]:
    """The result of each sentence, [X], in float32 on the CPU; `ask` maps [B, S] to [B, X].

    Sentences of similar length share a batch of at most `batch_tokens` padded tokens, or a single sentence. `between`
    is called after every batch with its number of sentences, and may raise to stop.
    """
    order = sorted(range(len(sentences)), key=lambda i: len(sentences[i]))
    answers: list[Tensor] = [torch.empty(0)] * len(sentences)
    max_tokens = forward_tokens(batch_tokens, device)
    split = SplitBatches(lower="batch_tokens", alone="Shorten the longest sentences, or choose another device=")

    def ask_part(part: Sequence[Sequence[int]]) -> list[Tensor]:
        return list(ask(to_device(_padded(part, pad_id), device)).float().cpu())

    start = 0
    while start < len(order):
        end = start + 1
        while end < len(order) and len(sentences[order[end]]) * (end + 1 - start) <= max_tokens:
            end += 1
        chosen = order[start:end]
        found = split([sentences[i] for i in chosen], ask_part)
        for i, answer_X in zip(chosen, found, strict=True):
            answers[i] = answer_X
        between(len(chosen))
        start = end
    return answers


def _padded(sentences: Sequence[Sequence[int]], pad_id: int) -> Tensor:
    longest = max(map(len, sentences))
    return torch.tensor([[*ids, *[pad_id] * (longest - len(ids))] for ids in sentences])
