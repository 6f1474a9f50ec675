"""Dev scores of a masked language model."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from transformer_cli.addons.masked_language_models.keys import Masking
from transformer_cli.addons.masked_language_models.masking import as_targets, masked
from transformer_cli.data.cache import Array, EncodedCorpus
from transformer_cli.data.corpus import ParallelText
from transformer_cli.data.subwords import sentence_seeds
from transformer_cli.models.kernel_choice import choose_kernel
from transformer_cli.models.transformer import Model
from transformer_cli.training.forward import predict_batch
from transformer_cli.training.precision import choose_dtype
from transformer_cli.training.validation import Autocast, DevScores, Validator


@dataclass(frozen=True)
class MaskedScores(DevScores):
    """The dev scores of a masked language model; the NLL is in nats per masked token."""

    accuracy: float  # of masked tokens, in percent

    @property
    def summary(self) -> str:
        return f"{super().summary}, accuracy {self.accuracy:.2f}"

    def _of_the_task(self) -> dict[str, float]:
        return {"dev_accuracy": self.accuracy}


class MaskedValidator(Validator):
    """Computes the NLL and the accuracy of the masked tokens of the dev set.

    Its masks are the same in every evaluation and for every seed and share of the run: models compare by them. A long
    line is truncated.
    """

    def encode(self, text: ParallelText) -> EncodedCorpus:
        tokenizer, longest = self.tokenizers.target, self.config.data.max_length - 2  # BOS and EOS
        lines = [line for line in text.targets if line.strip()]
        encoded = tokenizer.encode(lines, as_written=True)
        sentences = [[*ids[:longest], *tokenizer.end_ids] for ids in encoded if ids]
        return masked(as_targets(sentences), dev_seeds(len(sentences)), tokenizer, Masking())

    @torch.no_grad()
    def _score(self, model: Model, nll: float, autocast: Autocast, between: Callable[[], None]) -> DevScores:
        kernel = choose_kernel(self.config.model, self.device, choose_dtype(self.config.train.precision, self.device))
        n_right = []
        for batch in self.batches:
            with autocast():
                logits_TV, targets_T = predict_batch(model, batch, self.device, kernel)
            n_right.append((logits_TV.argmax(dim=-1) == targets_T).sum())
            between()
        n_targets = sum(batch.n_target_tokens for batch in self.batches)
        return MaskedScores(nll, 100 * float(torch.stack(n_right).sum()) / n_targets)


def dev_seeds(n: int) -> Array:
    """The seeds of the masks of a dev set, whatever the seed of the run."""
    seeds: Array = sentence_seeds(np.arange(n), seed=0, epoch=0)[0]
    return seeds
