"""Texts with tags, and how Bergamot and LibreTranslate place tags: what bench_alignment.py compares with tfm.

Bergamot (Firefox): src/translator/html.cpp of browsermt/bergamot-translator. LibreTranslate: argostranslate/tags.py.
Both are written here anew, from the description in the functions below, for texts of one sentence.

Shapes: S source and T target pieces, without EOS.
"""

import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt

Tag = tuple[str, int]  # its name, and its number among those of the name
Weights = npt.NDArray[np.float64]
TAG = re.compile(r"<(/?)(\w+)>")
ALONE = "img"
WORD_ENDS = "\n ,.(){}[]"  # between the words of Bergamot
EDGES = re.compile(r"(\s*)(.*?)(\s*)", re.DOTALL)


@dataclass
class Placed:
    """The letters before each tag and, of a pair, before its end; `text` is without tags."""

    text: str
    spans: dict[Tag, tuple[int, int]] = field(default_factory=dict)


def tags_of(marked: str) -> Placed:
    found = Placed(TAG.sub("", marked))
    text, position, opened, counts = "", 0, dict[str, list[tuple[int, int]]](), Counter[str]()
    for match in TAG.finditer(marked):
        text += marked[position : match.start()]
        position, n, name = match.end(), n_letters(text), match[2]
        if name == ALONE:
            found.spans[name, counts[name]] = n, n
        elif match[1]:
            number, start = opened[name].pop()
            found.spans[name, number] = start, n
            continue
        else:
            opened.setdefault(name, []).append((counts[name], n))
        counts[name] += 1
    return found


def n_letters(text: str) -> int:
    return sum(map(str.isalnum, text))


def spaced(text: str) -> str:
    return " ".join(text.split())


# ---- Bergamot


@dataclass(frozen=True)
class Stretch:
    """Source text between two tags, or none around a tag that is alone, and the tags around it, the outermost first."""

    start: int
    end: int
    tags: tuple[Tag, ...] = ()


@dataclass(frozen=True)
class SoftAlignment:
    """The attention of each target piece to the source pieces; a piece has the white space before it."""

    source: list[str]
    target: list[str]
    weights_TS: Weights


def stretches_of(marked: str) -> tuple[str, list[Stretch]]:
    """The source and its stretches. As in Bergamot, it has a space in place of a tag between two words."""
    text, found, stack, counts = "", [Stretch(0, 0)], list[Tag](), Counter[str]()
    parts = TAG.split(marked)
    for i, part in enumerate(parts[::3]):
        if part:
            text += " " if i and text and not text[-1].isspace() and not part[0].isspace() else ""
            found.append(Stretch(len(text), len(text) + len(part), tuple(stack)))
            text += part
        closes, name = parts[3 * i + 1 : 3 * i + 3] or ("", "")
        if closes:
            stack.pop()
        elif name:
            stack.append((name, counts[name]))
            counts[name] += 1
            if name == ALONE:
                found.append(Stretch(len(text), len(text), tuple(stack)))
                stack.pop()
    return text, [*found, Stretch(len(text), len(text))]


def hard_links(target: Sequence[str], weights_TS: Weights) -> list[int]:
    """The source piece of each target piece: that of the largest weight of all pieces of its word."""
    links: list[int] = weights_TS.argmax(axis=1).tolist()
    first = 0  # of the word
    for t in range(1, len(links)):
        if target[t][0] in WORD_ENDS or target[t - 1][-1] in WORD_ENDS:
            first = t
        elif weights_TS[t, links[t]] >= weights_TS[t - 1, links[t - 1]]:
            links[first : t + 1] = [links[t]] * (t + 1 - first)
        else:
            links[t] = links[t - 1]
    return links


def placed_by_bergamot(stretches: Sequence[Stretch], alignment: SoftAlignment) -> str:
    """The translation with tags: each target piece has the tags of the source piece that it is linked to.

    A piece in several stretches has the tags of the last one. A tag that is alone goes before the first target piece
    whose source piece is behind it. The tags of a piece without letters are left out, which cost no tag.
    """
    starts = [one.start for one in stretches]
    ends = np.cumsum([len(piece) for piece in alignment.source])
    of_source = [bisect_left(starts, end) - 1 for end in ends]
    letters, alone, n, seen = defaultdict[Tag, list[int]](list), list[tuple[int, Tag]](), 0, 0
    for piece, link in zip(alignment.target, hard_links(alignment.target, alignment.weights_TS), strict=True):
        here = of_source[link]
        alone += [(n, one.tags[-1]) for one in stretches[seen:here] if one.tags and one.tags[-1][0] == ALONE]
        seen = max(seen, here)
        for tag in stretches[here].tags:
            letters[tag] += range(n, n + n_letters(piece))
        n += n_letters(piece)
    alone += [(n, one.tags[-1]) for one in stretches[seen:] if one.tags and one.tags[-1][0] == ALONE]
    return marked("".join(alignment.target).strip(), letters, alone)


