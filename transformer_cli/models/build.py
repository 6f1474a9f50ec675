"""The model that a config names, with every entry of the registry at hand."""

from transformer_cli.config.model import ModelConfig
from transformer_cli.models import classifier, language_model  # noqa: F401  (they register themselves)
from transformer_cli.models.transformer import MODELS, Model

__all__ = ["MODELS", "Model", "build_model"]


def build_model(
    config: ModelConfig, *, source_vocab_size: int, target_vocab_size: int, source_pad_id: int, target_pad_id: int
) -> Model:
    """The model that `config.name` stands for; vocabulary sizes and padding come from the tokenizers.

    A classifier's target vocabulary are its classes.
    """
    return MODELS[config.name](
        config,
        source_vocab_size=source_vocab_size,
        target_vocab_size=target_vocab_size,
        source_pad_id=source_pad_id,
        target_pad_id=target_pad_id,
    )
