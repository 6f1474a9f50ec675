"""`tfm classify`: lines in, the class of each out, in order, whatever the bytes.

Shapes: C classes.
"""

import json
from collections.abc import Sequence

from torch import Tensor

from transformer_cli.addons.classification.classifier import Classifier
from transformer_cli.addons.classification.hops.record import HopRecord
from transformer_cli.addons.classification.keys import ClassifyConfig
from transformer_cli.addons.embedding.encode import LineEncoder
from transformer_cli.addons.embedding.encoder_filter import EncodedLine, EncoderFilter
from transformer_cli.config.filter import ResponseFormat
from transformer_cli.data.lines import shown
from transformer_cli.errors import ConfigError, DataError
from transformer_cli.logs import LOGGER
from transformer_cli.models.file import open_one_model
from transformer_cli.text_io import STDIN, STDOUT, Line, Sink, check_files, run_filter, same_file, write_responses


def run(config: ClassifyConfig) -> None:
    """Classify `config.input` or stdin to `config.output` or stdout. Raises TfmError."""
    outputs = {"--output": config.output, "--html": config.html}
    check_files({"--input": config.input}, outputs, overwrite=config.overwrite)
    if config.html is not None and config.output is not None and same_file(config.html, config.output):
        raise ConfigError(f"--html {shown(config.html)}: is --output, too. Name another file")
    device, path, model = open_one_model(config, "classifier")
    labels = model.tokenizers.labels
    classifier = model.build_as(Classifier, device)
    reader = LineEncoder(classifier, model, device=device, batch_tokens=config.batch_tokens)
    hops = HopRecord(classifier, model, reader, path) if config.html is not None else None

    def open_filter(sink: Sink, is_typed: bool) -> EncoderFilter:
        def write(encoded: Sequence[EncodedLine]) -> None:
            texts = (response_text(one, labels=labels, config=config) for one in encoded)
            write_responses(sink, texts, config.output or STDOUT)

        kind = PairFilter if reader.n_texts == 2 else ClassFilter
        lines = kind(reader, write, config.input, strict=config.strict)
        lines.hops = hops
        lines.greeting = f"{shown(path)}: {', '.join(labels)}. Type {lines.described} to see its class; Ctrl-D leaves"
        if config.probabilities and config.output_format is ResponseFormat.text:
            LOGGER.info("probabilities in the order %s", ", ".join(labels))
        return lines

    run_filter(open_filter, input=config.input, output=config.output, overwrite=config.overwrite)
    if hops is not None:
        assert config.html is not None
        hops.write(config.html, replace=config.overwrite)


class ClassFilter(EncoderFilter):
    """Classifies lines."""

    progress = "classify"
    described = "a line"  # what is typed at a terminal
    hops: HopRecord | None = None  # that gets the lines, for a page

    def encoded(self, lines: Sequence[Line]) -> list[EncodedLine]:
        if self.hops is None:
            return super().encoded(lines)
        ids = self.reader.encode([line.text for line in lines])
        real = [i for i, its_ids in enumerate(ids) if its_ids]
        logits = self.reader.answers([ids[i] for i in real])
        self.hops.add([lines[i].number for i in real], [ids[i] for i in real], logits)
        found = dict(zip(real, logits, strict=True))
        return [EncodedLine(line, found.get(i)) for i, line in enumerate(lines)]


class PairFilter(ClassFilter):
    """The lines are first<TAB>second, or blank. Raises DataError for any other."""

    described = "two texts with a tab between them"

    def process_typed(self, line: bytes) -> None:
        """A line that is no pair is refused, and the next can be typed."""
        try:
            super().process_typed(line)
        except DataError as error:
            LOGGER.warning("%s", error)

    def respond(self, lines: Sequence[Line]) -> None:
        for n, line in enumerate(lines):
            fault = pair_fault(line.text)
            if fault is not None:
                super().respond(lines[:n])
                raise DataError(f"{self.path or STDIN}:{line.number}: {fault}. Write first<TAB>second")
        super().respond(lines)


def pair_fault(line: str) -> str | None:
    """Why a line that is not blank is no pair of texts; None where it is."""
    texts = line.split("\t")
    if not line.strip() or (len(texts) == 2 and all(text.strip() for text in texts)):
        return None
    if len(texts) != 2:
        return f"has {len(texts) - 1} tabs, not one, and this model classifies pairs of texts"
    return f"nothing {'before' if texts[1].strip() else 'after'} the tab, and this model classifies pairs of texts"


def response_text(encoded: EncodedLine, *, labels: tuple[str, ...], config: ClassifyConfig) -> str:
    """The response to a line; blank for a blank line."""
    label, p_C = (None, []) if encoded.output_X is None else decide(encoded.output_X, labels)
    if config.output_format is ResponseFormat.jsonl:
        probabilities = None if label is None else dict(zip(labels, p_C, strict=True))
        record = {"line": encoded.line.number, "label": label, "probabilities": probabilities}
        return json.dumps(record, ensure_ascii=False) + "\n"
    shares = "".join(f"\t{p:.6f}" for p in p_C) if config.probabilities else ""
    return f"{label or ''}{shares}\n"


def decide(logits_C: Tensor, labels: tuple[str, ...]) -> tuple[str, list[float]]:
    """The most probable class, and the probability of each, rounded to six digits."""
    probabilities = [round(p, 6) for p in logits_C.double().softmax(dim=0).tolist()]
    return labels[int(logits_C.argmax())], probabilities
