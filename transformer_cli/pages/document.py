"""An HTML page that is one file and needs no network: it carries its style and its script.

Its content security policy allows only this style and this script, by their hashes, so no text on the page can inject
another.
"""

import base64
import hashlib
import html
from collections.abc import Sequence
from importlib.resources import files
from string import Template


def document(package: str, *, title: str, connects: bool = False, framed: Sequence[str] = (), **values: str) -> str:
    """The page whose body is page.html of `package` with `values`, which are HTML, styled by its page.css, with its
    page.js. `title` is plain text.

    A page that `connects` may ask the server that it came from. `framed` are packages whose pages it shows in an
    `<iframe srcdoc>`: these inherit its policy, which therefore has to allow their style and script, too.
    """
    style, script = _style(package), _script(package)
    return Template(_asset("transformer_cli.pages", "document.html")).substitute(
        title=escaped(title),
        body=Template(_asset(package, "page.html")).substitute(values),
        style=style,
        style_sources=" ".join(_hash(one) for one in [style, *map(_style, framed)]),
        script=script,
        script_sources=" ".join(_hash(one) for one in [script, *map(_script, framed)]),
        connections="; connect-src 'self'" if connects else "",
    )


def escaped(text: str) -> str:
    """Plain text as HTML, for an element or an attribute.

    A file may have any name, and a translation any character: bytes that are not UTF-8 are shown as escapes, and a
    carriage return and NUL, which HTML would change, as a reference and a sign.
    """
    shown = text.encode("utf-8", "backslashreplace").decode()
    return html.escape(shown).replace("\r", "&#13;").replace("\0", "\N{SYMBOL FOR NULL}")


def _style(package: str) -> str:
    return _asset("transformer_cli.pages", "common.css") + _asset(package, "page.css")


def _script(package: str) -> str:
    return _asset(package, "page.js")


def _asset(package: str, name: str) -> str:
    return (files(package) / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """Source expression of an inline style or script in a content security policy."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
