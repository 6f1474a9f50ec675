"""The model that a config names."""

from dataclasses import replace

from transformer_cli.config.model import ModelConfig
from transformer_cli.config.options import checked_options
from transformer_cli.config.poolings import with_pooling_options
from transformer_cli.models.registry import MODELS, Vocabulary
from transformer_cli.models.transformer import DEFAULT_MODEL_OPTIONS, Model, ModelOptions


def build_model(
    config: ModelConfig,
    *,
    source_vocab_size: int,
    target_vocab_size: int,
    source_pad_id: int,
    target_pad_id: int,
    target_bos_id: int | None = None,
    source_eos_id: int | None = None,
    options: ModelOptions = DEFAULT_MODEL_OPTIONS,
) -> Model:
    """The model called `config.name`, with freshly drawn weights."""
    source = Vocabulary(source_vocab_size, source_pad_id, eos_id=source_eos_id)
    target = Vocabulary(target_vocab_size, target_pad_id, target_bos_id)
    config = with_pooling_options(replace(config, options=checked_options(MODELS, config.name, config.options)))
    model: Model = MODELS[config.name](config, source, target, options)
    return model
