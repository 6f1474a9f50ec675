"""Embeddings of whole tokens set to zero: word dropout, and the cuts of SimCut.

Shapes: L tokens of one side, D width.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext

import torch
from torch import Tensor, nn

from transformer_cli.config.train import TrainSettings
from transformer_cli.data.tokenizer import Tokenizers
from transformer_cli.models.build import Model
from transformer_cli.models.embeddings import TokenEmbedding
from transformer_cli.training.forward import Inputs


class WordDropout:
    """Multiplies the embedding of each token by 0 with probability p, and by 1 / (1 - p) otherwise.

    That is Sennrich, Haddow and Birch 2016 (section 2.5), as their Nematus and Marian scale it, with one p for each
    side. Gal and Ghahramani 2016 (section 4.2) drop a word wherever it occurs in the sequence; here each token is drawn
    by itself. BOS, EOS and the tags in front of a source are neither dropped nor scaled: of words, they tell nothing.
    """

    def __init__(self, settings: TrainSettings, tokenizers: Tokenizers) -> None:
        self.source, self.target = settings.source_word_dropout, settings.target_word_dropout
        source = tokenizers.source
        self.kept = torch.tensor(sorted({*source.end_ids, *source.tag_ids, source.bos_id, tokenizers.target.bos_id}))

    def applied(self, model: Model, given: Inputs) -> AbstractContextManager[None]:
        """Inside, words of `given` are dropped when the model embeds them."""
        if not (self.source or self.target):
            return nullcontext()
        # One embedding may serve both sides: they differ in the ids that it is called with.
        return embeddings_scaled(
            model, lambda ids_L: self.factors(ids_L, self.source if ids_L is given.source_S else self.target)
        )

    def factors(self, ids_L: Tensor, p: float) -> Tensor:
        """Of each token, [L]."""
        is_dropped_L = torch.rand(ids_L.shape, device=ids_L.device) < p
        factor_L = torch.where(is_dropped_L, 0.0, 1 / (1 - p))
        return torch.where(torch.isin(ids_L, self.kept.to(ids_L.device)), 1.0, factor_L)


@contextmanager
def embeddings_scaled(model: Model, factors: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Inside, the embedding of each token is multiplied by the one of the `factors` of the ids, [L], that is its."""

    def scaled(embedding: nn.Module, args: tuple[Tensor, ...], x_LD: Tensor) -> Tensor:
        return x_LD * factors(args[0]).to(x_LD.dtype)[:, None]

    with ExitStack() as hooks:
        for module in model.modules():
            if isinstance(module, TokenEmbedding):
                hooks.enter_context(module.register_forward_hook(scaled))
        yield
