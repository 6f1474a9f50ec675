"""The model that a config names."""

from dataclasses import replace

from transformer_cli.config.model import ModelConfig, Vocabulary
from transformer_cli.config.options import checked_options
from transformer_cli.config.poolings import with_pooling_options
from transformer_cli.models.registry import MODELS
from transformer_cli.models.transformer import DEFAULT_MODEL_OPTIONS, Model, ModelOptions


def build_model(
    config: ModelConfig, source: Vocabulary, target: Vocabulary, options: ModelOptions = DEFAULT_MODEL_OPTIONS
) -> Model:
    """The model called `config.name`, with freshly drawn weights; `Tokenizers.vocabularies` are source and target."""
    config = with_pooling_options(replace(config, options=checked_options(MODELS, config.name, config.options)))
    model: Model = MODELS[config.name](config, source, target, options)
    return model
