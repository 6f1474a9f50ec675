"""XLIFF 1.0 to 2.1, also as Trados, memoQ and Phrase write it: finished translations.

Inline tags are removed, or numbered."""

from collections.abc import Iterator
from dataclasses import replace

from transformer_cli.config.data import DataConfig
from transformer_cli.data.formats.base import Contents, FileFormat, SourceFile, Table
from transformer_cli.data.formats.bilingual import Unit, contents_of, pairs_of
from transformer_cli.data.formats.inline_codes import (
    BREAK,
    PLACEHOLDER,
    TAG,
    alone,
    closing,
    is_break,
    numbered,
    opening,
    plain,
    with_numbered_tags,
)
from transformer_cli.data.formats.sides import SOURCE, TARGET
from transformer_cli.data.formats.xml_events import Attributes, XmlReader, root_of
from transformer_cli.data.registry import FORMATS

_TEXTS = {"source": SOURCE, "seg-source": SOURCE, "target": TARGET}
# What holds texts that are not those of the unit: suggestions of memories, notes, changes.
_ASIDE = {
    *("alt-trans", "bin-unit", "ignorable", "matches", "mtc:matches", "glossary", "gls:glossary", "changeTrack"),
    *("ctr:changeTrack", "note", "notes", "originalData", "metadata", "mda:metadata", "skl", "header", "internal-file"),
}
_SCOPES = {"file", "group", "unit", "trans-unit"}  # which may say that their texts are not to be translated
_CODES = {"bpt": TAG, "ept": TAG, "it": TAG, "ph": PLACEHOLDER, "sub": TAG}  # of 1.2, which hold native code
_EMPTY = {"x": PLACEHOLDER, "bx": TAG, "ex": TAG, "ph": PLACEHOLDER, "sc": TAG, "ec": TAG, "sm": TAG, "em": TAG}
# Tags of two elements of which each is one end, and of one element around words.
_OPENS, _CLOSES, _AROUND = {"bpt", "bx", "sc"}, {"ept", "ex", "ec"}, {"g", "pc"}
_ALONE = {"x", "ph", "it"}
_DELETED = "x-sdl-deleted"  # type of a <mrk> with text that a tracked change removes

# States of <target> in 1.2 and of <segment> in 2; a text without one counts as finished.
FINISHED = {"", "translated", "reviewed", "signed-off", "final"}
MACHINE = "tfm:mt"  # subState of a segment that `tfm translate` has translated
_SUGGESTED = {"fuzzy-match", "leveraged-mt", "mt-suggestion"}  # qualifiers, where there is no state
SDL_FINISHED = {"Translated", "ApprovedTranslation", "ApprovedSignOff"}
_MEMOQ_FINISHED = ("Confirmed", "Proofread")  # in names such as ManuallyConfirmed


