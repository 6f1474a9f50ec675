"""Perplexity of a language model, per token, and per word and character to compare models of other vocabularies.

The log-probability of a line is that of its pieces and of its end. A model that cuts text into other pieces spreads it
over other tokens: per word and per character it is comparable, per token it is not.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import ClassVar

import torch

from transformer_cli.addons.language_models.language_model import LanguageModel
from transformer_cli.data.tokenizer import Tokenizers
from transformer_cli.inference.batch_size import BatchTokens
from transformer_cli.inference.force_decode import force_decode

_LINES = 1024  # read together: enough to sort by length, few enough to see progress


@dataclass(frozen=True)
class TextSums(ABC):
    """Sums over all lines. A blank line is none: it is counted, and nothing else of it is."""

    of_unknown: ClassVar[str]  # what pieces that the vocabulary lacks do to the figures

    n_lines: int
    n_blank: int
    n_tokens: int  # pieces, and an end for each line where the model predicts it
    n_words: int  # of the raw text between white space, and such ends
    n_unknown: int  # pieces that stand for characters which the vocabulary lacks
    log_prob: float  # natural logarithm

    @property
    def perplexity_per_token(self) -> float:
        return math.exp(min(-self.log_prob / self.n_tokens, 100))

    @property
    def perplexity_per_word(self) -> float:
        return math.exp(min(-self.log_prob / self.n_words, 100))

    @abstractmethod
    def scores(self) -> dict[str, float]:
        """The figures that a run reports, by name."""

    @abstractmethod
    def as_dict(self) -> dict[str, float]:
        """What `json.dumps` takes."""

    @abstractmethod
    def lines(self) -> list[str]:
        """One line a figure: its name, its value, and what it is taken over."""


@dataclass(frozen=True)
class TextScores(TextSums):
    """Scores of a text of which each token is predicted from those before it."""

    of_unknown = (
        "An <unk> costs less than a spelling, so the figures per word and per character are lower than they should be"
    )

    n_characters: int  # Unicode code points of the raw text, and an end for each line

    @property
    def bits_per_character(self) -> float:
        return -self.log_prob / self.n_characters / math.log(2)

    def scores(self) -> dict[str, float]:
        return {"perplexity/token": self.perplexity_per_token, "perplexity/word": self.perplexity_per_word}

    def as_dict(self) -> dict[str, float]:
        return {
            "perplexity_per_token": self.perplexity_per_token,
            "perplexity_per_word": self.perplexity_per_word,
            "bits_per_character": self.bits_per_character,
            **asdict(self),
        }

    def lines(self) -> list[str]:
        return [
            f"perplexity per token  {self.perplexity_per_token:10.2f}  {self.n_tokens:,} pieces and line ends",
            f"perplexity per word   {self.perplexity_per_word:10.2f}  {self.n_words:,} words and line ends",
            f"bits per character    {self.bits_per_character:10.4f}  {self.n_characters:,} characters and line ends",
            f"log-probability       {self.log_prob:10.2f}  natural logarithm, of all",
        ]


def text_scores(
    model: LanguageModel,
    tokenizers: Tokenizers,
    lines: Sequence[str],
    *,
    device: torch.device,
    batch_tokens: BatchTokens,
    on_progress: Callable[[int], object] = lambda n_lines: None,
) -> TextScores:
    """Each line is read whole, however long. Raises CheckpointError if logits are not numbers."""
    tokenizer, n_tokens, n_unknown = tokenizers.target, 0, 0
    log_probs: list[float] = []
    for start in range(0, len(lines), _LINES):
        chunk = lines[start : start + _LINES]
        ids = [one for one in tokenizer.encode(chunk) if one]
        for read in force_decode(
            model, [((), one) for one in ids], tokenizers, device=device, batch_tokens=batch_tokens
        ):
            log_probs += read.log_probs
        n_tokens += sum(map(len, ids)) + len(ids)
        n_unknown += sum(one.count(tokenizer.unk_id) for one in ids)
        on_progress(len(chunk))
    real = [line for line in lines if line.strip()]
    return TextScores(
        n_lines=len(lines),
        n_blank=len(lines) - len(real),
        n_tokens=n_tokens,
        n_words=sum(len(line.split()) + 1 for line in real),
        n_characters=sum(len(line) + 1 for line in real),
        n_unknown=n_unknown,
        log_prob=math.fsum(log_probs),
    )
