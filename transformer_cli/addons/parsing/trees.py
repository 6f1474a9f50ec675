"""Constituency trees: bracketed text, the linear form that a translator writes, and back.

The linear form is that of Vinyals et al. 2015 (Grammar as a Foreign Language, section 2.2), which Vaswani et al. 2017,
section 6.3, use: an opening and a closing symbol for each constituent, `(NP` and `)NP`, and `XX` for each word. A
mark of punctuation is written as its tag, which tells it from words: F1 leaves such marks out.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

WORD = "XX"
# Tags of the Penn Treebank that EVALB leaves out (its parameter file COLLINS.prm).
PUNCTUATION = (",", ":", "``", "''", ".")
_TRACE = "-NONE-"
_TOP = ("", "TOP", "ROOT", "S1")
_TOKEN = re.compile(r"[()]|[^\s()]+")
_ESCAPED = {"-LRB-": "(", "-RRB-": ")", "-LSB-": "[", "-RSB-": "]", "-LCB-": "{", "-RCB-": "}"}
MOST_NESTED = 500  # constituents one within another; Python could not walk through many more


@dataclass(frozen=True)
class TaggedWord:
    """A word with its tag, that of a part of speech."""

    tag: str
    text: str


@dataclass(frozen=True)
class Constituent:
    label: str
    parts: "tuple[Constituent | TaggedWord, ...]"

    def words(self) -> "Iterator[TaggedWord]":
        for part in self.parts:
            if isinstance(part, TaggedWord):
                yield part
            else:
                yield from part.words()

    def __str__(self) -> str:
        """Bracketed text on one line."""
        return f"({' '.join([self.label, *map(_bracketed, self.parts)])})"


def _bracketed(part: Constituent | TaggedWord) -> str:
    if isinstance(part, Constituent):
        return str(part)
    text = next((escaped for escaped, sign in _ESCAPED.items() if sign == part.text), part.text)
    return f"({part.tag} {text})"


def read_tree(text: str) -> Constituent:
    """The tree that `text` holds in brackets, as the Penn Treebank writes it, with its words as they are in a sentence.

    Function tags (NP-SBJ), traces and brackets around the whole without a label are left out, as parsers are trained
    and scored without them. Raises ValueError for what is no tree.
    """
    open_labels, open_parts = list[str](), list[list[Constituent | TaggedWord | str]]()
    tokens = _TOKEN.findall(text)
    found: Constituent | TaggedWord | None = None
    position = 0
    while position < len(tokens):
        token = tokens[position]
        position += 1
        if found is not None:
            raise ValueError("goes on behind its last bracket")
        if token == "(":
            has_label = position < len(tokens) and tokens[position] not in "()"
            open_labels.append(tokens[position] if has_label else "")
            open_parts.append([])
            position += has_label
            if len(open_labels) > MOST_NESTED:
                raise ValueError(f"more than {MOST_NESTED} constituents one within another")
        elif not open_labels:
            raise ValueError("does not begin with a bracket")
        elif token != ")":
            if open_parts[-1] or not open_labels[-1]:
                raise ValueError(f"{token!r} stands without a tag")
            open_parts[-1].append(_ESCAPED.get(token, token.replace("\\/", "/")))
        else:
            made = _made(open_labels.pop(), open_parts.pop())
            if open_labels:
                open_parts[-1] += [made] if made is not None else []
            else:
                found = made
                if made is None:
                    raise ValueError("has no words")
    if open_labels:
        raise ValueError(f"{len(open_labels)} brackets are not closed" if len(open_labels) > 1 else "not closed")
    if found is None:
        raise ValueError("no tree")
    return found if isinstance(found, Constituent) else Constituent("X", (found,))


def _made(label: str, parts: list[Constituent | TaggedWord | str]) -> Constituent | TaggedWord | None:
    """What brackets hold; None for a trace, and for what holds nothing else. Raises ValueError."""
    inner = [part for part in parts if not isinstance(part, str)]
    if len(inner) < len(parts):
        (text,) = (part for part in parts if isinstance(part, str))
        if inner:
            raise ValueError(f"{text!r} stands without a tag")
        return None if label == _TRACE else TaggedWord(label, text)
    if not inner:
        return None
    if label in _TOP and len(inner) == 1:
        return inner[0]
    return Constituent(_without_function(label) or "S", tuple(inner))


def _without_function(label: str) -> str:
    """NP-SBJ-1 and NP=2 → NP; -LRB- stays."""
    return label if label.startswith("-") else re.split(r"[-=|]", label, maxsplit=1)[0]


# ---- The linear form


def linearize(tree: Constituent) -> str:
    return " ".join(_symbols(tree))


def _symbols(tree: Constituent) -> Iterator[str]:
    yield f"({tree.label}"
    for part in tree.parts:
        if isinstance(part, Constituent):
            yield from _symbols(part)
        else:
            yield part.tag if part.tag in PUNCTUATION else WORD
    yield f"){tree.label}"


def read_linear(text: str, words: "list[str] | None" = None) -> tuple[Constituent, bool]:
    """The tree of a linear form, and whether the form had to be repaired.

    A model may write what is no tree. A closing symbol closes the nearest open constituent of its label and those
    within; one without such a constituent is left out; what is open at the end is closed there. With `words`, the tree
    has exactly these: words without a symbol are added to the whole, symbols without a word are left out.
    """
    stack: list[tuple[str, list[Constituent | TaggedWord]]] = [("", [])]
    is_repaired = False
    texts = list(words) if words is not None else None
    for symbol in text.split():
        if symbol.startswith("(") and len(symbol) > 1:
            if len(stack) <= MOST_NESTED:
                stack.append((symbol[1:], []))
        elif symbol.startswith(")") and len(symbol) > 1:
            depth = next((i for i in range(len(stack) - 1, 0, -1) if stack[i][0] == symbol[1:]), None)
            is_repaired |= depth != len(stack) - 1
            while depth is not None and len(stack) > depth:
                _close(stack)
        elif texts is None or texts:
            tag = symbol if symbol in PUNCTUATION else WORD
            stack[-1][1].append(TaggedWord(tag, texts.pop(0) if texts is not None else symbol))
        else:
            is_repaired = True
    is_repaired |= len(stack) > 1
    while len(stack) > 1:
        _close(stack)
    parts = stack[0][1]
    rest = [TaggedWord(WORD, one) for one in texts or []]
    is_repaired |= bool(rest) or len(parts) != 1 or isinstance(parts[0], TaggedWord)
    if len(parts) == 1 and isinstance(parts[0], Constituent):
        top = parts[0]
        return Constituent(top.label, (*top.parts, *rest)), is_repaired
    return Constituent("S", (*parts, *rest)), is_repaired


def _close(stack: list[tuple[str, list[Constituent | TaggedWord]]]) -> None:
    """Put the last open constituent into the one around it; one without a word is left out."""
    label, parts = stack.pop()
    if parts:
        stack[-1][1].append(Constituent(label, tuple(parts)))
