"""What a masked language model says of the first mask of each sentence.

Shapes: B batch, S source, V vocabulary.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from transformer_cli.addons.embedding.encode import ask_each
from transformer_cli.addons.embedding.pooling import source_layout
from transformer_cli.addons.masked_language_models.masked_language_model import MaskedLanguageModel
from transformer_cli.data.tokenizer import Tokenizer
from transformer_cli.inference.batch_size import BatchTokens
from transformer_cli.inference.precision import dtype_of, overflow_named

MOST_NUMBERS = 1 << 25  # log-probabilities that are held at once: 128 MB


class MaskPredictor:
    """Predicts the token at the first mask of sentences, which are ids from BOS to EOS."""

    def __init__(
        self, model: MaskedLanguageModel, tokenizer: Tokenizer, *, device: torch.device, batch_tokens: BatchTokens
    ) -> None:
        self.model, self.tokenizer, self.device, self.batch_tokens = model, tokenizer, device, batch_tokens
        self.mask_id = model.mask_id
        self.at_once = max(1, MOST_NUMBERS // len(tokenizer))  # sentences that a caller should give

    def log_probs(self, sentences: Sequence[Sequence[int]]) -> list[Tensor]:
        """Natural logarithms of the probabilities of every token, [V], for each sentence; in float32 on the CPU.

        Raises CheckpointError if logits are not numbers.
        """
        with overflow_named(dtype_of(self.model)):
            return ask_each(
                self._of_first_mask,
                sentences,
                pad_id=self.tokenizer.pad_id,
                device=self.device,
                batch_tokens=self.batch_tokens,
            )

    def _of_first_mask(self, source_BS: Tensor) -> Tensor:
        memory_BSD = self.model.encode(source_BS, source_layout(source_BS, self.tokenizer.pad_id))
        first_B = (source_BS == self.mask_id).int().argmax(dim=1)
        row_B = torch.arange(len(source_BS), device=source_BS.device)
        return self.model.predict(memory_BSD[row_B, first_B]).float().log_softmax(dim=-1)
