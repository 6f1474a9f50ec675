"""`tfm attention --positions`: position encodings of a config or a trained model, as a page, a picture or JSON."""

from collections.abc import Iterator
from pathlib import Path

import torch

from transformer_cli.addons.attention_maps.keys import AttentionConfig
from transformer_cli.addons.attention_maps.positions.encodings import (
    PositionEncodings,
    compute_encodings,
    modules_of_config,
    modules_of_model,
    to_json,
)
from transformer_cli.config.model import ModelConfig, Positions
from transformer_cli.data.lines import shown
from transformer_cli.errors import ConfigError
from transformer_cli.extras import imported
from transformer_cli.models.file import read_model
from transformer_cli.models.locate import locate_model
from transformer_cli.models.runs import run_of
from transformer_cli.models.transformer import Model
from transformer_cli.text_io import check_output, open_output


def draw_positions(config: AttentionConfig, form: str) -> None:
    """Write the output file, whose ending is `form`, and print its name. Raises TfmError."""
    assert config.positions is not None
    output = Path(config.output_file)
    check_output(output, "--output", {}, overwrite=config.overwrite)
    if form not in (".html", ".json"):
        imported("matplotlib", needs=f"--output {shown(output)}")
    encodings = of_config(config, config.positions)
    with open_output(str(output), replace=config.overwrite) as sink:
        sink.writelines(_render_file(encodings, form))
    print(f"{shown(output)}: {config.positions} positions, {encodings.title}", flush=True)


def of_config(config: AttentionConfig, length: int) -> PositionEncodings:
    """The position encodings of the trained model, if one is named, otherwise of the keys `model`."""
    if config.checkpoint is None:
        model = model_config(config)
        return compute_encodings(modules_of_config(model), model, length, title="")
    if isinstance(config.checkpoint, list):
        raise ConfigError("--checkpoint: names several, and each has its own position encodings. Name one")
    path = locate_model(config.checkpoint, config.runs)
    file = read_model(path)
    modules = modules_of_model(file.build_as(Model, torch.device("cpu"), copies=False))
    run = run_of(path.resolve())
    return compute_encodings(modules, file.config, length, title=shown((run or path).name))


def model_config(config: AttentionConfig) -> ModelConfig:
    """The keys of `model` that are given, in a config that is otherwise that of the paper's base model."""
    given = config.model.given()
    if given.get("positions") is Positions.rotary:
        return ModelConfig(**given)
    for name in ("n_heads", "d_k"):
        if name in given:
            raise ConfigError(f"model.{name}={given[name]}: only rotary positions depend on it. Leave it out")
    return ModelConfig(n_heads=1, **given)  # which divides every width


def _render_file(encodings: PositionEncodings, form: str) -> Iterator[bytes]:
    """The content of the output file, in chunks."""
    if form == ".json":
        yield from (chunk.encode() for chunk in to_json(encodings))
    elif form == ".html":
        from transformer_cli.addons.attention_maps.positions.page import render

        yield render(encodings).encode()
    else:
        from transformer_cli.addons.attention_maps.positions.pictures import render_picture  # needs matplotlib

        yield render_picture(encodings, form[1:])
