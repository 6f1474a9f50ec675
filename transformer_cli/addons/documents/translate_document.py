"""`tfm translate --format`: a document in, the same document in another language out."""

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from io import BytesIO
from itertools import count

from transformer_cli.addons.documents.bilingual import bilingual_of_name, refuse_bilingual
from transformer_cli.addons.documents.document import (
    BY_POSITION,
    REPAIRED,
    TranslatedDocument,
    TranslatedUnit,
    translate_parsed,
)
from transformer_cli.addons.documents.formats import Format, OpenFile, PackageFormat, TextFormat
from transformer_cli.addons.documents.reading import is_utf_16, read_file
from transformer_cli.addons.documents.symbols import placeholder_symbols
from transformer_cli.commands.translate.keys import TranslateConfig
from transformer_cli.commands.translate.open_translator import flags_set, open_translator
from transformer_cli.data.lines import READ_BYTES, read_chunks, shown
from transformer_cli.data.unknown import UnknownCounter
from transformer_cli.decoding.directions import known_languages
from transformer_cli.decoding.results import Translated
from transformer_cli.decoding.translator import Translator
from transformer_cli.errors import ConfigError, FlaggedError, quoted
from transformer_cli.logs import LOGGER
from transformer_cli.models.device import choose_device
from transformer_cli.text_io import BOM, STDIN, STDOUT, open_input, open_output, write_bytes

_REPORT_HEAD = ("place", "flags", "source", "translation")
_N_SHOWN = 5  # texts that a warning shows
_HARMLESS = (REPAIRED, BY_POSITION)  # flags that are counted, and whose texts are not shown


def translate_file(form: Format, config: TranslateConfig) -> None:
    """Translate the document in `config.input` or stdin to `config.output` or stdout. Raises TfmError."""
    device = choose_device(config.device)
    with ExitStack() as files:
        source = files.enter_context(open_input(config.input, config.text))
        if config.input is None and source.isatty():
            LOGGER.info("Type a document; Ctrl-D ends it")
        if isinstance(form, PackageFormat) and config.output is None and sys.stdout is not None and sys.stdout.isatty():
            raise ConfigError(
                f"format={form.name}: a file that is no text. Name it with --output, or redirect the output"
            )
        data = b"".join(iter(partial(source.read1, READ_BYTES), b""))
        if isinstance(form, TextFormat) and not is_utf_16(data):
            for _ in read_chunks(BytesIO(data), config.input or STDIN):  # which refuses what is no text
                pass
        if isinstance(form, TextFormat) and not form.is_bilingual:
            refuse_bilingual(bilingual_of_name(config.input or ""), config.input or STDIN)
        # Texts beside their translations are found by their languages, which are those of the model.
        name, is_late = config.input or STDIN, isinstance(form, TextFormat) and form.is_bilingual
        opened = None if is_late else read_file(form, data, name)
        found, translator = open_translator(config, device)
        if opened is None:
            languages = known_languages(found.models[0], config.source_lang, config.target_lang)
            opened = read_file(form, data, name, languages)
        sink = files.enter_context(open_output(config.output, replace=config.overwrite))
        report = None
        if config.report is not None:
            report = files.enter_context(open_output(config.report, replace=config.overwrite))
        symbols = placeholder_symbols(translator.tokenizers)
        documents = translate_parsed(opened.documents, _in_order(translator), symbols=symbols)
        write_bytes(sink, opened.write([one.text for one in documents]), config.output or STDOUT)
        rows = list(_report_rows(opened, documents))
        if report is not None:
            write_bytes(report, "".join(map(_tsv, [_REPORT_HEAD, *rows])).encode(), config.report or "")
    units = [unit for one in documents for unit in one.units]
    if (n_lines := lines_of_one_text(data, units)) > 1:
        LOGGER.warning(
            "%s: its %d lines were one text, as format=%s has it. Leave --format out to translate each line by itself",
            config.input or STDIN,
            n_lines,
            config.format,
        )
    _log(units, config)
    if config.fail_on_flags and rows:
        where = f"see {shown(config.report)}" if config.report else "add --report FILE to see which"
        raise FlaggedError(
            f"{config.output or STDOUT}: {len(rows):,} of {len(units):,} texts have flags. Check them: {where}"
        )


def lines_of_one_text(data: bytes, units: Sequence[TranslatedUnit]) -> int:
    """How many lines with text a document has that is nothing but one text, as plain text read as HTML is; else 0."""
    if len(units) != 1:
        return 0
    lines = [line for line in data.split(b"\n") if line.strip()]
    return len(lines) if b" ".join(data.removeprefix(BOM).split()) == " ".join(units[0].source.split()).encode() else 0


def _report_rows(opened: OpenFile, documents: Sequence[TranslatedDocument]) -> Iterator[tuple[str, ...]]:
    """Returns place, flags, source and translation of each text that has flags."""
    for n, (document, translated) in enumerate(zip(opened.documents, documents, strict=True)):
        for number, unit in enumerate(translated.units, 1):
            if flags := [*unit.flags, *flags_set(unit.result)]:
                place = f"text {number}"
                if opened.names:
                    place = f"{opened.names[n]}, {place}"
                elif document.lines:
                    place = f"line {document.lines[number - 1]}"
                yield place, " ".join(flags), unit.source, unit.text


def _tsv(row: Sequence[str]) -> str:
    return "\t".join(" ".join(cell.split()) for cell in row) + "\n"


def _in_order(translator: Translator) -> Callable[[Sequence[str]], list[Translated]]:
    """Translates the texts of a document in its first call, and single texts of it, to repair them, in others."""
    n_calls = count()

    def translate(texts: Sequence[str]) -> list[Translated]:
        return translator.translate(texts, contexts=[()] * len(texts) if next(n_calls) else None)

    return translate


def _log(units: Sequence[TranslatedUnit], config: TranslateConfig) -> None:
    """Log what the document does not show."""
    n_units = len(units)
    if not n_units:
        LOGGER.warning("%s: has no text to translate as format=%s", config.input or STDIN, config.format)
    counts = Counter(flag for unit in units for flag in unit.flags)
    unknown = UnknownCounter()
    for number, unit in enumerate(units, 1):
        counts.update(flags_set(unit.result))
        unknown.add(number, unit.result.unknown)
    if counts:
        LOGGER.warning(
            "of %s texts: %s", f"{n_units:,}", ", ".join(f"{n:,} {flag}" for flag, n in counts.most_common())
        )
    shown = [(flag, unit) for unit in units for flag in unit.flags if flag not in _HARMLESS]
    for flag, unit in shown[:_N_SHOWN]:
        LOGGER.warning("%s: %s", flag, quoted(unit.source))
    if len(shown) > _N_SHOWN:
        LOGGER.warning("%d more texts to check", len(shown) - _N_SHOWN)
    unknown.warn()
