"""A classifier that begins with the encoder of a trained model: its sizes, its tokenizer and its weights."""

from dataclasses import replace

from torch import Tensor

from transformer_cli.config.train import TrainConfig
from transformer_cli.errors import CheckpointError
from transformer_cli.logs import LOGGER
from transformer_cli.models.file import ModelFile, locate_model, read_model

# What makes the shape and the sense of an encoder's weights; dropout and pooling are the classifier's own.
SIZES = (
    *("n_encoder_layers", "d_model", "n_heads", "d_k", "d_v", "d_ff", "norm", "norm_kind", "activation"),
    *("positions", "max_positions", "scale_embeddings", "bias"),
)
TAKEN = ("source_embedding.", "encoder.")


def read_start(config: TrainConfig) -> ModelFile | None:
    """The model whose encoder is to be taken over, if one is. Raises CheckpointError for one without an encoder."""
    name = config.encoder.init_from
    if name is None:
        return None
    try:
        path = locate_model(name, config.runs)
        model = read_model(path)
    except CheckpointError as error:
        what, _, _ = str(error).rpartition(". ")  # what it advises is for --checkpoint
        raise CheckpointError(f"encoder.init_from: {what}. Choose a model that translates") from error
    if not encoder_of(model):
        raise CheckpointError(f"encoder.init_from: {path}: a model without an encoder. Choose one that translates")
    return model


def fitted(config: TrainConfig, start: ModelFile | None) -> TrainConfig:
    """`config` with the encoder's sizes as they are in `start`, which the log tells where they differ."""
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


def encoder_weights(config: TrainConfig) -> dict[str, Tensor]:
    """What a new run of `config` begins with in place of drawn weights."""
    start = read_start(config)
    return {} if start is None else encoder_of(start)


def encoder_of(model: ModelFile) -> dict[str, Tensor]:
    return {name: weight for name, weight in model.weights.items() if name.startswith(TAKEN)}


def _shown(value: object) -> object:
    return getattr(value, "name", value)
