"""How a format of documents is registered: for `tfm translate --format`, and for `tfm serve`."""

import re
from collections.abc import Callable
from typing import Any

from transformer_cli.addons.documents.formats import Format, Parse
from transformer_cli.commands.translate.formats import DOCUMENT_FORMATS


class _Registered(Format):
    def translate_file(self, config: Any) -> None:
        from transformer_cli.addons.documents.translate_document import translate_file

        translate_file(self, config)


def document_format(
    name: str, *, endings: tuple[str, ...] = (), encoding: str = "", is_bilingual: bool = False
) -> Callable[[Parse], Parse]:
    """Decorate the function that reads a document with the name that --format has for it; see Format."""
    pattern = re.compile(encoding, re.IGNORECASE | re.MULTILINE) if encoding else None

    def add(parse: Parse) -> Parse:
        DOCUMENT_FORMATS.register(name)(_Registered(name, parse, endings, pattern, is_bilingual))
        return parse

    return add
