"""Spreadsheets of Excel, and of others that write its format."""

from transformer_cli.addons.documents.formats import OpenFile
from transformer_cli.addons.documents.register import package_format


@package_format("xlsx", endings=(".xlsx", ".xlsm", ".xltx"))
def xlsx(content: bytes) -> OpenFile:
    from transformer_cli.addons.documents.office import open_office

    return open_office(content, "xlsx")
