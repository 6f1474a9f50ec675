"""Sentences that are read whole: each is asked for one vector, or for its class.

Shapes: B batch, S source, N sentences, X numbers of each.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from transformer_cli.data.tokenizer import Tokenizer


def encode_whole(tokenizer: Tokenizer, lines: Sequence[str], *, max_length: int) -> list[list[int]]:
    """Ids of each line between BOS and EOS; of a line with more than `max_length` tokens, the first ones."""
    return [[tokenizer.bos_id, *ids[: max_length - 2], tokenizer.eos_id] for ids in tokenizer.encode(lines)]


@torch.inference_mode()
def ask_each(
    ask: Callable[[Tensor], Tensor],
    sentences: Sequence[Sequence[int]],
    *,
    pad_id: int,
    device: torch.device,
    batch_tokens: int,
    between: Callable[[int], object] = lambda n_sentences: None,
) -> Tensor:
    """What `ask` answers of each sentence, [N, X], in float32 on the CPU; it is given [B, S] and answers [B, X].

    Sentences of like length go together, at most `batch_tokens` cells or a single one. `between` is told after every
    batch of how many sentences it was, and may raise to end it.
    """
    order = sorted(range(len(sentences)), key=lambda i: len(sentences[i]))
    answers: list[Tensor] = [torch.empty(0)] * len(sentences)
    start = 0
    while start < len(order):
        end = start + 1
        while end < len(order) and len(sentences[order[end]]) * (end + 1 - start) <= batch_tokens:
            end += 1
        chosen = order[start:end]
        longest = len(sentences[chosen[-1]])
        rows = [[*sentences[i], *[pad_id] * (longest - len(sentences[i]))] for i in chosen]
        answer_BX = ask(torch.tensor(rows, device=device)).float().cpu()
        for i, answer_X in zip(chosen, answer_BX, strict=True):
            answers[i] = answer_X
        between(len(chosen))
        start = end
    return torch.stack(answers)
