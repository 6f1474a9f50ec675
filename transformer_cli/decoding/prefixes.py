"""The file of `--prefix`: what the translation of each line begins with."""

from io import BytesIO
from pathlib import Path

from transformer_cli.data.lines import ChunkSource, read_chunks, read_lines, shown, split_lines
from transformer_cli.decoding.postprocess import written_ids
from transformer_cli.decoding.translator import Translator
from transformer_cli.errors import DataError, quoted
from transformer_cli.text_io import STDIN, decode_line

PrefixIds = tuple[int, ...]


def with_prefixes(
    source: ChunkSource, prefix: Path, translator: Translator, *, path: str | None, strict: bool
) -> tuple[ChunkSource, list[PrefixIds]]:
    """The whole input, and the ids that each line's translation begins with, all checked before any is translated.

    The input is the file `path`, or standard input. Raises DataError with the line of a prefix that no translation can
    begin with.
    """
    name, where = shown(prefix), path or STDIN
    data = b"".join(read_chunks(source, where))
    lines = [
        decode_line(raw, number, name=path, strict=strict).text for number, raw in enumerate(split_lines(data), start=1)
    ]
    is_empty = prefix.is_file() and prefix.stat().st_size == 0  # as the input may be
    prefixes = [] if is_empty else read_lines(prefix).texts
    if len(prefixes) != len(lines):
        raise DataError(
            f"{name}: has {len(prefixes):,} lines, {where} {len(lines):,}, so nothing is translated."
            " Make line n of one the beginning of the translation of line n of the other"
        )
    found: list[PrefixIds] = []
    for number, (text, room) in enumerate(zip(prefixes, translator.room(lines), strict=True), start=1):
        ids = written_ids(text, translator.tokenizers.target)
        if ids is None:
            raise DataError(
                f"{name}:{number}: {quoted(text)} cannot be written with the pieces of this model."
                " Write it in other letters, or leave the line blank"
            )
        if ids and room is None:
            raise DataError(f"{name}:{number}: {quoted(text)} begins the translation of a blank line. Remove it")
        if room is not None and len(ids) > room:
            key = "decode.max_length" if room + 1 == translator.config.max_length else "decode.max_extra_length"
            raise DataError(
                f"{name}:{number}: {len(ids)} tokens, where the translation of line {number} may have {room}."
                f" Shorten it, or raise {key}"
            )
        found.append(ids)
    return BytesIO(data), found
