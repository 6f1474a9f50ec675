"""The models of other programs as these compute them: plain forward passes over the original tensors by their names.

An imported model is compared with these where the other program is not at hand. They share nothing with our modules,
and each format writes down its own layers; only attention's product and the search are common to them.

Shapes: B batch, S source, L new target tokens, T target, D width, H heads, E head width, V vocabulary, N beam, R = B·N.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import sentencepiece
import torch
import torch.nn.functional as F
from torch import Tensor

from transformer_cli.addons.interop.verify import Ids, Program
from transformer_cli.data.packed_tokenizer import Segmenter
from transformer_cli.data.tokenizer import Tokenizers

Past = dict[str, tuple[Tensor, Tensor]]  # of each self-attention of the decoder: keys and values so far
ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu, "silu": F.silu}


@dataclass(frozen=True)
class Control:
    """`start` is the decoder's first input; `banned` are tokens that no translation has; sources end with `end`.

    `unknown` is what stands in a source for a piece that its vocabulary lacks.
    """

    start: int
    eos: int
    unknown: int
    banned: Sequence[int]
    end: Sequence[int]


class Reference(ABC):
    """A Program. A format says how a source is encoded, and what the decoder makes of some more tokens."""

    def __init__(self, tensors: Mapping[str, Tensor], control: Control, *, n_heads: int) -> None:
        self.tensors = {name: tensor.float() for name, tensor in tensors.items()}
        self.control, self.n_heads = control, n_heads

    @abstractmethod
    def encode_source(self, ids_BS: Tensor, is_token_BS: Tensor) -> Tensor:
        """The states that the decoder attends to, [B, S, D]."""

    @abstractmethod
    def decode(self, ids_BL: Tensor, first: int, memory_BSD: Tensor, is_token_BS: Tensor, past: Past) -> Tensor:
        """Logits after each of these tokens, [B, L, V]; the first is the `first`-th of its sentence, from 0."""

    def linear(self, name: str, x: Tensor) -> Tensor:
        return F.linear(x, self.tensors[f"{name}.weight"], self.tensors.get(f"{name}.bias"))

    def attend(self, q_BLD: Tensor, k_BSD: Tensor, v_BSD: Tensor, may_attend: Tensor) -> Tensor:
        """Softmax(q k / √E) v of each head, [B, L, D]; `may_attend` is broadcast to [B, L, S]."""
        q_BHLE, k_BHSE, v_BHSE = map(self._of_heads, (q_BLD, k_BSD, v_BSD))
        scores_BHLS = q_BHLE @ k_BHSE.transpose(-1, -2) / math.sqrt(q_BHLE.size(-1))
        weights_BHLS = scores_BHLS.masked_fill(~may_attend.unsqueeze(1), -math.inf).softmax(-1)
        context_BHLE: Tensor = weights_BHLS @ v_BHSE
        return context_BHLE.transpose(1, 2).flatten(2)

    def _of_heads(self, x_BLD: Tensor) -> Tensor:
        return torch.unflatten(x_BLD, -1, (self.n_heads, -1)).transpose(1, 2)

    @staticmethod
    def extend(past: Past, name: str, k_BLD: Tensor, v_BLD: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Keys and values of all tokens so far, and which of them each new one attends to, [1, L, T]."""
        if name in past:
            k_BLD, v_BLD = (torch.cat([old, new], dim=1) for old, new in zip(past[name], (k_BLD, v_BLD), strict=True))
        n_new = k_BLD.size(1) - (past[name][0].size(1) if name in past else 0)
        past[name] = (k_BLD, v_BLD)
        ones_LT = torch.ones(n_new, k_BLD.size(1), dtype=torch.bool)
        return k_BLD, v_BLD, ones_LT.tril(k_BLD.size(1) - n_new)[None]

    @torch.inference_mode()
    def log_probs(self, sources: Sequence[Ids], targets: Sequence[Ids]) -> list[list[float]]:
        memory_BSD, is_token_BS = self._encoded(sources)
        ids_BT, _ = _padded([[self.control.start, *ids] for ids in targets])
        log_p_BTV = self.decode(ids_BT, 0, memory_BSD, is_token_BS, {}).log_softmax(-1)
        wanted = [[*ids, self.control.eos] for ids in targets]
        return [row[range(len(ids)), ids].tolist() for row, ids in zip(log_p_BTV, wanted, strict=True)]

    @torch.inference_mode()
    def translate(self, sources: Sequence[Ids], *, beam_size: int, max_tokens: int) -> list[list[int]]:
        """Beam search that ends when no hypothesis can become likelier than the best one that has ended."""
        n = beam_size
        memory_BSD, is_token_BS = self._encoded(sources)
        memory_RSD, is_token_RS = memory_BSD.repeat_interleave(n, dim=0), is_token_BS.repeat_interleave(n, dim=0)
        none: tuple[float, list[int]] = (-math.inf, [])  # log-probability and tokens
        best, live = [none for _ in sources], [[(0.0, []), *[none] * (n - 1)] for _ in sources]
        newest_R1 = torch.full((len(sources) * n, 1), self.control.start)
        past: Past = {}
        for length in range(max_tokens):
            log_p_RV = self.decode(newest_R1, length, memory_RSD, is_token_RS, past)[:, -1].log_softmax(-1)
            log_p_RV[:, list(self.control.banned)] = -math.inf
            scores_RV = torch.tensor([score for rows in live for score, _ in rows])[:, None] + log_p_RV
            top_scores, top_numbers = scores_RV.view(-1, n * scores_RV.size(1)).topk(2 * n)
            origins: list[int] = []
            for b, (scores, numbers) in enumerate(zip(top_scores.tolist(), top_numbers.tolist(), strict=True)):
                picked = [divmod(number, log_p_RV.size(1)) for number in numbers]
                found = [(score, row, token) for score, (row, token) in zip(scores, picked, strict=True)]
                ended = [(score, live[b][row][1]) for score, row, token in found[:n] if token == self.control.eos]
                best[b] = max([best[b], *ended], key=lambda hypothesis: hypothesis[0])
                going = [candidate for candidate in found if candidate[2] != self.control.eos][:n]
                origins += [b * n + row for _, row, _ in going]
                live[b] = [(score, [*live[b][row][1], token]) for score, row, token in going]
            if all(ended[0] >= rows[0][0] for ended, rows in zip(best, live, strict=True)):
                break
            past = {name: (k_RTD[origins], v_RTD[origins]) for name, (k_RTD, v_RTD) in past.items()}
            newest_R1 = torch.tensor([[tokens[-1]] for rows in live for _, tokens in rows])
        return [(ended if ended[0] > -math.inf else rows[0])[1] for ended, rows in zip(best, live, strict=True)]

    def _encoded(self, sources: Sequence[Ids]) -> tuple[Tensor, Tensor]:
        ids_BS, is_token_BS = _padded([[*ids, *self.control.end] for ids in sources])
        return self.encode_source(ids_BS, is_token_BS), is_token_BS


