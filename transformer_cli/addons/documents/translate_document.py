"""`tfm translate --format`: a document in, the same document in another language out."""

from collections import Counter
from contextlib import ExitStack

from transformer_cli.addons.documents.bilingual import bilingual_of_name, refuse_bilingual
from transformer_cli.addons.documents.document import BY_POSITION, REPAIRED, TranslatedDocument, parse, translate_parsed
from transformer_cli.addons.documents.formats import Format
from transformer_cli.addons.documents.symbols import placeholder_symbols
from transformer_cli.commands.translate.keys import TranslateConfig
from transformer_cli.commands.translate.open_translator import flags_set, open_translator
from transformer_cli.data.lines import read_chunks
from transformer_cli.data.unknown import UnknownCounter
from transformer_cli.decoding.directions import known_languages
from transformer_cli.errors import DataError, quoted
from transformer_cli.logs import LOGGER
from transformer_cli.models.device import choose_device
from transformer_cli.text_io import BOM, STDIN, STDOUT, open_input, open_output, write_responses

_N_SHOWN = 5  # texts that a warning shows
_HARMLESS = (REPAIRED, BY_POSITION)  # flags that are counted, and whose texts are not shown


def translate_file(form: Format, config: TranslateConfig) -> None:
    """Translate the document in `config.input` or stdin to `config.output` or stdout. Raises TfmError."""
    device = choose_device(config.device)
    with ExitStack() as files:
        source = files.enter_context(open_input(config.input, config.text))
        if config.input is None and source.isatty():
            LOGGER.info("Type a document; Ctrl-D ends it")
        data = b"".join(read_chunks(source, config.input or STDIN))
        text = decode_document(data.removeprefix(BOM), form, config)
        if not form.is_bilingual:
            refuse_bilingual(bilingual_of_name(config.input or ""), config.input or STDIN)
        opened, translator = open_translator(config, device)
        asked = known_languages(opened.models[0], config.source_lang, config.target_lang)
        parsed = parse(text, config.format, config.input or STDIN, asked)
        sink = files.enter_context(open_output(config.output, replace=config.overwrite))
        symbols = placeholder_symbols(translator.tokenizers)
        (document,) = translate_parsed([parsed], translator.translate, symbols=symbols)
        bom = "\ufeff" if data.startswith(BOM) else ""
        write_responses(sink, [bom + document.text], config.output or STDOUT)
    _report(document, config)


def decode_document(data: bytes, form: Format, config: TranslateConfig) -> str:
    """Raises DataError for what is not UTF-8, or says that it is not."""
    name = config.input or STDIN
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        before = data[: error.start]
        line, column = before.count(b"\n") + 1, error.start - before.rfind(b"\n")
        raise DataError(
            f"{name}:{line}: byte 0x{data[error.start]:02x} at column {column} is not UTF-8."
            " Convert the document to UTF-8 first"
        ) from error
    if encoding := form.other_encoding(text):
        raise DataError(
            f"{name}: says that its encoding is {encoding}. Convert it to UTF-8, and change what it says of itself"
        )
    return text


def _report(document: TranslatedDocument, config: TranslateConfig) -> None:
    """Log what the document does not show."""
    n_units = len(document.units)
    if not n_units:
        LOGGER.warning("%s: has no text to translate as format=%s", config.input or STDIN, config.format)
    counts: Counter[str] = document.flags
    unknown = UnknownCounter()
    for number, unit in enumerate(document.units, 1):
        counts.update(flags_set(unit.result))
        unknown.add(number, unit.result.unknown)
    if counts:
        LOGGER.warning(
            "of %s texts: %s", f"{n_units:,}", ", ".join(f"{n:,} {flag}" for flag, n in counts.most_common())
        )
    shown = [(flag, unit) for unit in document.units for flag in unit.flags if flag not in _HARMLESS]
    for flag, unit in shown[:_N_SHOWN]:
        LOGGER.warning("%s: %s", flag, quoted(unit.source))
    if len(shown) > _N_SHOWN:
        LOGGER.warning("%d more texts to check", len(shown) - _N_SHOWN)
    unknown.warn()
