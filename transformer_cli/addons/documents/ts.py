"""TS of Qt Linguist: messages without a translation get one, and stay unfinished until a person approves of it.

A translation that is there is never replaced, nor is that of a message that the program no longer has.
"""

from transformer_cli.addons.documents.bilingual_xml import BilingualReader, Element, without_cdata, xml_value
from transformer_cli.addons.documents.messages import parse_message
from transformer_cli.addons.documents.units import Document
from transformer_cli.addons.documents.xml import escape_xml

_KINDS = frozenset({"qt"})


def parse_ts(text: str) -> Document:
    """Raises UnreadableError for what is not well-formed, or no TS of Qt."""
    return _Reader(text).read()


class _Reader(BilingualReader):
    root, what = "TS", "a TS of Qt"
    parents = ("message", "translation")

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.n_forms = 1  # the most plural forms of a message so far
        self.n_open = 0  # messages, which have none within them

    def opened(self, element: Element) -> None:
        self.n_open += element.name == "message"

    def closed(self, element: Element) -> None:
        if element.name != "message":
            return
        self.n_open -= 1
        source, translation = element.child("source"), element.child("translation")
        if source is None or translation is None or self.n_open:
            return
        forms = [one for one in translation.children if one.name == "numerusform"]
        self.n_forms = max(self.n_forms, len(forms))
        attributes = self.attributes(translation)
        is_open = attributes.get("type") == "unfinished" and not self.has_text(translation)
        if not is_open or any(one.name == "lengthvariant" for one in (*translation.children, *forms)):
            return
        document = self._parsed(source)
        if not document.units:
            return
        if forms:
            for form in forms:
                self._write(form, document)
        elif self.attributes(element).get("numerus") == "yes":
            self._write(translation, document, "numerusform", self.n_forms)
        else:
            self._write(translation, document)

    def _write(self, element: Element, document: Document, within: str = "", n: int = 1) -> None:
        """Write a translation into an empty element, or `n` of them, each within another element."""
        tag = self.text[element.start : element.inner]
        opening, closing = (f"<{within}>", f"</{within}>") if within else ("", "")
        parts = [part for _ in range(n) for part in (opening, *self.adopt(document), closing)]
        if element.is_empty:
            parts = [f"{tag[:-2].rstrip()}>", *parts, f"</{self.prefix}{element.name}>"]
            self.put(element.start, element.end, parts)
        else:
            self.put(element.inner, element.stop, parts)

    def _parsed(self, source: Element) -> Document:
        content = without_cdata(self.text[source.inner : source.stop])
        newline = "\r\n" if "\r\n" in content else "\n"

        def escape(text: str) -> str:
            return escape_xml(text).replace("\n", newline)

        return parse_message(xml_value(content), _KINDS, escape)
