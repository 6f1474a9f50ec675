"""XLIFF 1.0 to 2.1: texts without a finished translation get one, whose state says that a person is to review it.

What has a translation keeps it: a finished one, and any other that may be someone's work. Sources are never changed.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from transformer_cli.addons.documents.bilingual_xml import (
    BilingualReader,
    Element,
    attributes_of,
    parse_inline,
    with_attributes,
)
from transformer_cli.addons.documents.file_languages import language_tag
from transformer_cli.addons.documents.tags import Kind, tokens
from transformer_cli.addons.documents.units import LANGUAGES, Document
from transformer_cli.data.formats.xliff import FINISHED, MACHINE, SDL_FINISHED

_UNITS = ("trans-unit", "segment")
_SCOPES = ("file", "group", "unit", "trans-unit")
_REPLACED = ("new", "needs-translation", "initial")  # states of targets that are no translations yet
_STATE = {"state": "needs-review-translation", "state-qualifier": "mt-suggestion"}  # of a target of 1
_STATE_OF_SEGMENT = {"state": "translated", "subState": MACHINE}  # of 2, which has no state for what is to be reviewed


def parse_xliff(text: str) -> Document:
    """Raises UnreadableError for what is not well-formed, or not XLIFF."""
    return _Reader(text).read()


@dataclass
class _Segment:
    """A segment of a text of 1.2, as tools for translators divide it: a <mrk> with a number."""

    start: int
    inner: int
    stop: int
    end: int


class _Reader(BilingualReader):
    root, what = "xliff", "XLIFF"
    parents = (*_UNITS, "sdl:seg-defs")

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.target_language = language_tag(LANGUAGES.get()[1])
        self.language_at = -1  # in `parts`, where the language of the translations is to be written
        self.unit: Element | None = None  # the outermost one that is open

    # ---- Elements

    def opened(self, element: Element) -> None:
        if element.name in _SCOPES and (translate := self.attributes(element).get("translate")):
            element.is_translated = translate != "no"
        if element.name in ("xliff", "file"):
            self._open_file(element)
        if element.name in _UNITS and self.unit is None and not element.is_empty:
            self.unit = element

    def closed(self, element: Element) -> None:
        if element is self.unit:
            self.unit = None
            if element.is_translated:
                (self._segment if element.name == "segment" else self._trans_unit)(element)

    def _open_file(self, element: Element) -> None:
        """Leave room for the language, if the file does not say it: in 1 on <file>, in 2 on <xliff>."""
        found = self.attributes(element)
        is_second = found.get("version", "").startswith("2")
        if "source-language" in found:
            self.language_at = -1
        if element.name == ("file" if "source-language" in found else "xliff" if is_second else ""):
            name = "trgLang" if is_second else "target-language"
            if self.target_language and name not in found and not element.is_empty:
                self.copy(element.inner - 1)
                self.language_at = len(self.parts)
                self.parts.append("")
                self.language = f' {name}="{self.target_language}"'

    # ---- Units

    def _segment(self, unit: Element) -> None:
        """A segment of XLIFF 2."""
        source, target = unit.child("source"), unit.child("target")
        state = self.attributes(unit).get("state", "")
        if source is None or not self._is_open(target, state):
            return
        document = self._parsed(source, source.inner, source.stop)
        if document.units:
            self.put(unit.start, unit.inner, [with_attributes(self.text[unit.start : unit.inner], _STATE_OF_SEGMENT)])
            self._write_target(source, source, target, document, {})

    def _trans_unit(self, unit: Element) -> None:
        """A unit of XLIFF 1, whose <seg-source> may have segments."""
        source, target = unit.child("source"), unit.child("target")
        of_unit = self.attributes(unit)
        of_target = self.attributes(target) if target is not None else {}
        is_done = of_unit.get("approved") == "yes" or of_unit.get("m:confirmed") == "1"
        if source is None or is_done or of_unit.get("mq:status", "").endswith(("Confirmed", "Proofread")):
            return
        state = of_target.get("state", "")
        closed = self._closed_segments(unit)
        # Tools that keep a state of their own have no use for that of the target.
        new_state = {} if "mq:status" in of_unit or unit.child("sdl:seg-defs") else _STATE
        divided = unit.child("seg-source")
        segments = self._segments(divided) if divided is not None else {}
        if target is not None and segments and state not in _REPLACED and (of_segments := self._segments(target)):
            if state not in FINISHED - {""}:
                open_ones = {number: one for number, one in of_segments.items() if number not in closed}
                self._fill_segments(target, segments, open_ones, {} if self.has_text(target) else new_state)
            return
        if not self._is_open(target, state) or closed & segments.keys():
            return
        origin = divided if divided is not None and segments else source
        document = self._parsed(origin, origin.inner, origin.stop)
        if document.units:
            self._write_target(source, divided or source, target, document, new_state)

    def _is_open(self, target: Element | None, state: str) -> bool:
        """Whether there is no translation yet. Of an empty one, a state may say that it is to be so."""
        if target is None or not self.has_text(target):
            return state not in FINISHED - {""}
        return state in _REPLACED

    def _parsed(self, element: Element, start: int, stop: int) -> Document:
        return parse_inline(self.text[start:stop], preserves_space=element.preserves_space, prefix=self.prefix)

    def _write_target(
        self, source: Element, after: Element, target: Element | None, document: Document, state: Mapping[str, str]
    ) -> None:
        if self.language_at >= 0:
            self.parts[self.language_at] = self.language
        parts = self.adopt(document)
        name = f"{self.prefix}target"
        if target is None:
            tag = with_attributes(f"<{name}>", state)
            self.put(after.end, after.end, [self.indentation(source.start), tag, *parts, f"</{name}>"])
            return
        tag = with_attributes(self.text[target.start : target.inner], state)
        if target.is_empty:
            self.put(target.start, target.end, [tag[:-2].rstrip(), ">", *parts, f"</{name}>"])
        else:
            self.put(target.start, target.stop, [tag, *parts])

    # ---- Segments of 1.2

    def _segments(self, element: Element) -> dict[str, _Segment]:
        """The segments of a text by their numbers."""
        found: dict[str, _Segment] = {}
        stack: list[tuple[str, int, int]] = []
        for token in tokens(self.text[element.inner : element.stop], is_xml=True):
            start, end = element.inner + token.start, element.inner + token.end
            if token.name.removeprefix(self.prefix) != "mrk":
                continue
            attributes = attributes_of(self.text[start:end]) if token.kind is not Kind.closing else {}
            number = attributes.get("mid", "") if attributes.get("mtype") == "seg" else ""
            if token.kind is Kind.opening:
                stack.append((number, start, end))
            elif token.kind is Kind.closing:
                number, first, inner = stack.pop()
                if number:
                    found.setdefault(number, _Segment(first, inner, start, end))
            elif number:
                found.setdefault(number, _Segment(start, end, end, end))
        return dict(sorted(found.items(), key=lambda item: item[1].start))

    def _closed_segments(self, unit: Element) -> set[str]:
        """The numbers of segments that Trados has as finished or locked."""
        found: set[str] = set()
        for one in (of_seg for child in unit.children if child.name == "sdl:seg-defs" for of_seg in child.children):
            attributes = self.attributes(one)
            if attributes.get("conf") in SDL_FINISHED or attributes.get("locked") == "true":
                found.add(attributes.get("id", ""))
        return found

    def _fill_segments(
        self,
        target: Element,
        sources: Mapping[str, _Segment],
        targets: Mapping[str, _Segment],
        state: Mapping[str, str],
    ) -> None:
        """Write the translations of segments of which a target has none, in their places."""
        found: list[tuple[_Segment, Document]] = []
        for number, segment in targets.items():
            source = sources.get(number)
            is_empty = not self.text[segment.inner : segment.stop].strip()
            is_within = found and segment.start < found[-1][0].end
            if source is not None and is_empty and not is_within:
                found.append((segment, self._parsed(target, source.inner, source.stop)))
        found = [(segment, document) for segment, document in found if document.units]
        if found and state:
            self.put(target.start, target.inner, [with_attributes(self.text[target.start : target.inner], state)])
        for segment, document in found:
            tag = self.text[segment.start : segment.inner].removesuffix("/>").rstrip(" >")
            self.put(segment.start, segment.end, [f"{tag}>", *self.adopt(document), f"</{self.prefix}mrk>"])
