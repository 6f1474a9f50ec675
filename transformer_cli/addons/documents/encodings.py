"""The encoding that a document says it is in."""

import re

_HEAD = 2048  # characters in which a document says it
_DECLARATIONS = {
    "html": re.compile(r"<meta\s[^<>]{0,200}?\bcharset\s*=\s*[\"']?([\w-]{1,40})", re.IGNORECASE),
    "xml": re.compile(r"^<\?xml\s[^<>]{0,200}?\bencoding\s*=\s*[\"']([\w.-]{1,40})"),
    "po": re.compile(r"^\"Content-Type:[^\"\n]{0,100}?\bcharset=([\w-]{1,40})", re.IGNORECASE | re.MULTILINE),
}
_UTF_8 = ("utf-8", "utf8", "us-ascii", "ascii", "charset")  # CHARSET is what templates of gettext have


def other_encoding(text: str, format_name: str) -> str | None:
    """The name of an encoding that is not UTF-8, in which readers of the document would misread a translation."""
    pattern = _DECLARATIONS.get(format_name)
    match = pattern.search(text[:_HEAD]) if pattern else None
    return match[1] if match and match[1].lower() not in _UTF_8 else None
