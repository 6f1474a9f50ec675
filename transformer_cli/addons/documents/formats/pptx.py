"""Presentations of PowerPoint, and of others that write its format."""

from transformer_cli.addons.documents.formats import OpenFile
from transformer_cli.addons.documents.register import package_format


@package_format("pptx", endings=(".pptx", ".pptm", ".ppsx", ".potx"))
def pptx(content: bytes) -> OpenFile:
    from transformer_cli.addons.documents.office import open_office

    return open_office(content, "pptx")
