"""What this add-on brings."""

from functools import partial
from typing import Any

from transformer_cli.addons.embedding.keys import EmbedConfig
from transformer_cli.command import Command, register
from transformer_cli.config.model import ModelConfig
from transformer_cli.config.poolings import POOLINGS, PoolingKind


def _run(config: EmbedConfig) -> None:
    from transformer_cli.addons.embedding.run_embed import run

    run(config)


register(
    Command(
        "embed",
        help="compute a vector for each line, or token, with a model's encoder, or find the nearest lines of a file",
        example="tfm embed --input lines.txt --output lines.npy",
        schema=EmbedConfig,
        run=_run,
        input_hint="Give the text on standard input, or a file with --input",
    )
)


def _fixed(config: ModelConfig, *, kind: str) -> Any:
    from transformer_cli.addons.embedding.pooling import FixedPooling

    return FixedPooling(kind, config.d_model)


POOLINGS.register("first")(PoolingKind(partial(_fixed, kind="first"), of_words=True, is_fixed=True))
POOLINGS.register("mean")(PoolingKind(partial(_fixed, kind="mean"), of_words=True, is_fixed=True))
POOLINGS.register("max")(PoolingKind(partial(_fixed, kind="max"), is_fixed=True))
