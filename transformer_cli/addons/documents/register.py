"""How a format of documents is registered: for `tfm translate --format`, and for `tfm serve`."""

import re
from collections.abc import Callable
from typing import Any

from transformer_cli.addons.documents.formats import OpenFile, PackageFormat, Parse, TextFormat, formats
from transformer_cli.commands.translate.formats import DOCUMENT_FORMATS
from transformer_cli.errors import ConfigError
from transformer_cli.registry import place_of

_ENDING = re.compile(r"\.[^.\sA-Z]+")


class _RegisteredText(TextFormat):
    def translate_file(self, config: Any) -> None:
        from transformer_cli.addons.documents.translate_document import translate_file

        translate_file(self, config)


class _RegisteredPackage(PackageFormat):
    def translate_file(self, config: Any) -> None:
        from transformer_cli.addons.documents.translate_document import translate_file

        translate_file(self, config)


def document_format(
    name: str, *, endings: tuple[str, ...] = (), encoding: str = "", is_bilingual: bool = False
) -> Callable[[Parse], Parse]:
    """Decorate the function that reads a text with the name that --format has for it; see TextFormat.

    Raises ConfigError for an ending that is none, or that files of another format have.
    """
    pattern = re.compile(encoding, re.IGNORECASE | re.MULTILINE) if encoding else None

    def add(parse: Parse) -> Parse:
        _check_endings(endings, place_of(parse))
        DOCUMENT_FORMATS.register(name)(_RegisteredText(name, parse, endings, pattern, is_bilingual))
        return parse

    return add


def package_format(
    name: str, *, endings: tuple[str, ...] = ()
) -> Callable[[Callable[[bytes], OpenFile]], Callable[[bytes], OpenFile]]:
    """Decorate the function that opens a file that is no text with the name for --format; see PackageFormat.

    Raises ConfigError for an ending that is none, or that files of another format have.
    """

    def add(opens: Callable[[bytes], OpenFile]) -> Callable[[bytes], OpenFile]:
        _check_endings(endings, place_of(opens))
        DOCUMENT_FORMATS.register(name)(_RegisteredPackage(name, opens, endings))
        return opens

    return add


def _check_endings(endings: object, place: str) -> None:
    if not isinstance(endings, tuple) or not all(isinstance(one, str) and _ENDING.fullmatch(one) for one in endings):
        raise ConfigError(f"{place}: endings={endings!r:.80}: give a tuple in small letters, as ('.srt',)")
    for name, one in formats().items():
        if taken := sorted({*endings} & {*one.endings}):
            raise ConfigError(
                f"{place}: files that end in {taken[0]} are of the format `{name}`. Leave that ending out of endings=,"
                " and name the format by --format"
            )
