"""Documents of Word, and of others that write its format."""

from transformer_cli.addons.documents.formats import OpenFile
from transformer_cli.addons.documents.register import package_format


@package_format("docx", endings=(".docx", ".docm", ".dotx"))
def docx(content: bytes) -> OpenFile:
    from transformer_cli.addons.documents.office import open_office

    return open_office(content, "docx")
