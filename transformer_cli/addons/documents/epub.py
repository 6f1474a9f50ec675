"""E-books in EPUB 2 and 3: their chapters, tables of contents, titles and descriptions."""

import posixpath
import re
from functools import partial
from urllib.parse import unquote

from transformer_cli.addons.documents.formats import OpenFile
from transformer_cli.addons.documents.html import parse_html
from transformer_cli.addons.documents.package import Package, refuse_package
from transformer_cli.addons.documents.units import Builder, Document
from transformer_cli.addons.documents.xml import escape_xml, parse_xml
from transformer_cli.addons.documents.xml_tree import XmlElement, attribute, read_elements

_CONTAINER, _ENCRYPTION = "META-INF/container.xml", "META-INF/encryption.xml"
_PREFIXES = {"http://purl.org/dc/elements/1.1/": "dc", "http://www.idpf.org/2007/opf": "opf"}
_TITLES = ("dc:title", "dc:description")
_XHTML, _NCX = "application/xhtml+xml", "application/x-dtbncx+xml"


def open_epub(data: bytes) -> OpenFile:
    """Raises UnreadableError for what is no book, or is protected."""
    package = Package(data)
    if _CONTAINER not in package:
        refuse_package("is no EPUB book: it has no META-INF/container.xml. Check the format")
    container = package.xml(_CONTAINER)
    roots = [one for one in read_elements(container, {}).descendants() if one.name == "rootfile"]
    books = [attribute(container, one, "full-path") or "" for one in roots]
    if not books:
        refuse_package("is no EPUB book: its META-INF/container.xml names none. Check the format")
    kinds: dict[str, str] = {}
    for book in books:
        kinds |= {book: "", **_chapters(package, book)}
    if _ENCRYPTION in package:
        locked = re.findall(r"CipherReference\s[^<>]*URI=[\"']([^\"']*)", package.xml(_ENCRYPTION))
        if any(unquote(name) in kinds for name in locked):
            refuse_package("is protected against copying. Ask its publisher for an open one")
    names = [name for name in kinds if name in package]
    return package.opened(partial(_parsed, kinds), names)


def _chapters(package: Package, book: str) -> dict[str, str]:
    """The members that hold text, in the order of the book, with what they are."""
    text = package.xml(book)
    elements = list(read_elements(text, _PREFIXES).descendants())
    items = {attribute(text, one, "id") or "": one for one in elements if one.name == "opf:item"}
    order = [attribute(text, one, "idref") or "" for one in elements if one.name == "opf:itemref"]
    found: dict[str, str] = {}
    for number in dict.fromkeys([*order, *items]):
        item = items.get(number)
        kind = "" if item is None else attribute(text, item, "media-type") or ""
        if item is not None and kind in (_XHTML, _NCX):
            name = posixpath.normpath(posixpath.join(posixpath.dirname(book), unquote(_path(text, item))))
            found[name] = kind
    return found


def _path(text: str, item: XmlElement) -> str:
    return attribute(text, item, "href") or ""


def _parsed(kinds: dict[str, str], name: str, text: str) -> Document:
    if kinds[name] == _XHTML:
        return parse_html(text)
    if kinds[name] == _NCX:
        return parse_xml(text)
    builder = Builder(text)
    for element in read_elements(text, _PREFIXES).descendants():
        if element.name in _TITLES and "<" not in text[element.inner_start : element.inner_end]:
            builder.add_text(element.inner_start, element.inner_end, escape_xml)
    return builder.document()
