"""`tfm fill`: the likeliest words for the masks of each line."""

import json
from collections.abc import Sequence

from transformer_cli.addons.embedding.encode import longest_of
from transformer_cli.addons.masked_language_models.filling import MASK, Filler, Filling
from transformer_cli.addons.masked_language_models.keys import FillConfig
from transformer_cli.addons.masked_language_models.masked_language_model import MaskedLanguageModel
from transformer_cli.addons.masked_language_models.page import render
from transformer_cli.addons.masked_language_models.predictor import MaskPredictor
from transformer_cli.addons.masked_language_models.task import MaskedLanguageModelling
from transformer_cli.config.filter import ResponseFormat
from transformer_cli.config.tasks import all_tasks
from transformer_cli.data.lines import shown
from transformer_cli.data.unknown import UnknownCounter, unknown_characters
from transformer_cli.errors import ConfigError, DataError
from transformer_cli.logs import LOGGER
from transformer_cli.models.file import open_one_model
from transformer_cli.text_io import (
    STDIN,
    STDOUT,
    Line,
    LineFilter,
    Sink,
    check_files,
    open_output,
    run_filter,
    same_file,
    write_responses,
)


def run(config: FillConfig) -> None:
    """Fill `config.text`, or each line of `config.input` or stdin. Raises TfmError."""
    outputs = {"--output": config.output, "--html": config.html}
    check_files({"--input": config.input}, outputs, overwrite=config.overwrite)
    if config.output is not None and config.html is not None and same_file(config.output, config.html):
        raise ConfigError(f"{config.html}: both --output and --html. Choose another --html")
    device, path, model = open_one_model(
        config, *(task.model for task in all_tasks() if isinstance(task, MaskedLanguageModelling))
    )
    network = model.build_as(MaskedLanguageModel, device)
    predictor = MaskPredictor(network, model.tokenizers.source, device=device, batch_tokens=config.batch_tokens)
    filler = Filler(predictor, longest=longest_of(model), top=config.top, most_pieces=config.pieces)
    filled: list[tuple[str, list[Filling]]] = []

    def open_filter(sink: Sink, is_typed: bool) -> FillFilter:
        lines = FillFilter(filler, config, sink, filled)
        lines.greeting = f"{shown(path)}: type a text with a [mask]; Ctrl-D leaves"
        return lines

    text = None if config.text is None else config.text.replace("\n", " ")
    run_filter(open_filter, input=config.input, output=config.output, overwrite=config.overwrite, text=text)
    if config.html is not None:
        with open_output(config.html, replace=config.overwrite) as sink:
            write_responses(sink, [render(shown(path), filled)], config.html)
        LOGGER.info("%s: written", config.html)


class FillFilter(LineFilter):
    """Writes the likeliest fillings of each line, and keeps them for a page."""

    progress = "fill"

    def __init__(self, filler: Filler, config: FillConfig, sink: Sink, filled: list[tuple[str, list[Filling]]]) -> None:
        super().__init__(config.input, strict=config.strict)
        self.filler, self.config, self.sink, self.filled = filler, config, sink, filled
        self.unknown = UnknownCounter()

    def process_typed(self, line: bytes) -> None:
        """A line without a mask is refused, and the next can be typed."""
        try:
            super().process_typed(line)
        except DataError as error:
            LOGGER.warning("%s", error)

    def respond(self, lines: Sequence[Line]) -> None:
        tokenizer = self.filler.tokenizer
        for line in lines:
            masked = self.filler.read(line.text, self._place_of(line))
            for part, ids in zip(masked.parts, masked.ids, strict=True):
                self.unknown.add(line.number, unknown_characters(part, ids, tokenizer))
            found = self.filler.fill(masked)
            if self.config.html is not None:
                self.filled.append((line.text, found))
            write_responses(self.sink, [self._response(line, found)], self.config.output or STDOUT)

    def _place_of(self, line: Line) -> str:
        return "the text" if self.config.text is not None else f"{self.path or STDIN}:{line.number}"

    def _response(self, line: Line, found: Sequence[Filling]) -> str:
        """A line for each filling, behind a blank one after the lines of an earlier text; or one JSON object."""
        if self.config.output_format is ResponseFormat.jsonl:
            fillings = [
                {"probability": round(one.probability, 6), "words": list(one.words), "text": one.text} for one in found
            ]
            record = {"line": line.number, "text": MASK.sub("[mask]", line.text), "fillings": fillings}
            return json.dumps(record, ensure_ascii=False) + "\n"
        lines = [f"{one.probability:.6f}\t{one.text}\n" for one in found]
        return "".join(["\n"] * (line.number > 1) + lines)

    def report(self) -> None:
        self.unknown.warn()
        super().report()
