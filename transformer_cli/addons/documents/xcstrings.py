"""String catalogues of Xcode (.xcstrings): texts that lack a translation get one, marked as to be reviewed.

A translation that is there is never replaced, unless its state is `new`; nor is that of a text that the program no
longer has. The file has the bytes that it had but for what is added.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

from transformer_cli.addons.documents.file_languages import UnknownLanguageError, choose_languages
from transformer_cli.addons.documents.json_strings import JSON_ESCAPE, json_escape, json_meaning
from transformer_cli.addons.documents.json_tree import JsonValue, json_values, load_json
from transformer_cli.addons.documents.messages import DocumentWriter, Value, parse_message
from transformer_cli.addons.documents.plural_categories import OF_OTHERS, categories_of, needs_number
from transformer_cli.addons.documents.po_inline import same_placeholders
from transformer_cli.addons.documents.units import Document, Parts, UnreadableError

_KINDS = frozenset({"objc"})
_NEW, _DONE, _STALE = "new", "translated", "stale"
_STATE = '"needs_review"'
_LEAVES = {"stringUnit": "value", "stringSet": "values"}  # what holds texts, and the key of these in it
_IDENTIFIER = re.compile(r"[\w-]+(?:[._][\w-]+)+")  # a key that is no text, though the file has none for it
_STRING = re.compile(r"\"(?:[^\"\\]++|\\.)*+\"")
_DEEPEST = 16  # objects around a text: those of plural forms of a device within a substitution are 13
_LONGEST_SPACE = 1000  # characters before a key
_INDENTATION = re.compile(r"\{(\s*)\"")
_COLON = re.compile(r"\"(?:sourceLanguage|strings|version)\"(\s*:\s*)")


def parse_xcstrings(text: str) -> Document:
    """Raises UnreadableError for what is no string catalogue, or lacks the source language."""
    content = load_json(text)
    if not (
        isinstance(content, dict)
        and isinstance(content.get("sourceLanguage"), str)
        and isinstance(content.get("strings"), dict)
    ):
        raise UnreadableError(
            1, "is no string catalogue of Xcode: it has no sourceLanguage, or no object of strings. Name its format"
        )
    try:
        return _Catalogue(text, content["sourceLanguage"]).read()
    except RecursionError as error:
        raise UnreadableError(1, "has objects too deep within each other. Is it the right file?") from error


@dataclass(frozen=True)
class _Layout:
    """How the file is laid out; Xcode writes `"key" : value`, with two spaces for each level."""

    newline: str  # empty: all is on one line
    indentation: str
    colon: str

    def line(self, depth: int) -> str:
        return self.newline + self.indentation * depth if self.newline else ""


def _layout(text: str) -> _Layout:
    start, colon = _INDENTATION.search(text), _COLON.search(text)
    newline, _, indentation = start[1].rpartition("\n") if start else ("", "", "  ")
    is_on_lines = start is not None and "\n" in start[1]
    newline = "\r\n" if newline.endswith("\r") else "\n" if is_on_lines else ""
    return _Layout(newline, indentation, colon[1] if colon else " : ")


class _Catalogue(DocumentWriter):
    """The document with room for what is missing."""

    def __init__(self, text: str, main_language: str) -> None:
        super().__init__(text)
        self.tree = json_values(text)
        self.layout, self.escape = _layout(text), json_escape(text)
        strings = self.tree.members["strings"].members
        of_texts = (code for one in strings.values() for code in self._localizations(one))
        known = list(dict.fromkeys([main_language, *of_texts]))
        try:
            sources, targets = choose_languages(known, main_language)
        except UnknownLanguageError as error:
            raise UnreadableError(1, str(error)) from error
        # The keys are texts of the main language, if there are no others.
        self.has_keys = main_language in sources
        self.sources = [main_language] if self.has_keys else sources
        self.target, self.is_into_main = targets[0], main_language in targets

    def read(self) -> Document:
        for entry in self.tree.members["strings"].members.values():
            self.on_unit(len(self.units))
            is_kept = self._raw(entry.get("shouldTranslate")) == "false"
            if not is_kept and self._string(entry.get("extractionState")) != _STALE:
                self._fill(entry)
        return self.document()

    def _localizations(self, entry: JsonValue) -> dict[str, JsonValue]:
        found = entry.get("localizations")
        return {} if found is None else found.members

    def _fill(self, entry: JsonValue) -> None:
        localizations = self._localizations(entry)
        source = next((localizations[code] for code in self.sources if code in localizations), None)
        if source is None or not source.members:
            source = self._key_as_source(entry)
        target = localizations.get(self.target)
        if source is None or (self.is_into_main and target is None):
            return
        if target is not None and target.members and not self._is_replaced(target, source):
            self._fill_leaves(target, source)
            return
        texts = {id(one): self._parsed(one) for one in self._texts(source)}
        if not any(one.units for one in texts.values()):
            return
        if target is not None:
            self.put(target.start, target.end, self._node(source, 4, texts))
        elif (found := entry.get("localizations")) is not None:
            self._insert(found, self.target, 3, self._node(source, 4, texts))
        else:
            added = self._object([(self.target, self._node(source, 4, texts))], 3)
            self._insert(entry, "localizations", 2, added)

    def _key_as_source(self, entry: JsonValue) -> JsonValue | None:
        """The key as the text of the main language, as the catalogue would have it."""
        match = _STRING.match(self.text, entry.key_start)
        if not self.has_keys or match is None or _IDENTIFIER.fullmatch(match[0][1:-1]):
            return None
        value = JsonValue(*match.span())
        return JsonValue(0, members={"stringUnit": JsonValue(0, members={"value": value})})

    # ---- What there is

    def _raw(self, value: JsonValue | None) -> str | None:
        return None if value is None else self.text[value.start : value.end]

    def _string(self, value: JsonValue | None) -> str | None:
        raw = self._raw(value)
        return json.loads(raw) if raw is not None and raw[0] == '"' else None

    def _texts(self, node: JsonValue) -> Iterator[JsonValue]:
        """All strings of a localization that are texts."""
        for name, child in node.members.items():
            if name in _LEAVES:
                values = child.get(_LEAVES[name])
                found = [] if values is None else values.items if name == "stringSet" else [values]
                yield from (one for one in found if self.text[one.start] == '"')
            else:
                yield from self._texts(child)

    def _is_open(self, leaf: JsonValue) -> bool:
        """Whether there is no translation yet. Of an empty one, the state may say that it is to be so."""
        state, value = self._string(leaf.get("state")), leaf.get("value") or leaf.get("values")
        is_empty = value is None or (not value.items and not self._string(value))
        return state == _NEW or (is_empty and state != _DONE)

    def _is_replaced(self, target: JsonValue, source: JsonValue) -> bool:
        """Whether a localization is to be written anew: one without a translation that is no single text in both."""
        are_single = target.members.keys() == source.members.keys() == {"stringUnit"}
        is_leaf = target.members.keys() <= _LEAVES.keys()
        return is_leaf and not are_single and all(map(self._is_open, target.members.values()))

    def _parsed(self, value: JsonValue) -> Document:
        raw = self.text[value.start + 1 : value.end - 1]
        return parse_message(Value.of(raw, JSON_ESCAPE, json_meaning), _KINDS, self.escape)

    # ---- What is missing in a translation

    def _fill_leaves(self, target: JsonValue, source: JsonValue) -> None:
        """Write the texts that a localization lacks, each from that of the source in its place."""
        for leaf, origin in self._open_leaves(target, source):
            value, state = leaf.get("value"), leaf.get("state")
            if value is None or self.text[value.start] != '"':
                continue
            document = self._parsed(origin)
            if not document.units:
                continue
            marked = () if state is None else ((state.start, state.end, (_STATE,)),)
            edits = [*marked, (value.start, value.end, ('"', *self.adopt(document), '"'))]
            for start, end, parts in sorted(edits, key=lambda edit: edit[0]):
                self.put(start, end, parts)

    def _open_leaves(self, target: JsonValue, source: JsonValue | None) -> Iterator[tuple[JsonValue, JsonValue]]:
        """The texts without a translation, each with its source."""
        for name, child in target.members.items():
            if name == "stringUnit":
                origin = None if source is None else self._nearest(source).get("stringUnit", "value")
                if origin is not None and self.text[origin.start] == '"' and self._is_open(child):
                    yield child, origin
            elif name == "variations":
                for kind, cases in child.members.items():
                    found = None if source is None else source.get("variations", kind)
                    for case, inner in cases.members.items():
                        yield from self._open_leaves(inner, source if found is None else self._case(found, kind, case))
            elif name == "substitutions":
                for variable, inner in child.members.items():
                    found = None if source is None else source.get("substitutions", variable)
                    yield from self._open_leaves(inner, found)

    def _nearest(self, node: JsonValue) -> JsonValue:
        """The node itself if it has a text, else its variation for all other cases."""
        while "stringUnit" not in node.members:
            found = next(
                (one for kind in ("device", "plural") if (one := node.get("variations", kind, OF_OTHERS))), None
            )
            if found is None:
                break
            node = found
        return node

    def _case(self, cases: JsonValue, kind: str, case: str) -> JsonValue | None:
        """The node of the source that one of the target's is translated from: the same, or that of other numbers."""
        own = cases.members.get(case)
        other = cases.members.get(OF_OTHERS) or next(reversed(cases.members.values()), None)
        if own is None or other is None or kind != "plural":
            return own or other
        return other if needs_number(case, self.target) and not self._same_variables(own, other) else own

    def _same_variables(self, one: JsonValue, other: JsonValue) -> bool:
        first, second = (self._string(self._nearest(node).get("stringUnit", "value")) or "" for node in (one, other))
        return same_placeholders(first, second, _KINDS)

    # ---- A new translation

    def _node(self, node: JsonValue, depth: int, texts: dict[int, Document]) -> Parts:
        """A localization as the source has it, with its texts translated and the plural forms of the target.

        Raises UnreadableError for variations within each other, each of which would double what is written.
        """
        if depth > _DEEPEST:
            raise self.error(max(node.start, 0), f"{self.shown(node.start)} is too deep within variations. Correct it")
        found: list[tuple[str, Parts]] = []
        for name, child in node.members.items():
            if name in _LEAVES:
                found.append((name, self._leaf(name, child, depth + 1, texts)))
            elif name in ("variations", "substitutions"):
                inner = [
                    (
                        key,
                        self._cases(one, key, depth + 2, texts)
                        if name == "variations"
                        else self._node(one, depth + 2, texts),
                    )
                    for key, one in child.members.items()
                ]
                found.append((name, self._object(inner, depth + 1)))
            else:
                found.append((name, (self._raw(child) or "",)))
        return self._object(found, depth)

    def _cases(self, cases: JsonValue, kind: str, depth: int, texts: dict[int, Document]) -> Parts:
        names = list(cases.members)
        if kind == "plural":
            names = categories_of(self.target, cases.members)
        found = [(name, one) for name in names if (one := self._case(cases, kind, name)) is not None]
        return self._object([(name, self._node(one, depth + 1, texts)) for name, one in found], depth)

    def _leaf(self, name: str, leaf: JsonValue, depth: int, texts: dict[int, Document]) -> Parts:
        value = leaf.get(_LEAVES[name])
        written: Parts = ('""',) if value is None else self._text(value, texts)
        if name == "stringSet":
            lines = [self._text(one, texts) for one in (value.items if value is not None else ())]
            written = self._enclosed("[]", lines, depth + 1)
        return self._object([("state", (_STATE,)), (_LEAVES[name], written)], depth)

    def _text(self, value: JsonValue, texts: dict[int, Document]) -> Parts:
        document = texts.get(id(value))
        return (self._raw(value) or "",) if document is None else ('"', *self.adopt(document), '"')

    # ---- Layout

    def _object(self, members: list[tuple[str, Parts]], depth: int) -> Parts:
        lines: list[Parts] = [(f"{self._quoted(name)}{self.layout.colon}", *parts) for name, parts in members]
        return self._enclosed("{}", lines, depth)

    def _enclosed(self, brackets: str, lines: list[Parts], depth: int) -> Parts:
        """An object or a list at a depth, each of its members on a line."""
        found: list[str | int] = [brackets[0]]
        for n, one in enumerate(lines):
            found += ["," if n else "", self.layout.line(depth + 1), *one]
        return (*found, self.layout.line(depth), brackets[1])

    def _quoted(self, name: str) -> str:
        return f'"{self.escape(name)}"'

    def _insert(self, into: JsonValue, key: str, depth: int, parts: Parts) -> None:
        """Add a member to an object, in the order of the alphabet that Xcode has."""
        written = (f"{self._quoted(key)}{self.layout.colon}", *parts)
        members = into.members
        following = next((one for name, one in members.items() if name.casefold() > key.casefold()), None)
        if not members:
            self.put(into.start, into.end, self._enclosed("{}", [written], depth))
        elif following is not None:
            space = self._space_before(following.key_start)
            self.put(following.key_start, following.key_start, (*written, ",", space))
        else:
            last = max(members.values(), key=lambda one: one.end)
            self.put(last.end, last.end, (",", self._space_before(last.key_start), *written))

    def _space_before(self, place: int) -> str:
        before = self.text[max(0, place - _LONGEST_SPACE) : place]
        return before[len(before.rstrip()) :]