class WithTexts:
    """A reference, and the SentencePiece models and vocabularies of its two sides: a Program that also has texts."""

    def __init__(self, reference: Reference, models: Sequence[bytes], vocabularies: Sequence[Sequence[str]]) -> None:
        self.translate, self.log_probs = reference.translate, reference.log_probs
        self._models = [sentencepiece.SentencePieceProcessor(model_proto=model) for model in models]
        self._vocabularies, self._unknown = vocabularies, reference.control.unknown

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        ids = {piece: number for number, piece in enumerate(self._vocabularies[0])}
        cut = self._models[0].encode(list(lines), out_type=str)
        return [[ids.get(piece, self._unknown) for piece in pieces] for pieces in cut]

    def decode(self, sentences: Sequence[Ids]) -> list[str]:
        return [self._models[1].decode_pieces([self._vocabularies[1][i] for i in ids]) for ids in sentences]


def with_texts(reference: Reference, tokenizers: Tokenizers) -> Program:
    """The reference with its texts, where SentencePiece cuts them; else as it is."""
    sides = [side.packed for side in (tokenizers.source, tokenizers.target)]
    packed = [side for side in sides if side is not None and side.segmenter is Segmenter.sentencepiece]
    if len(packed) < 2:
        return reference
    return WithTexts(reference, [side.model for side in packed], [side.pieces for side in packed])


def _padded(sentences: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Ids, and which of them are tokens and no padding."""
    longest = max(map(len, sentences))
    ids = torch.tensor([[*ids, *[0] * (longest - len(ids))] for ids in sentences])
    return ids, torch.arange(longest) < torch.tensor([len(ids) for ids in sentences])[:, None]


def sinusoids(positions: range, width: int, *, interleaved: bool, step: float) -> Tensor:
    """sin and cos of position · 10000^(-j · step), j from 0, [positions, width]; in turn, or all sines first."""
    angles = torch.outer(
        torch.tensor(positions, dtype=torch.float64), 10_000 ** -(torch.arange(width // 2, dtype=torch.float64) * step)
    )
    pair = [angles.sin(), angles.cos()]
    return (torch.stack(pair, dim=-1).flatten(1) if interleaved else torch.cat(pair, dim=-1)).float()
