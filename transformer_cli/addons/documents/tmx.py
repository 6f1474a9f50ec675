"""TMX: units of a translation memory that lack the target language get it, translated from their source language.

A variant that is there is never replaced. `creationtool` tells those that were added from those of people.
"""

import re

from transformer_cli.addons.documents.bilingual_xml import BilingualReader, Element, parse_inline, with_attributes
from transformer_cli.addons.documents.file_languages import UnknownLanguageError, choose_languages
from transformer_cli.addons.documents.units import Document

_LANGUAGE = re.compile(r"<(?:\w+:)?tuv\s(?:[^<>]*?\s)?(?:xml:)?lang\s*=\s*[\"']([^\"'<>]*)")
_TOOL = {"creationtool": "tfm"}


def parse_tmx(text: str) -> Document:
    """Raises UnreadableError for what is not well-formed, no TMX, or lacks the source language."""
    return _Reader(text).read()


class _Reader(BilingualReader):
    root, what = "tmx", "a TMX"
    parents = ("tu", "tuv")

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.known = list(dict.fromkeys(match[1] for match in _LANGUAGE.finditer(text)))
        self.sources: list[str] = []
        self.targets: list[str] = []  # as the file writes the target, the first where it is added
        self.n_open = 0  # units, which have none within them

    def opened(self, element: Element) -> None:
        self.n_open += element.name == "tu"
        if element.name == "header" and self.known:
            self._choose_languages(self.attributes(element).get("srclang", ""), element.start)

    def closed(self, element: Element) -> None:
        if element.name != "tu":
            return
        self.n_open -= 1
        if not self.n_open and self.known:
            if not self.sources:
                self._choose_languages("", element.start)
            self._fill(element)

    def _choose_languages(self, of_header: str, place: int) -> None:
        try:
            self.sources, self.targets = choose_languages(self.known, of_header)
        except UnknownLanguageError as error:
            raise self.error(place, str(error)) from error

    def _fill(self, unit: Element) -> None:
        variants = [one for one in unit.children if one.name == "tuv" and one.child("seg") is not None]
        of = {id(one): self._language(one) for one in variants}
        source = next((one for code in self.sources for one in variants if of[id(one)] == code), None)
        targets = [one for one in variants if of[id(one)] in self.targets]
        segment = source.child("seg") if source is not None else None
        target = next((one.child("seg") for one in targets), None)
        if source is None or segment is None or any(self.has_text(one) for one in targets):
            return
        document = parse_inline(
            self.text[segment.inner : segment.stop], preserves_space=segment.preserves_space, prefix=self.prefix
        )
        if not document.units:
            return
        if target is not None:
            self._fill_variant(targets[0], target, document)
        else:
            self._add_variant(source, segment, variants[-1], document)

    def _fill_variant(self, variant: Element, segment: Element, document: Document) -> None:
        self.put(variant.start, variant.inner, [with_attributes(self.text[variant.start : variant.inner], _TOOL)])
        tag = self.text[segment.start : segment.inner]
        tag = f"{tag[:-2].rstrip()}>" if segment.is_empty else tag
        self.put(segment.start, segment.end, [tag, *self.adopt(document), f"</{self.prefix}seg>"])

    def _add_variant(self, source: Element, segment: Element, last: Element, document: Document) -> None:
        """Write a variant behind the others, laid out as that of the source is."""
        name = "xml:lang" if "xml:lang" in self.attributes(source) else "lang"
        tag = with_attributes(f"<{self.prefix}tuv>", {name: self.targets[0], **_TOOL})
        spaces = self.text[source.inner : segment.start], self.text[segment.end : source.stop]
        before, after = (space if not space.strip() else "" for space in spaces)
        opening = f"{self.indentation(source.start)}{tag}{before}<{self.prefix}seg>"
        closing = f"</{self.prefix}seg>{after}</{self.prefix}tuv>"
        self.put(last.end, last.end, [opening, *self.adopt(document), closing])

    def _language(self, variant: Element) -> str:
        attributes = self.attributes(variant)
        return attributes.get("xml:lang") or attributes.get("lang") or ""
