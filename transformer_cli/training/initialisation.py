"""Initialisation of a classifier from the encoder of a trained model: its sizes, its tokenizer and its weights."""

from dataclasses import replace

from torch import Tensor

from transformer_cli.config.train import TrainConfig
from transformer_cli.data.tokenizer import Tokenizers
from transformer_cli.errors import CheckpointError
from transformer_cli.logs import LOGGER
from transformer_cli.models.file import ModelFile, read_model
from transformer_cli.models.locate import locate_model

# The keys of an encoder's shape and function; dropout and pooling are the classifier's own.
SIZES = (
    *("n_encoder_layers", "d_model", "n_heads", "d_k", "d_v", "d_ff", "norm", "norm_kind", "activation"),
    *("positions", "max_positions", "scale_embeddings", "bias"),
)
PREFIXES = ("source_embedding.", "encoder.")


def read_initial_model(config: TrainConfig) -> ModelFile | None:
    """The model that encoder.init_from names, if it names one. Raises CheckpointError for one without an encoder."""
    name = config.encoder.init_from
    if name is None:
        return None
    try:
        path = locate_model(name, config.runs)
        model = read_model(path)
    except CheckpointError as error:
        what, _, _ = str(error).rpartition(". ")  # the rest of the message is about --checkpoint
        raise CheckpointError(f"encoder.init_from: {what}. Choose a model that translates") from error
    if not encoder_of(model):
        raise CheckpointError(f"encoder.init_from: {path}: a model without an encoder. Choose one that translates")
    return model


def with_initial_sizes(config: TrainConfig, start: ModelFile | None) -> TrainConfig:
    """`config` with the encoder's sizes as they are in `start`; those that differ are logged."""
    if start is None:
        return config
    sizes = {key: getattr(start.config, key) for key in SIZES}
    languages = f"{start.source_lang} → {start.target_lang}"
    LOGGER.info(
        "encoder.init_from=%s: %s, step %d, with its tokenizer", config.encoder.init_from, languages, start.step
    )
    if changed := [
        f"model.{key}={_shown(value)} (not {_shown(getattr(config.model, key))})"
        for key, value in sizes.items()
        if value != getattr(config.model, key)
    ]:
        LOGGER.info("as there: %s", ", ".join(changed))
    return replace(config, model=replace(config.model, **sizes))


def initial_weights(config: TrainConfig) -> dict[str, Tensor]:
    """Weights of a new run of `config` in place of drawn ones; empty without encoder.init_from."""
    start = read_initial_model(config)
    return {} if start is None else encoder_of(start)


def tokenizers_of(start: ModelFile | None) -> Tokenizers | None:
    """Those that the text is encoded with, in place of new ones."""
    return None if start is None else Tokenizers(start.tokenizers.source, start.tokenizers.source)


def encoder_of(model: ModelFile) -> dict[str, Tensor]:
    return {name: weight for name, weight in model.weights.items() if name.startswith(PREFIXES)}


def _shown(value: object) -> object:
    return getattr(value, "name", value)
