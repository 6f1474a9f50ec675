"""`tfm translate --explain`: the record of a line, and the references that it is compared with."""

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

from transformer_cli.commands.translate.keys import TranslateConfig
from transformer_cli.config.shared import OutputFormat
from transformer_cli.data.context import Context, without_breaks
from transformer_cli.data.lines import ChunkSource, read_chunks, read_lines, shown, split_lines
from transformer_cli.decoding.explain import Record, check_length, explain_reference, explain_search
from transformer_cli.decoding.opening import Opened
from transformer_cli.decoding.results import Translated
from transformer_cli.decoding.torch_engine import TorchEngine
from transformer_cli.decoding.translator import Translator
from transformer_cli.errors import ConfigError, DataError
from transformer_cli.models.file import ModelFile
from transformer_cli.text_io import STDIN, Line

MOST_TABLES = 20  # lines; the tables of more are not for reading
LINES_AT_ONCE = 64  # whose searches are recorded together: a record is a thousand times as large as its line


class Explainer:
    """Explains the translations of a translator that was asked to record its searches."""

    def __init__(
        self,
        translator: Translator,
        opened: Opened,
        config: TranslateConfig,
        *,
        is_typed: bool = False,
    ) -> None:
        self.references: Sequence[str] | None = None  # of all lines, where there are any
        self.prints_tables = config.output_format is OutputFormat.text and not is_typed
        self.translator, self.n_likeliest = translator, config.likeliest
        found = {model.label_smoothing for model in opened.models if isinstance(model, ModelFile)}
        self.smoothing = found.pop() if len(found) == 1 else None  # of an ensemble, what holds for all

    def refuse_many(self, n_lines: int) -> None:
        """Raise ConfigError for more lines than a person reads tables of."""
        if self.prints_tables and n_lines > MOST_TABLES:
            raise ConfigError(
                f"--explain: prints the tables of {MOST_TABLES} lines at most, and there are more."
                " Give fewer lines, or add --output-format jsonl"
            )

    def explain(self, line: Line, result: Translated, context: Context = ()) -> Record:
        assert result.searched is not None
        record: Record = {
            "segments": [explain_search(searched, self.translator.tokenizers) for searched in result.searched]
        }
        if self.references is not None:
            record["reference"] = self._reference(line, self.references[line.number - 1], context)
        return record

    def _reference(self, line: Line, reference: str, context: Context) -> Record:
        """The whole line, even if it was translated in parts, as `tfm score` reads it."""
        engine, tokenizers = self.translator.engine, self.translator.tokenizers
        assert isinstance(engine, TorchEngine), "another engine records no steps"
        planner = self.translator.planner
        text = line.text if planner.context is None else without_breaks(line.text)
        (source,), (target,) = tokenizers.encode_scored([(text, reference)], self.translator.options.tags)
        if planner.context is not None:
            (source,) = planner.context.put_before([source], [context], planner.max_source_length)
        check_length(engine, source, target, f"line {line.number}")
        return explain_reference(engine, source, target, n_likeliest=self.n_likeliest, smoothing=self.smoothing)


def with_references(source: ChunkSource, config: TranslateConfig) -> tuple[ChunkSource, list[str]]:
    """The whole input, and a reference for each of its lines. Raises DataError with both counts where they differ."""
    name, where = shown(str(config.reference)), config.input or STDIN
    data = b"".join(read_chunks(source, where))
    n_lines, references = len(split_lines(data)), read_lines(Path(str(config.reference))).texts
    if len(references) != n_lines:
        raise DataError(
            f"{name}: has {len(references):,} lines, {where} {n_lines:,}, so nothing is translated."
            " Make line n of one the translation of line n of the other"
        )
    return BytesIO(data), references
