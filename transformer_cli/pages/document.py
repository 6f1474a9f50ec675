"""An HTML page that is one file and needs no network: it carries its style and its script.

Its content security policy allows only this style and this script, by their hashes, so no text on the page can inject
another.
"""

import base64
import hashlib
import html
from importlib.resources import files
from string import Template


def document(package: str, *, title: str, **values: str) -> str:
    """The page whose body is page.html of `package` with `values`, which are HTML, styled by its page.css, with its
    page.js. `title` is plain text."""
    style = _asset("transformer_cli.pages", "common.css") + _asset(package, "page.css")
    script = _asset(package, "page.js")
    return Template(_asset("transformer_cli.pages", "document.html")).substitute(
        title=escaped(title),
        body=Template(_asset(package, "page.html")).substitute(values),
        style=style,
        style_hash=_hash(style),
        script=script,
        script_hash=_hash(script),
    )


def escaped(text: str) -> str:
    """Plain text as HTML, for an element or an attribute.

    A file may have any name, and a translation any character: bytes that are not UTF-8 are shown as escapes, and a
    carriage return and NUL, which HTML would change, as a reference and a sign.
    """
    shown = text.encode("utf-8", "backslashreplace").decode()
    return html.escape(shown).replace("\r", "&#13;").replace("\0", "\N{SYMBOL FOR NULL}")


def _asset(package: str, name: str) -> str:
    return (files(package) / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """Source expression of an inline style or script in a content security policy."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
