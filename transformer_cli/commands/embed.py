"""`tfm embed`: lines in, the vector of each out; or the lines of a file that are nearest to each.

Shapes: N lines, M candidate lines, K nearest of them, D width.
"""

import json
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from transformer_cli.commands.encoder_filter import Encoded, EncoderFilter
from transformer_cli.config.commands import EmbedConfig
from transformer_cli.data.lines import read_lines, shown
from transformer_cli.decoding.plan import named
from transformer_cli.errors import CheckpointError, DataError
from transformer_cli.inference.encode import Reader
from transformer_cli.interop.locate import locate_model
from transformer_cli.logs import LOGGER
from transformer_cli.models.classifier import Classifier, sentence_vectors
from transformer_cli.models.device import choose_device
from transformer_cli.models.file import read_model, require
from transformer_cli.models.transformer import Transformer
from transformer_cli.text_io import (
    STDOUT,
    Line,
    Sink,
    check_files,
    open_input,
    open_output,
    read_terminal,
    write_responses,
)

CHUNK = 4096  # lines of --among encoded together: enough to sort by length


def run(config: EmbedConfig) -> None:
    """Vectors of the lines of `config.input` or stdin, or their nearest lines of `config.among`. Raises TfmError."""
    inputs = {"--input": config.input, "--among": config.among}
    check_files(inputs, {"--output": config.output}, overwrite=config.overwrite)
    reader, width = open_reader(config)
    text_of: Callable[[Encoded], str] = as_json
    if config.nearest is not None:
        text_of = partial(nearest, among=read_among(Path(str(config.among)), reader), k=config.nearest)
    with ExitStack() as files:
        source = files.enter_context(open_input(config.input))
        sink = files.enter_context(open_output(config.output, replace=config.overwrite))
        name, rows = config.output or STDOUT, list[Encoded]()
        as_array = config.nearest is None and name.endswith(".npy")

        def write(encoded: Sequence[Encoded]) -> None:
            write_responses(sink, map(text_of, encoded), name)

        lines = EncoderFilter(reader, rows.extend if as_array else write, config.input, strict=config.strict)
        if config.input is None and source.isatty() and not as_array:
            LOGGER.info("type a line; Ctrl-D leaves")
            read_terminal(lines.process_typed, prompt="> ")
        else:
            lines.process_stream(source, description="embed")
        if as_array:
            write_array(sink, rows, width)


def open_reader(config: EmbedConfig) -> tuple[Reader, int]:
    """The encoder with its pooling, and its width. Raises CheckpointError for a model without an encoder."""
    device = choose_device(config.device)
    path = locate_model(config.checkpoint, config.runs)
    file = read_model(path)
    require(file, path, "transformer", "classifier")
    if file.config.n_segments == 2:
        raise CheckpointError(
            f"{path}: classifies pairs of texts, and has no vector of one. Choose another --checkpoint"
        )
    is_classifier = file.config.name == "classifier"
    model = file.build_as(Classifier, device) if is_classifier else file.build_as(Transformer, device)
    encode = partial(sentence_vectors, model, pooling=config.pooling)
    return Reader(encode, file, device=device, batch_tokens=config.batch_tokens), file.config.d_model


def as_json(encoded: Encoded) -> str:
    vector = None if encoded.output_X is None else [round(x, 6) for x in encoded.output_X.tolist()]
    return json.dumps({"line": encoded.line.number, "vector": vector}) + "\n"


def write_array(sink: Sink, rows: Sequence[Encoded], width: int) -> None:
    """All vectors as one array in NumPy's format, [N, D], float32; that of a blank line is zero. Raises OSError."""
    array_ND = np.zeros((len(rows), width), np.float32)
    for row_D, encoded in zip(array_ND, rows, strict=True):
        if encoded.output_X is not None:
            row_D[:] = encoded.output_X.numpy()
    if n_blank := sum(encoded.output_X is None for encoded in rows):
        LOGGER.warning("%d of %d lines are blank; their rows are zero", n_blank, len(rows))
    np.save(sink, array_ND)


@dataclass(frozen=True)
class Among:
    """The M lines among which the nearest are found, and their vectors, each of length 1."""

    lines: list[Line]
    unit_MD: Tensor


def read_among(path: Path, reader: Reader) -> Among:
    """Raises DataError where every line is blank."""
    texts = read_lines(path).texts
    vectors = [x_D for start in range(0, len(texts), CHUNK) for x_D in reader.read(texts[start : start + CHUNK])]
    if reader.cut:
        LOGGER.warning("%s: %s longer than the model's %d tokens", shown(path), named(reader.cut), reader.max_length)
    reader.unknown.warn(where=f"{shown(path)}: ")
    reader.begin()
    lines = [Line(number, text) for number, (text, x_D) in enumerate(zip(texts, vectors, strict=True), start=1)]
    lines = [line for line, x_D in zip(lines, vectors, strict=True) if x_D is not None]
    if not lines:
        raise DataError(f"{shown(path)}: holds no line with text, so none is nearest. Name another with --among")
    return Among(lines, F.normalize(torch.stack([x_D for x_D in vectors if x_D is not None])))


def nearest(encoded: Encoded, *, among: Among, k: int) -> str:
    """The `k` lines with the largest cosine: number of this line, of that one, cosine, text; none of a blank line."""
    if encoded.output_X is None:
        return ""
    cosine_M = among.unit_MD @ F.normalize(encoded.output_X, dim=0)
    nearest_K = cosine_M.sort(descending=True, stable=True).indices[:k].tolist()
    rows = ((among.lines[i], cosine_M[i].item()) for i in nearest_K)
    return "".join(f"{encoded.line.number}\t{line.number}\t{cosine:.4f}\t{line.text}\n" for line, cosine in rows)
