"""What `tfm translate` reads: plain lines, or a document in a format that an add-on or a plugin registers."""

from typing import Any, Protocol

from transformer_cli.registry import Registry

LINES = "text"


class DocumentFormat(Protocol):
    """A format whose mark-up is kept."""

    def translate_file(self, config: Any) -> None:
        """Translate the document in `config.input` or stdin to `config.output` or stdout. Raises TfmError."""


DOCUMENT_FORMATS: Registry[DocumentFormat] = Registry("document format")
