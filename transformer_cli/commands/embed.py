"""`tfm embed`: lines in, the vector of each out; or the lines of a file that are nearest to each.

Shapes: N lines, M lines that are looked through, K of them that are nearest, D width.
"""

import json
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from transformer_cli.commands.line_by_line import Answer, Asking, check_paths, write_lines
from transformer_cli.commands.translate import open_input, open_output
from transformer_cli.config.commands import EmbedConfig
from transformer_cli.data.lines import read_lines, shown
from transformer_cli.decoding.translator import named
from transformer_cli.errors import DataError
from transformer_cli.files import Output
from transformer_cli.inference.encode import Reader
from transformer_cli.logs import LOGGER
from transformer_cli.models.classifier import Classifier, sentence_vectors
from transformer_cli.models.device import choose_device
from transformer_cli.models.file import locate_model, read_model, require
from transformer_cli.models.transformer import Transformer

CHUNK = 4096  # lines of --among read together: enough to sort by length


def run(config: EmbedConfig) -> None:
    """Vectors of the lines of `config.input` or stdin, or their nearest lines of `config.among`. Raises TfmError."""
    check_paths(config, also={"--among": config.among})
    reader, width = open_reader(config)
    say: Callable[[Answer], str] = as_json
    if config.nearest is not None:
        say = partial(nearest, among=read_among(Path(str(config.among)), reader), k=config.nearest)
    asking = Asking(reader, config)
    with ExitStack() as files:
        source = files.enter_context(open_input(config.input))
        sink = files.enter_context(open_output(config.output, replace=config.overwrite))
        name = config.output or "standard output"

        def write(answers: list[Answer]) -> None:
            write_lines(sink, [say(answer) for answer in answers], name)

        if config.nearest is None and name.endswith(".npy"):
            write_array(sink, [answer for chunk in asking.chunks(source, doing="embed") for answer in chunk], width)
        elif config.input is None and source.isatty():
            LOGGER.info("type a line; Ctrl-D leaves")
            asking.converse(write, prompt="> ")
        else:
            for chunk in asking.chunks(source, doing="embed"):
                write(chunk)


def open_reader(config: EmbedConfig) -> tuple[Reader, int]:
    """What makes vectors, and their width. Raises CheckpointError for a model that has no encoder."""
    device = choose_device(config.device)
    path = locate_model(config.checkpoint, config.runs)
    file = read_model(path)
    require(file, path, "transformer", "classifier")
    is_classifier = file.config.name == "classifier"
    model = file.build_as(Classifier, device) if is_classifier else file.build_as(Transformer, device)
    ask = partial(sentence_vectors, model, pooling=config.pooling)
    return Reader(ask, file, device=device, batch_tokens=config.batch_tokens), file.config.d_model


def as_json(answer: Answer) -> str:
    vector = None if answer.said_X is None else [round(x, 6) for x in answer.said_X.tolist()]
    return json.dumps({"line": answer.line, "vector": vector}) + "\n"


def write_array(sink: BinaryIO | Output, answers: Sequence[Answer], width: int) -> None:
    """All vectors as one array in NumPy's format, [N, D], float32; that of a blank line is zero. Raises OSError."""
    array_ND = np.zeros((len(answers), width), np.float32)
    for row_D, answer in zip(array_ND, answers, strict=True):
        if answer.said_X is not None:
            row_D[:] = answer.said_X.numpy()
    if n_blank := sum(answer.said_X is None for answer in answers):
        LOGGER.warning("%d of %d lines are blank; their rows are zero", n_blank, len(answers))
    np.save(sink, array_ND)


@dataclass(frozen=True)
class Among:
    """The lines that are looked through, M of them, and their vectors, each of length 1."""

    lines: list[Answer]
    unit_MD: Tensor


def read_among(path: Path, reader: Reader) -> Among:
    """Raises DataError where every line is blank."""
    texts = read_lines(path).texts
    said = [said_X for start in range(0, len(texts), CHUNK) for said_X in reader.read(texts[start : start + CHUNK])]
    each = [Answer(line, text, x) for line, (text, x) in enumerate(zip(texts, said, strict=True), start=1)]
    if reader.cut:
        LOGGER.warning("%s: %s longer than the model's %d tokens", shown(path), named(reader.cut), reader.max_length)
    reader.unknown.warn(where=f"{shown(path)}: ")
    reader.begin()
    lines = [line for line in each if line.said_X is not None]
    if not lines:
        raise DataError(f"{shown(path)}: holds no line with text, so none is nearest. Name another with --among")
    return Among(lines, F.normalize(torch.stack([line.said_X for line in lines if line.said_X is not None])))


def nearest(answer: Answer, *, among: Among, k: int) -> str:
    """The `k` lines with the largest cosine: number of this line, of that one, cosine, text; none of a blank line."""
    if answer.said_X is None:
        return ""
    cosine_M = among.unit_MD @ F.normalize(answer.said_X, dim=0)
    found_K = cosine_M.sort(descending=True, stable=True).indices[:k].tolist()
    rows = ((among.lines[i], cosine_M[i].item()) for i in found_K)
    return "".join(f"{answer.line}\t{line.line}\t{cosine:.4f}\t{line.text}\n" for line, cosine in rows)
