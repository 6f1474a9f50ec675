"""Documents of LibreOffice, and of others that write its format."""

from transformer_cli.addons.documents.formats import OpenFile
from transformer_cli.addons.documents.register import package_format


@package_format("odt", endings=(".odt", ".ott"))
def odt(content: bytes) -> OpenFile:
    from transformer_cli.addons.documents.open_document import open_document

    return open_document(content, "odt")
