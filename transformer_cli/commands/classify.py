"""`tfm classify`: lines in, the class of each out, in order, whatever the bytes.

Shapes: C classes.
"""

import json
from contextlib import ExitStack
from functools import partial

from torch import Tensor

from transformer_cli.commands.line_by_line import Answer, Asking, check_paths, write_lines
from transformer_cli.commands.translate import open_input, open_output
from transformer_cli.config.commands import ClassifyConfig, OutputFormat
from transformer_cli.data.lines import shown
from transformer_cli.inference.encode import Reader
from transformer_cli.logs import LOGGER
from transformer_cli.models.classifier import Classifier
from transformer_cli.models.device import choose_device
from transformer_cli.models.file import locate_model, read_model, require


def run(config: ClassifyConfig) -> None:
    """Classify `config.input` or stdin to `config.output` or stdout. Raises TfmError."""
    check_paths(config)
    device = choose_device(config.device)
    path = locate_model(config.checkpoint, config.runs)
    model = read_model(path)
    require(model, path, "classifier")
    labels = model.tokenizers.labels
    classifier = model.build_as(Classifier, device)
    asking = Asking(Reader(classifier, model, device=device, batch_tokens=config.batch_tokens), config)
    say = partial(text_of, labels=labels, config=config)
    with ExitStack() as files:
        source = files.enter_context(open_input(config.input))
        sink = files.enter_context(open_output(config.output, replace=config.overwrite))

        def write(answers: list[Answer]) -> None:
            write_lines(sink, [say(answer) for answer in answers], config.output or "standard output")

        if config.probabilities and config.output_format is OutputFormat.text:
            LOGGER.info("probabilities in the order %s", ", ".join(labels))
        if config.input is None and source.isatty():
            LOGGER.info("%s: %s. Type a line to see its class; Ctrl-D leaves", shown(path), ", ".join(labels))
            asking.converse(write, prompt="> ")
        else:
            for answers in asking.chunks(source, doing="classify"):
                write(answers)


def text_of(answer: Answer, *, labels: tuple[str, ...], config: ClassifyConfig) -> str:
    """The line that answers a line; a blank one's is blank, too."""
    label, p_C = (None, []) if answer.said_X is None else decide(answer.said_X, labels)
    if config.output_format is OutputFormat.jsonl:
        probabilities = None if label is None else dict(zip(labels, p_C, strict=True))
        return (
            json.dumps({"line": answer.line, "label": label, "probabilities": probabilities}, ensure_ascii=False) + "\n"
        )
    shares = "".join(f"\t{p:.6f}" for p in p_C) if config.probabilities else ""
    return f"{label or ''}{shares}\n"


def decide(logits_C: Tensor, labels: tuple[str, ...]) -> tuple[str, list[float]]:
    """The likeliest class, and the probability of each, in six digits."""
    probabilities = [round(p, 6) for p in logits_C.double().softmax(dim=0).tolist()]
    return labels[int(logits_C.argmax())], probabilities
