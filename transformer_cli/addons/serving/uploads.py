"""Files that are sent to be translated: their names, and the format that these say."""

from dataclasses import dataclass
from pathlib import PurePath

from transformer_cli.addons.documents.formats import Format, format_of_file, formats, names_by_ending
from transformer_cli.addons.serving.errors import RequestError
from transformer_cli.addons.serving.forms import Fields

MOST_OF_NAME = 100  # characters


@dataclass(frozen=True)
class DocumentUpload:
    """A file of a known format; the name has no folder in it."""

    name: str
    form: Format
    content: bytes

    def renamed(self, mark: str) -> str:
        """The name with `mark` before its ending."""
        path = PurePath(self.name)
        return f"{path.stem}{mark}{path.suffix}"


def document_upload(fields: Fields, *, name: str = "", unknown: str = "file") -> DocumentUpload:
    """The file of a form, or of another `name`. Raises RequestError 400 without one, and for an unknown ending.

    `unknown` begins the message about an ending.
    """
    upload = fields.uploads.get("file")
    if upload is None:
        raise RequestError(400, "file: is missing. Send a form of the type multipart/form-data, with a file")
    path = PurePath(PurePath((name or upload.name).replace("\\", "/")).name[-MOST_OF_NAME:])
    if (kind := format_of_file(path.name)) is None:
        ending, known = path.suffix.lower()[:20], ", ".join(names_by_ending())
        raise RequestError(400, f"{unknown}: no format has the ending {ending!r}. Choose one of {known}")
    return DocumentUpload(path.name, formats()[kind], upload.content)
