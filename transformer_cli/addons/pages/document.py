"""An HTML page that is one file and needs no network: it carries its style and its script.

Its content security policy allows only this style and this script, by their hashes, so no text on the page can inject
another.
"""

import base64
import hashlib
import html
from importlib.resources import files
from string import Template


def document(package: str, *, title: str, connect_to: str = "", framed: str = "", **values: str) -> str:
    """The page whose body is page.html of `package` with `values`, which are HTML, styled by its page.css, with its
    page.js if it has one. `title` is plain text.

    Its script may `connect_to` a source as a content security policy writes it: `'self'` is the server that the page
    came from. `framed` is a package whose page it shows in an `<iframe srcdoc>`, which inherits the policy of this page
    and needs it to allow its own style and script, too.
    """
    packages = [package, framed] if framed else [package]
    styles, scripts = [_style(one) for one in packages], [_script(one) for one in packages]
    return Template(_asset("transformer_cli.addons.pages", "document.html")).substitute(
        title=escaped(title),
        body=Template(_asset(package, "page.html")).substitute(values),
        style=styles[0],
        style_sources=" ".join(map(_hash, styles)),
        script=scripts[0],
        script_sources=" ".join(map(_hash, scripts)),
        connections=f"; connect-src {connect_to}" if connect_to else "",
    )


def escaped(text: str) -> str:
    """Plain text as HTML, for an element or an attribute.

    A file may have any name, and a translation any character: bytes that are not UTF-8 are shown as escapes, and a
    carriage return and NUL, which HTML would change, as a reference and a sign.
    """
    shown = text.encode("utf-8", "backslashreplace").decode()
    return html.escape(shown).replace("\r", "&#13;").replace("\0", "\N{SYMBOL FOR NULL}")


def _style(package: str) -> str:
    return _asset("transformer_cli.addons.pages", "common.css") + _asset(package, "page.css")


def _script(package: str) -> str:
    return _asset(package, "page.js") if (files(package) / "page.js").is_file() else ""


def _asset(package: str, name: str) -> str:
    return (files(package) / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """Source expression of an inline style or script in a content security policy."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
