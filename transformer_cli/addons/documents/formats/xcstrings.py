"""String catalogues of Xcode, of which the texts without a translation are translated."""

from typing import TYPE_CHECKING

from transformer_cli.addons.documents.register import document_format

if TYPE_CHECKING:
    from transformer_cli.addons.documents.units import Document


@document_format("xcstrings", endings=(".xcstrings",), is_bilingual=True)
def xcstrings(content: str) -> "Document":
    from transformer_cli.addons.documents.xcstrings import parse_xcstrings

    return parse_xcstrings(content)