class _XliffReader(XmlReader[Unit]):
    root, what = "xliff", "XLIFF"

    def __init__(self, file: SourceFile) -> None:
        super().__init__(file)
        self.is_second = False  # XLIFF 2
        self.languages = ["", ""]
        self.are_translated = [True]  # the scopes that are open
        self.aside = 0  # depth within what is not read
        self.side = -1  # of the text that is read
        self.native = 0  # depth within native code, which is left out
        self.kind = ""  # of the tag that holds it
        self.code: list[str] = []
        self.tag = ""  # for that tag, if tags are kept
        self.ends: list[str] = []  # what the end of each tag around words leaves
        self.marked: list[tuple[str, int]] = []  # each <mrk> that is open: its segment or "", and the part it begins at
        self._clear()

    def begin(self, attributes: Attributes) -> None:
        self.is_second = attributes.get("version", "").startswith("2")
        self.languages = [attributes.get("srcLang", ""), attributes.get("trgLang", "")]

    def _clear(self, state: str = "") -> None:
        """Begin a unit of 1.2 or a segment of 2."""
        self.texts: list[str | None] = [None, None]
        self.segments: list[dict[str, str]] = [{}, {}]  # of 1.2: parts of <seg-source> and <target>, by their number
        self.statuses: dict[str, str] = {}  # of segments, as Trados writes them
        self.state, self.qualifier, self.target_language = state, "", ""
        self.is_approved = False
        self.unconfirmed = ""  # how memoQ and Phrase call the state of the unit, if it is not finished

    # ---- Elements

    def start(self, name: str, attributes: Attributes) -> None:
        if self.aside:
            self.aside += 1
        elif self.side >= 0:
            self._start_inline(name, attributes)
        elif name in _TEXTS:
            self.side = _TEXTS[name]
            if name == "target":
                self.state = self.state or attributes.get("state", "")
                self.qualifier = attributes.get("state-qualifier", "")
                self.target_language = attributes.get("xml:lang", "")
            self.collect()
        elif name in _ASIDE:
            self.aside = 1
        elif name in _SCOPES:
            self._start_scope(name, attributes)
        elif name == "segment":
            state = attributes.get("state", "")
            self._clear(MACHINE if state == "translated" and attributes.get("subState") == MACHINE else state)
        elif name == "sdl:seg":
            self.statuses[attributes.get("id", "")] = attributes.get("conf", "Unspecified")

    def _start_scope(self, name: str, attributes: Attributes) -> None:
        self.are_translated.append(attributes.get("translate", "yes" if self.are_translated[-1] else "no") != "no")
        if name == "file" and not self.is_second:
            self.languages = [attributes.get("source-language", ""), attributes.get("target-language", "")]
        elif name == "trans-unit":
            self._clear()
            self.is_approved = attributes.get("approved") == "yes"
            status = attributes.get("mq:status", _MEMOQ_FINISHED[0])
            if not status.endswith(_MEMOQ_FINISHED):
                self.unconfirmed = status
            elif attributes.get("m:confirmed") == "0":
                self.unconfirmed = "not confirmed"

    def end(self, name: str) -> None:
        if self.aside:
            self.aside -= 1
        elif self.side >= 0:
            self._end_within_text(name)
        elif name in _SCOPES:
            if name == "trans-unit":
                self._add_units()
            self.are_translated.pop()
        elif name == "segment":
            self._add(self.texts[SOURCE], self.texts[TARGET], self._fault())

    # ---- Texts

    def _start_inline(self, name: str, attributes: Attributes) -> None:
        kind = attributes.get("subType") or attributes.get("ctype") or attributes.get("mtype") or ""
        if self.native:
            self.native += 1
        elif kind == _DELETED or (name in _CODES and not self.is_second):
            self.native, self.kind, self.code = 1, kind, []
            self.tag = "" if kind == _DELETED else self._kept(name, attributes)
            self.parser.CharacterDataHandler = self.code.append
        elif name == "mrk":
            segment = attributes.get("mid", "") if kind == "seg" else ""
            self.marked.append((segment, len(self.parts)))
            self.parts.append(TAG)
        elif name == "cp":  # a character that XML forbids
            self.parts.append(" ")
            self.ends.append(TAG)
        elif name in _EMPTY:
            shown = attributes.get("equiv-text") or attributes.get("equiv") or ""
            self.parts.append(self._kept(name, attributes) or (BREAK if is_break(kind, shown) else _EMPTY[name]))
        else:
            self.parts.append(self._kept(name, attributes) or TAG)
            self.ends.append(closing(_pair_key(attributes)) if self.file.keeps_tags and name in _AROUND else TAG)

    def _kept(self, name: str, attributes: Attributes) -> str:
        """The mark of a tag, which has a key that the tag for it in the translation has; empty if none is kept."""
        if self.file.keeps_tags:
            if name in _OPENS or name in _AROUND:
                return opening(_pair_key(attributes))
            if name in _CLOSES:
                return closing(_pair_key(attributes))
            if name in _ALONE:
                return alone(f"single {attributes.get('id', '')}")
        return ""

    def _end_within_text(self, name: str) -> None:
        if self.native:
            self.native -= 1
            if not self.native:
                is_line = is_break(self.kind, "".join(self.code))
                self.parts.append(self.tag or (BREAK if is_line else _CODES.get(name, TAG)))
                self.parser.CharacterDataHandler = self.parts.append
        elif name in _TEXTS:
            text = plain(self.collected())
            if name != "seg-source":
                self.texts[self.side] = text
            self.side = -1
        elif name == "mrk":
            segment, first = self.marked.pop()
            if segment:
                self.segments[self.side][segment] = plain("".join(self.parts[first:]))
            self.parts.append(TAG)
        elif name not in _EMPTY:
            self.parts.append(self.ends.pop())

    # ---- Units

    def _add_units(self) -> None:
        sources, targets = self.segments
        if not targets or not targets.keys() <= sources.keys():
            self._add(self.texts[SOURCE], self.texts[TARGET], self._fault())
            return
        for segment, target in targets.items():
            status = self.statuses.get(segment, "Unspecified") if self.statuses else ""
            self._add(sources[segment], target, self._fault(status))

    def _fault(self, status: str = "") -> str:
        """Why a translation is not finished; empty if it is."""
        if status:
            return "" if status in SDL_FINISHED else status
        if self.is_approved:
            return ""
        if self.unconfirmed or self.state not in FINISHED:
            return self.unconfirmed or self.state
        return self.qualifier if not self.state and self.qualifier in _SUGGESTED else ""

    def _add(self, source: str | None, target: str | None, fault: str) -> None:
        if source is None or not (source or target):
            return
        left_out = "untranslated" if not target else fault
        if not self.are_translated[-1]:
            left_out = "not to be translated"
        languages = self.languages[0], self.languages[1] or self.target_language
        self.rows.append(Unit(source, target or "", languages, left_out))


def _pair_key(attributes: Attributes) -> str:
    """The key of a tag around words: what both of its ends name."""
    if "rid" in attributes:
        return f"pair rid {attributes['rid']}"
    return f"pair {attributes.get('startRef') or attributes.get('id', '')}"


def _with_numbered_tags(unit: Unit) -> Unit:
    source, target = numbered(unit.source, unit.target)
    return replace(unit, source=source, target=target)


class Xliff(FileFormat):
    what = "a bilingual document (XLIFF)"
    endings = (".xlf", ".xliff", ".sdlxliff", ".mxliff", ".mqxliff")
    has_inline_tags = True

    def recognises(self, head: bytes) -> bool:
        return root_of(head) == "xliff"

    def table(self, file: SourceFile, config: DataConfig) -> Table:
        pairs = pairs_of(self._units(file), file.name, config)
        rows = with_numbered_tags(pairs, file.name) if file.keeps_tags else pairs
        return Table((config.source_lang, config.target_lang), rows)

    def contents(self, file: SourceFile) -> Contents:
        return contents_of(map(_with_numbered_tags, self._units(file)))

    def _units(self, file: SourceFile) -> Iterator[Unit]:
        return _XliffReader(file).each()


FORMATS.register("xliff")(Xliff())
