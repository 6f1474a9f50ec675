"""The elements of an XML document: which are within text, which are code or style, and where white space counts.

No schema is known; names mean something by their namespace, or by that which a document type or its root stands for.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from transformer_cli.addons.documents.html import CODE, OPAQUE, RUBY
from transformer_cli.addons.documents.tags import Kind, Token

_XHTML = "http://www.w3.org/1999/xhtml"
_SVG = "http://www.w3.org/2000/svg"
_MATHML = "http://www.w3.org/1998/Math/MathML"
_DOCBOOK = "http://docbook.org/ns/docbook"
ANDROID = "android"  # string resources, which have no namespace
_DOCBOOK_WORDS = (
    "classname code command computeroutput constant email envar exceptionname filename function interfacename"
    " literal markup methodname option parameter prompt returnvalue sgmltag structfield structname systemitem tag"
    " type uri userinput varname"
)
# Elements whose text is no language; with those that are words of the sentence around them.
_KEPT = {
    _XHTML: OPAQUE | RUBY,
    _SVG: {"script", "style", "metadata"},
    _MATHML: {"math"},
    _DOCBOOK: {"programlisting", "screen", "synopsis", "cmdsynopsis", "funcsynopsis", "classsynopsis"},
}
_WORDS = {
    _XHTML: CODE,
    _DOCBOOK: frozenset(_DOCBOOK_WORDS.split()),
    "urn:oasis:names:tc:xliff:document:1.2": {"g"},  # what a string resource says is no text
}
_BY_ROOT = {"html": _XHTML, "svg": _SVG, "math": _MATHML, "resources": ANDROID}
_ONLY_DOCBOOK = {"programlisting", "itemizedlist", "orderedlist", "variablelist"}  # of earlier versions, without one
_OFF = re.compile(r"\s(?:(?:its:)?translate\s*+=\s*+[\"']no|translatable\s*+=\s*+[\"'](?:false|no))[\"']")
_SPACE = re.compile(r"\sxml:space\s*+=\s*+[\"'](preserve|default)[\"']")
_XMLNS = re.compile(r"\sxmlns(?::([^\s=]++))?\s*+=\s*+(?:\"([^\"]*+)\"|'([^']*+)')")


@dataclass(frozen=True)
class _Scope:
    """What an element hands down to those within it."""

    namespaces: Mapping[str, str] = field(default_factory=dict)  # by prefix
    preserves: bool = False  # white space, as `xml:space` says


class Elements:
    """The elements whose tags are among `found`."""

    def __init__(
        self, text: str, found: Sequence[Token], watched: Callable[[Sequence[Token]], Iterable[Token]]
    ) -> None:
        self.text, self.found = text, found
        self.closing: dict[int, int] = {}  # of an opening tag: its closing tag
        self.is_inline: list[bool] = []  # of each token: whether it is within text
        self.root = next((one.name for one in found if one.kind in (Kind.opening, Kind.empty)), "")
        self.kind = _kind(text, found)  # the namespace of names without one
        self._parents: list[int] = []  # of each token: its element's opening tag, -1 at the top
        self._scopes = {-1: _Scope()}
        self._find(watched(found))

    def preserves_space(self, i: int) -> bool:
        """Whether the white space of a text counts."""
        return self._scopes[self._parents[i]].preserves

    def is_kept(self, i: int) -> bool:
        """Whether an opening tag is that of an element that is not translated."""
        token = self.found[i]
        if i not in self.closing:
            return False
        if _OFF.search(self.text, token.start, token.end):
            return True
        namespace, name = self._name(i)
        return name in _KEPT.get(namespace, ()) or name in _WORDS.get(namespace, ())

    def is_word(self, i: int) -> bool:
        """Whether the text of an element that is not translated is a part of the sentence around it."""
        namespace, name = self._name(i)
        return name in _WORDS.get(namespace, ())

    def _name(self, i: int) -> tuple[str, str]:
        """The namespace and local name of an opening tag."""
        prefix, _, name = self.found[i].name.rpartition(":")
        return self._scopes[i].namespaces.get(prefix, "" if prefix else self.kind), name

    def _find(self, found: Iterable[Token]) -> None:
        has_text: set[int] = set()
        stack: list[int] = []
        for i, token in enumerate(found):
            if token.kind is Kind.closing and stack and self.found[stack[-1]].name == token.name:
                self.closing[stack.pop()] = i
            parent = stack[-1] if stack else -1
            self._parents.append(parent)
            if token.kind is Kind.opening:
                stack.append(i)
                self._scopes[i] = self._scope(token, self._scopes[parent])
            elif token.kind is Kind.text and self.text[token.start : token.end].strip():
                has_text.add(parent)
        for parent in self._parents:
            self.is_inline.append(parent in has_text or (parent >= 0 and self.is_inline[parent]))

    def _scope(self, token: Token, outer: _Scope) -> _Scope:
        span = token.start, token.end
        declared = {match[1] or "": match[2] or match[3] or "" for match in _XMLNS.finditer(self.text, *span)}
        space = _SPACE.search(self.text, *span)
        if not declared and space is None:
            return outer
        preserves = outer.preserves if space is None else space[1] == "preserve"
        return _Scope({**outer.namespaces, **declared}, preserves)


def _kind(text: str, found: Sequence[Token]) -> str:
    for token in found:
        if token.kind is Kind.declaration and "docbook" in text[token.start : token.end].lower():
            return _DOCBOOK
        if token.kind is Kind.opening:
            is_docbook = any(one.name in _ONLY_DOCBOOK for one in found)
            return _BY_ROOT.get(token.name, _DOCBOOK if is_docbook else "")
    return ""
