"""E-books."""

from transformer_cli.addons.documents.formats import OpenFile
from transformer_cli.addons.documents.register import package_format


@package_format("epub", endings=(".epub",))
def epub(content: bytes) -> OpenFile:
    from transformer_cli.addons.documents.epub import open_epub

    return open_epub(content)
