"""Embeddings of whole tokens set to zero: word dropout, and the cuts of SimCut.

Shapes: L tokens of one side, D width.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial

import torch
from torch import Tensor, nn

from transformer_cli.config.train import TrainSettings
from transformer_cli.data.tokenizer import Tokenizers
from transformer_cli.data.transfer import to_device
from transformer_cli.models.embeddings import TokenEmbedding
from transformer_cli.models.inputs import Inputs
from transformer_cli.models.transformer import Model

Factors = Callable[[Tensor], Tensor]  # ids of one side, [L] -> what the embedding of each is multiplied by, [L]


class WordDropout:
    """Multiplies the embedding of each token by 0 with probability p, and by 1 / (1 - p) otherwise.

    That is Sennrich, Haddow and Birch 2016 (section 2.5), as their Nematus and Marian scale it, with one p for each
    side. Gal and Ghahramani 2016 (section 4.2) drop a word wherever it occurs in the sequence; here each token is drawn
    by itself. BOS, EOS and tags are neither dropped nor scaled: of words, they tell nothing.
    """

    def __init__(self, settings: TrainSettings, tokenizers: Tokenizers, device: torch.device) -> None:
        self.rates = settings.source_word_dropout, settings.target_word_dropout
        self.spared = spared_ids(tokenizers, device)

    def applied(self, model: Model, given: Inputs) -> AbstractContextManager[None]:
        """Drops words of `given` in the block when the model embeds them."""
        if not any(self.rates):
            return nullcontext()
        each = zip(self.rates, self.spared, strict=True)
        source, target = (partial(self.factors, p=p, spared=spared) for p, spared in each)
        return embeddings_scaled(model, given, source, target)

    def factors(self, ids_L: Tensor, *, p: float, spared: Tensor) -> Tensor:
        """The factor of each token, [L]."""
        is_dropped_L = torch.rand(ids_L.shape, device=ids_L.device) < p
        factor_L = torch.where(is_dropped_L, 0.0, 1 / (1 - p))
        return torch.where(torch.isin(ids_L, spared), 1.0, factor_L)


def spared_ids(tokenizers: Tokenizers, device: torch.device) -> tuple[Tensor, Tensor]:
    """The ids that are no words, of the source and of the target: BOS, EOS and tags, also those of languages.

    They are two, as a tag of one of two vocabularies is a word of the other.
    """
    source, target = tokenizers.source, tokenizers.target
    each = {source.bos_id, *source.end_ids, *source.tag_ids}, {target.bos_id, *target.tag_ids}
    of_source, of_target = (to_device(torch.tensor(sorted(ids)), device) for ids in each)
    return of_source, of_target


@contextmanager
def embeddings_scaled(model: Model, given: Inputs, source: Factors, target: Factors) -> Iterator[None]:
    """Multiplies the embedding of each token of `given` by its factor in the block."""

    def scaled(embedding: nn.Module, args: tuple[Tensor, ...], x_LD: Tensor) -> Tensor:
        # One embedding may serve both sides: they differ in the ids that it is called with.
        factors = target if args[0] is given.target_in_T else source
        return x_LD * factors(args[0]).to(x_LD.dtype)[:, None]

    with ExitStack() as hooks:
        for module in model.modules():
            if isinstance(module, TokenEmbedding):
                hooks.enter_context(module.register_forward_hook(scaled))
        yield
