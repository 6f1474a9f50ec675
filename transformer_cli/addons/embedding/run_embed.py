"""`tfm embed`: lines in, vectors of them or of their tokens out; or the lines of a file that are nearest to each.

Shapes: M candidate lines, K nearest of them, D width.
"""

import json
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor

from transformer_cli.addons.embedding.encode import LineEncoder
from transformer_cli.addons.embedding.encoder_filter import EncodedLine, EncoderFilter, TokenFilter, WordFilter
from transformer_cli.addons.embedding.hidden_states import LayerChoice, WithEncoder, sentence_vectors, token_vectors
from transformer_cli.addons.embedding.keys import EmbedConfig, TokenUnit
from transformer_cli.addons.embedding.vector_files import ArrayFile, TokenArchive
from transformer_cli.data.lines import read_lines, shown
from transformer_cli.decoding.plan import named
from transformer_cli.errors import CheckpointError, ConfigError, DataError
from transformer_cli.files import Output, resolve_link
from transformer_cli.logs import LOGGER
from transformer_cli.models.file import open_one_model
from transformer_cli.models.transformer import Model
from transformer_cli.text_io import STDOUT, Line, Sink, check_files, run_filter, write_responses

_CHUNK = 4096  # lines of --among encoded together: enough to sort by length

_FILTERS = {None: EncoderFilter, TokenUnit.pieces: TokenFilter, TokenUnit.words: WordFilter}


def run(config: EmbedConfig) -> None:
    """Vectors of `config.input` or stdin, or the nearest lines of `config.among` to its lines. Raises TfmError."""
    inputs = {"--input": config.input, "--among": config.among}
    check_files(inputs, {"--output": config.output}, overwrite=config.overwrite)
    reader, shape_X = open_reader(config)
    text_of: Callable[[EncodedLine], str] = _as_json
    if config.nearest is not None:
        text_of = partial(nearest, among=read_among(Path(str(config.among)), reader), k=config.nearest)
    with ExitStack() as files:

        def open_filter(sink: Sink, is_typed: bool) -> EncoderFilter:
            name = config.output or STDOUT
            if config.nearest is not None or not isinstance(sink, Output) or name.endswith(".jsonl"):
                lines = open_lines(lambda encoded: write_responses(sink, map(text_of, encoded), name))
                lines.greeting = "type a line; Ctrl-D leaves"
                return lines
            arrays: ArrayFile | TokenArchive
            if config.tokens is None:
                arrays = ArrayFile(sink, shape_X)
            else:
                spool = files.enter_context(TemporaryFile(dir=resolve_link(Path(name)).parent))
                arrays = TokenArchive(sink, Path(name), shape_X, spool)

            def write(encoded: Sequence[EncodedLine]) -> None:
                for one in encoded:
                    arrays.append(one)

            return open_lines(write, arrays.finish)

        def open_lines(
            write: Callable[[Sequence[EncodedLine]], None], finish: Callable[[], None] = lambda: None
        ) -> EncoderFilter:
            kind = _FILTERS[config.tokens]
            return kind(reader, write, config.input, strict=config.strict, finish=finish)

        run_filter(open_filter, input=config.input, output=config.output, overwrite=config.overwrite)


def open_reader(config: EmbedConfig) -> tuple[LineEncoder, tuple[int, ...]]:
    """The encoder with its layer and pooling, and the shape of a vector: [D], or [Y, D] of one for each of Y layers.

    Raises CheckpointError for a model without an encoder, ConfigError for a layer that it does not have.
    """
    device, path, file = open_one_model(config, "transformer", "classifier", "tagger", "encoder")
    if file.config.n_segments == 2:
        raise CheckpointError(
            f"{path}: classifies pairs of texts, and has no vector of one. Choose another --checkpoint"
        )
    n_layers, width = file.config.n_encoder_layers, file.config.d_model
    layer = chosen_layer(config.layer, n_layers)
    # Checked by its kind: from Python 3.12 on isinstance() does not see the modules of a model.
    model = cast(WithEncoder, file.build_as(Model, device))
    encode = partial(token_vectors, model, layer=layer)
    if config.tokens is None:
        encode = partial(sentence_vectors, model, layer=layer, pooling=config.pooling)
    shape_X = (n_layers + 1, width) if layer == "all" else (width,)
    return LineEncoder(encode, file, device=device, batch_tokens=config.batch_tokens), shape_X


def chosen_layer(layer: str | None, n_layers: int) -> LayerChoice:
    """Unset, the last. Raises ConfigError."""
    if layer in ("all", "mean"):
        return layer
    number = n_layers if layer is None else int(layer)
    if not -n_layers - 1 <= number <= n_layers:
        raise ConfigError(f"--layer {layer}: the encoder has {n_layers}. Choose 0 to {n_layers}, -1, all or mean")
    return number


def _as_json(encoded: EncodedLine) -> str:
    """The vector of a line, or with TokenFilter those of its tokens."""
    x_X = encoded.output_X
    numbers = None if x_X is None else x_X.double().round(decimals=6).tolist()
    values = {"tokens": encoded.tokens, "vectors": numbers or []} if encoded.tokens is not None else {"vector": numbers}
    return json.dumps({"line": encoded.line.number, **values}, ensure_ascii=False) + "\n"


@dataclass(frozen=True)
class Among:
    """The M lines among which the nearest are found, and their vectors, each of length 1."""

    lines: list[Line]
    unit_MD: Tensor


def read_among(path: Path, reader: LineEncoder) -> Among:
    """Raises DataError where every line is blank."""
    texts = read_lines(path).texts
    vectors = [x_D for start in range(0, len(texts), _CHUNK) for x_D in reader.read(texts[start : start + _CHUNK])]
    if reader.cut:
        LOGGER.warning("%s: %s longer than the model's %d tokens", shown(path), named(reader.cut), reader.max_length)
    reader.unknown.warn(where=f"{shown(path)}: ")
    reader.begin()
    lines = [Line(number, text) for number, (text, x_D) in enumerate(zip(texts, vectors, strict=True), start=1)]
    lines = [line for line, x_D in zip(lines, vectors, strict=True) if x_D is not None]
    if not lines:
        raise DataError(f"{shown(path)}: holds no line with text, so none is nearest. Name another with --among")
    return Among(lines, F.normalize(torch.stack([x_D for x_D in vectors if x_D is not None])))


def nearest(encoded: EncodedLine, *, among: Among, k: int) -> str:
    """The `k` lines with the largest cosine: number of this line, of that one, cosine, text; none of a blank line."""
    if encoded.output_X is None:
        return ""
    cosine_M = among.unit_MD @ F.normalize(encoded.output_X, dim=0)
    nearest_K = cosine_M.sort(descending=True, stable=True).indices[:k].tolist()
    rows = ((among.lines[i], cosine_M[i].item()) for i in nearest_K)
    return "".join(f"{encoded.line.number}\t{line.number}\t{cosine:.4f}\t{line.text}\n" for line, cosine in rows)