def marked(text: str, letters: dict[Tag, list[int]], alone: Sequence[tuple[int, Tag]]) -> str:
    """A text with tags around letters, which are several where there are other letters in between."""
    before, behind = defaultdict[int, str](str), defaultdict[int, str](str)
    for (name, _), covered in letters.items():
        for one in covered:
            before[one] += f"<{name}>" if one - 1 not in covered else ""
            behind[one] = f"</{name}>" + behind[one] if one + 1 not in covered else behind[one]
    for one, (name, _) in alone:
        before[one] = f"<{name}>" + before[one]
    found, n = "", 0
    for sign in text:
        found += before.pop(n, "") + sign + behind[n] if sign.isalnum() else sign
        n += sign.isalnum()
    return found + before[n]


# ---- LibreTranslate


@dataclass
class Element:
    """A pair of tags with its content; `name` is empty of a whole text."""

    name: str
    children: list["Element | str"] = field(default_factory=list)

    @property
    def elements(self) -> list["Element"]:
        return [one for one in self.children if not isinstance(one, str)]

    @property
    def text(self) -> str:
        return "".join(one if isinstance(one, str) else one.text for one in self.children)

    def around(self, inner: str) -> str:
        """The element with another content."""
        if not self.name:
            return inner
        return f"<{self.name}>" if self.name == ALONE else f"<{self.name}>{inner}</{self.name}>"


def tree_of(marked: str) -> Element:
    parts = TAG.split(marked)
    stack = [Element("")]
    for i, part in enumerate(parts[::3]):
        if part:
            stack[-1].children.append(part)
        closes, name = parts[3 * i + 1 : 3 * i + 3] or ("", "")
        if closes:
            stack.pop()
        elif name:
            element = Element(name)
            stack[-1].children.append(element)
            stack += [element] if name != ALONE else []
    return stack[0]


def fragments(tree: Element) -> set[str]:
    """Every text that may be translated by itself, without the white space around it."""
    strings = {one.strip() for one in tree.children if isinstance(one, str)}
    return {tree.text.strip()}.union(strings, *map(fragments, tree.elements)) - {""}


def tag_by_tag(tree: Element, translations: Mapping[str, str]) -> str:
    """Each text between tags is translated by itself, with the white space that was around it."""
    each = (
        _kept(one, translations) if isinstance(one, str) else tag_by_tag(one, translations) for one in tree.children
    )
    return tree.around("".join(each))


def placed_by_search(tree: Element, translations: Mapping[str, str]) -> str:
    """The whole text, where its translation has those of the tags' own texts, and else tag by tag: LibreTranslate.

    The whole is that of the innermost tag that has others in it, or of the text. The translations of its tags may not
    touch. A text with a tag that is alone is translated tag by tag.
    """
    if any(one.elements for one in tree.elements):
        each = (
            _kept(one, translations) if isinstance(one, str) else placed_by_search(one, translations)
            for one in tree.children
        )
        return tree.around("".join(each))
    whole, found = _kept(tree.text, translations), list[tuple[int, str, Element]]()
    for one in tree.elements:
        own = _kept(one.text, translations)
        found.append((whole.find(own) if own else -1, own, one))
    found.sort(key=lambda one: one[0])
    is_touching = any(start + len(own) >= behind for (start, own, _), (behind, _, _) in pairwise(found))
    if not found or is_touching or found[0][0] < 0:
        return tag_by_tag(tree, translations)
    inner, position = "", 0
    for start, own, one in found:
        inner += whole[position:start] + one.around(own)
        position = start + len(own)
    return tree.around(inner + whole[position:])


def _kept(text: str, translations: Mapping[str, str]) -> str:
    """The translation of a text, with its white space."""
    edges = EDGES.fullmatch(text)
    assert edges
    return edges[1] + (translations[edges[2]] if edges[2] else "") + edges[3]
