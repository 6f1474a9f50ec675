"""The registry of models, and the model that a config names."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

from transformer_cli.config.model import ModelConfig
from transformer_cli.config.options import checked_options
from transformer_cli.models.classifier import Classifier
from transformer_cli.models.language_model import LanguageModel
from transformer_cli.models.tagger import Tagger
from transformer_cli.models.transformer import DEFAULT_OPTIONS, Model, ModelOptions, Transformer
from transformer_cli.registry import Registry, check_callable, guarded

__all__ = ["MODELS", "Model", "ModelOptions", "Vocabulary", "build_model", "check_model"]


class Vocabulary(NamedTuple):
    """Of one side, as the tokenizer has it; for the target of a classifier or tagger, its labels."""

    size: int
    pad_id: int
    bos_id: int | None = None  # of the target, what the decoder starts with
    eos_id: int | None = None  # of the source, what separates the texts of a pair


Builder: TypeAlias = Callable[[ModelConfig, Vocabulary, Vocabulary, ModelOptions], Model]


def _adopted(name: str, entry: Any) -> Builder:
    check_callable(entry, what="a model", arguments="config, source, target, options")
    return guarded(entry, _fault_of)


def _fault_of(made: object, *_: object) -> str | None:
    if isinstance(made, Model):
        return None if hasattr(made, "kind") else f"a {type(made).__name__} without a `kind`, that of its task's models"
    return f"a {type(made).__name__}, not a Model or a subclass of it, as Transformer is"


MODELS: Registry[Builder] = Registry("model", adopt=_adopted, options_key="model.options")


def check_model(config: ModelConfig) -> None:
    """Raise ConfigError for a name that is not registered, or options that its model does not take."""
    MODELS.check(config.name)
    checked_options(MODELS, config.name, config.options)


def build_model(
    config: ModelConfig,
    *,
    source_vocab_size: int,
    target_vocab_size: int,
    source_pad_id: int,
    target_pad_id: int,
    target_bos_id: int | None = None,
    source_eos_id: int | None = None,
    options: ModelOptions = DEFAULT_OPTIONS,
) -> Model:
    """The model called `config.name`, with freshly drawn weights."""
    source = Vocabulary(source_vocab_size, source_pad_id, eos_id=source_eos_id)
    target = Vocabulary(target_vocab_size, target_pad_id, target_bos_id)
    config = replace(config, options=checked_options(MODELS, config.name, config.options))
    return MODELS[config.name](config, source, target, options)


@MODELS.register("transformer")
def _transformer(config: ModelConfig, source: Vocabulary, target: Vocabulary, options: ModelOptions) -> Transformer:
    return Transformer(
        config,
        source_vocab_size=source.size,
        target_vocab_size=target.size,
        source_pad_id=source.pad_id,
        target_pad_id=target.pad_id,
        target_bos_id=target.bos_id,
        options=options,
    )


@MODELS.register("decoder")
def _language_model(
    config: ModelConfig, source: Vocabulary, target: Vocabulary, options: ModelOptions
) -> LanguageModel:
    return LanguageModel(config, vocab_size=target.size, pad_id=target.pad_id, options=options)


@MODELS.register("classifier")
def _classifier(config: ModelConfig, source: Vocabulary, target: Vocabulary, options: ModelOptions) -> Classifier:
    return Classifier(
        config,
        vocab_size=source.size,
        pad_id=source.pad_id,
        eos_id=source.eos_id,
        n_classes=target.size,
        options=options,
    )


@MODELS.register("tagger")
def _tagger(config: ModelConfig, source: Vocabulary, target: Vocabulary, options: ModelOptions) -> Tagger:
    return Tagger(config, vocab_size=source.size, pad_id=source.pad_id, n_labels=target.size, options=options)
