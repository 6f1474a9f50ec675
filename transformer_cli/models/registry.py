"""The registry of models. No torch is needed to register one."""

from collections.abc import Callable
from typing import Any, TypeAlias

from transformer_cli.config.model import ModelConfig, Vocabulary
from transformer_cli.config.options import checked_options
from transformer_cli.config.poolings import with_pooling_options
from transformer_cli.models.norms import NORMS
from transformer_cli.registry import Registry, check_callable, guarded

# From config, source, target and `ModelOptions` to a `Model`, whose classes import torch.
Builder: TypeAlias = Callable[[ModelConfig, Vocabulary, Vocabulary, Any], Any]


def _adopted(name: str, entry: Any) -> Builder:
    check_callable(entry, what="a model", arguments="config, source, target, options")
    return guarded(entry, _fault_of)


def _fault_of(made: object, *_: object) -> str | None:
    from transformer_cli.models.transformer import Model

    if isinstance(made, Model):
        return None if hasattr(made, "kind") else f"a {type(made).__name__} without a `kind`, that of its task's models"
    return f"a {type(made).__name__}, not a Model or a subclass of it, as Transformer is"


__all__ = ["MODELS", "Builder", "Vocabulary", "check_model"]
MODELS: Registry[Builder] = Registry("model", adopt=_adopted, options_key="model.options")


def check_model(config: ModelConfig) -> None:
    """Raise ConfigError for names that are not registered, or options that the model or its pooling does not take."""
    MODELS.check(config.name)
    NORMS.check(config.norm_kind)
    checked_options(MODELS, config.name, config.options)
    with_pooling_options(config)
