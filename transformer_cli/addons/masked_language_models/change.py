"""The change of the training text that masks it, anew in every epoch."""

from transformer_cli.addons.masked_language_models.keys import Masking
from transformer_cli.addons.masked_language_models.masking import masked
from transformer_cli.addons.masked_language_models.task import MASK_TOKENS, MaskedLanguageModelling
from transformer_cli.config.options import checked_options
from transformer_cli.config.train import TrainConfig
from transformer_cli.data.cache import Array, EncodedCorpus
from transformer_cli.data.prepare import Prepared
from transformer_cli.data.subwords import sentence_seeds
from transformer_cli.errors import ConfigError
from transformer_cli.models.registry import MODELS


class MaskTokens:
    """Masks the sentences of an update: a function of the seed, the epoch and the sentence's place in the corpus."""

    def __init__(self, config: TrainConfig, prepared: Prepared) -> None:
        if not isinstance(config.data.trained, MaskedLanguageModelling):
            raise ConfigError(
                f"data.changes: {MASK_TOKENS} is of data.task=masked_language_model, which makes it by itself. Leave"
                " it out"
            )
        self.seed, self.tokenizer = config.seed, prepared.tokenizers.target
        own = checked_options(MODELS, config.model.name, config.model.options)
        self.shares = Masking(**{name: value for name, value in own.items() if name in Masking.__dataclass_fields__})

    def __call__(self, pairs: EncodedCorpus, indices: Array, *, epoch: int) -> EncodedCorpus:
        seeds = sentence_seeds(indices, seed=self.seed, epoch=epoch)[0]
        return masked(pairs, seeds, self.tokenizer, self.shares)
