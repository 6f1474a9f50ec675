"""Places the tags of a unit in its translation, by word alignment.

The words of both texts are cut into tokens: leading punctuation, core, trailing punctuation, and where a tag stands
within a word. Each token of the translation belongs to the element (the pair of tags) that its source token is in. An
element then covers the stretch of tokens that holds most of its own and fewest others, within the stretch of its
parent and apart from other elements. So pairs are nested as in the source, and every tag occurs once, whatever the
alignment.
"""

import re
import unicodedata
from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, groupby

from transformer_cli.addons.documents.joint_spaces import joint_boundaries
from transformer_cli.addons.documents.units import Unit
from transformer_cli.data.normalization import normalize
from transformer_cli.decoding.terminology import Span

MAX_DEPTH, MAX_TAGS = 100, 10_000  # of a unit: more is not text that anyone writes
_OTHER_COST = 0.5  # of a token of something else within an element's stretch, where one of its own counts 1
_MOST_BEFORE, _MOST_AFTER = 2, 1  # words without a link that have words of the one beside them: in the, of
_NEAR = 8  # tokens around its place in which an element without tokens of its own looks for one
# Scripts that are written without spaces: each character is a word.
_NO_SPACES = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)
_ELIDED = re.compile(r"[^\w\s]*[^\W\d_]{1,2}['’](?=[^\W\d_]{3})")  # as of l'eau, but not of I've
_WORD = re.compile(rf"{_NO_SPACES.pattern}|(?:(?!{_NO_SPACES.pattern})\S)+")


@dataclass(frozen=True, slots=True)
class Aligned:
    """A source text, its translation, and which words correspond; words are spans of characters."""

    source: str
    target: str
    source_words: Sequence[Span]
    target_words: Sequence[Span]
    links: Sequence[tuple[int, int]]  # indices of words
    copies: Sequence[tuple[Span, Span]] = ()  # placeholders, and where they are in the translation
    is_guessed: bool = False  # by position, as there is no alignment


def _word_spans(text: str) -> list[Span]:
    """The words that the model reads: not those of format characters alone."""
    return [match.span() for match in re.finditer(r"\S+", text) if normalize(match[0])]


def align(source: str, target: str, alignment: Sequence[tuple[int, int]] | None) -> Aligned:
    """Aligns `target` with `source` by `alignment` of words between white space, or by position without one."""
    if alignment is not None and not _NO_SPACES.search(source) and not _NO_SPACES.search(target):
        return Aligned(source, target, _word_spans(source), _word_spans(target), alignment)
    source_words = [match.span() for match in _WORD.finditer(source)]
    target_words = [match.span() for match in _WORD.finditer(target)]
    n_source, n_target = len(source_words), len(target_words)
    links = [((2 * j + 1) * n_source // (2 * n_target), j) for j in range(n_target)] if n_source else []
    return Aligned(source, target, source_words, target_words, links, is_guessed=True)


# ---- Elements


@dataclass
class _Element:
    """A pair of tags around text. The root is the unit."""

    opening: int  # index of the tag; -1 of the root
    closing: int
    start: int  # in the source
    end: int
    depth: int
    children: "list[_Element]" = field(default_factory=list)
    atoms: "list[_Atom]" = field(default_factory=list)
    number: int = 0  # in the order of their openings
    last_number: int = 0  # of the elements within
    is_whole: bool = False  # its parent has no text outside it
    spans: bool = False  # a tag in it continues into another unit


@dataclass
class _Atom:
    """Tags without text between them."""

    tags: range
    offset: int
    spans: bool  # one continues into another unit


class TooManyTagsError(ValueError):
    """More tags, or more within each other, than a text has."""


def _elements(unit: Unit) -> list[_Element]:
    """The root, and all elements in the order of their openings. Raises TooManyTagsError."""
    text, tags = unit.text, unit.tags
    if len(tags) > MAX_TAGS:
        raise TooManyTagsError
    root = _Element(-1, -1, 0, len(text), 0)
    found, stack = [root], [root]
    i = 0
    while i < len(tags):
        tag = tags[i]
        if tag.partner is not None and tag.partner < i:
            element = stack.pop()
            element.last_number = len(found) - 1
        elif tag.partner is not None and text[tag.offset : tags[tag.partner].offset].strip():
            element = _Element(i, tag.partner, tag.offset, tags[tag.partner].offset, len(stack), number=len(found))
            if len(stack) > MAX_DEPTH:
                raise TooManyTagsError
            stack[-1].children.append(element)
            stack.append(element)
            found.append(element)
        else:
            end = i if tag.partner is None else tag.partner
            atom = _Atom(range(i, end + 1), tag.offset, any(one.spans for one in tags[i : end + 1]))
            stack[-1].atoms.append(atom)
            for element in stack if atom.spans else ():
                element.spans = True
            i = end
        i += 1
    root.last_number = len(found) - 1
    for parent in found:
        if len(parent.children) == 1:
            (child,) = parent.children
            outside = text[parent.start : child.start] + text[child.end : parent.end]
            child.is_whole = not outside.strip()
    return found


# ---- Tokens


@dataclass
class _Token:
    """A piece of the translation without white space."""

    start: int
    end: int
    element: int | None  # number of the innermost element of its source
    source: int | None = None  # character of the source that it comes from
    last_source: int | None = None  # character that a placeholder ends with, which may have several words


class _Tokens:
    """The tokens of a translation, and the places of source characters among them."""

    def __init__(self, unit: Unit, aligned: Aligned, elements: Sequence[_Element]) -> None:
        self.aligned = aligned
        self.cuts = sorted({tag.offset for tag in unit.tags})
        self.starts, self.numbers = _innermost(elements)
        self.tokens = self._cut_at_copies(self._words())
        order = sorted((token.source, i) for i, token in enumerate(self.tokens) if token.source is not None)
        self.sources = [source for source, _ in order]
        self.places = [place for _, place in order]
        self.word_starts = [start for start, _ in aligned.source_words]

    def element_at(self, offset: int) -> int:
        return self.numbers[bisect_right(self.starts, offset) - 1]

    def after(self, offset: int) -> int | None:
        """The boundary after the tokens of the nearest source before `offset`; None if none is aligned."""
        at = bisect_left(self.sources, offset)
        if at == 0:
            return None
        nearest, boundary = self.sources[at - 1], 0
        while at and self.sources[at - 1] == nearest:
            at -= 1
            boundary = max(boundary, self.places[at] + 1)
        return boundary

    def before(self, offset: int) -> int | None:
        """The boundary before the tokens of the nearest source from `offset` on; None if none is aligned."""
        at = bisect_left(self.sources, offset)
        return None if at == len(self.sources) else self.places[at]

    def is_next_as_near(self, offset: int) -> bool:
        """Whether the nearest aligned word from the start of a word on is as few words away as the one before that."""
        at = bisect_left(self.sources, offset)
        if at in (0, len(self.sources)):
            return at == 0
        before, after = (bisect_right(self.word_starts, source) - 1 for source in self.sources[at - 1 : at + 1])
        own = bisect_left(self.word_starts, offset)
        return after - own <= own - 1 - before

    def of_words(self) -> list[tuple[int | None, int | None]]:
        """The source of the word that each token ends, and of the word that it begins."""
        ending: list[int | None] = []
        beginning: list[int | None] = []
        for found, step in ((ending, 1), (beginning, -1)):
            previous: _Token | None = None
            for token in self.tokens[::step]:
                is_near = previous is not None and token.start <= previous.end and previous.start <= token.end
                own = token.last_source if step == 1 and token.last_source is not None else token.source
                found.append(found[-1] if own is None and is_near else own)
                previous = token
        return list(zip(ending, beginning[::-1], strict=True))

    def _words(self) -> list[_Token]:
        source_of, elided = _sources(self.aligned)
        found: list[_Token] = []
        for j, (start, end) in enumerate(self.aligned.target_words):
            i = source_of.get(j)
            if i is None:
                found.append(_Token(start, end, None))
                continue
            if j in elided:
                middle = start + _elision(self.aligned.target, (start, end))
                found += self._core(*self.aligned.source_words[elided[j]], start, middle)
                start = middle
            found += self._of_word(self.aligned.source_words[i], (start, end))
        return found

    def _of_word(self, source: Span, target: Span) -> list[_Token]:
        """Leading punctuation, core and trailing punctuation of a word, cut as its source word is cut by tags."""
        s0, s1, s2, s3 = word_edges(self.aligned.source, source)
        t0, t1, t2, t3 = word_edges(self.aligned.target, target)
        if t1 == t2 and s1 != s2:  # punctuation that stands alone, as before a French question mark
            return self._edge(s2, s3, t0, t3)
        if s1 == s2:
            if t1 == t2:
                return self._core(s0, s3, t0, t3)
            s1, s2 = s0, s3
            t1, t2 = (t0, t3) if t1 == t2 else (t1, t2)
        return [*self._edge(s0, s1, t0, t1), *self._core(s1, s2, t1, t2), *self._edge(s2, s3, t2, t3)]

    def _edge(self, s0: int, s1: int, t0: int, t1: int) -> list[_Token]:
        if t0 == t1:
            return []
        if s0 == s1:
            return [_Token(t0, t1, None)]
        if self.aligned.source[s0:s1].endswith(self.aligned.target[t0:t1]):
            return self._core(s1 - (t1 - t0), s1, t0, t1)
        return [_Token(t0, t1, self.element_at(s0), s0)]

    def _core(self, s0: int, s1: int, t0: int, t1: int) -> list[_Token]:
        if t0 == t1:
            return []
        inside = self.cuts[bisect_right(self.cuts, s0) : bisect_left(self.cuts, s1)]
        if not inside:
            return [_Token(t0, t1, self.element_at(s0), s0)]
        sources = [s0, *inside, s1]
        word, translation = self.aligned.source[s0:s1], self.aligned.target[t0:t1]
        # In their order: of letters that the word repeats, both ends may be found in the same place.
        targets = list(accumulate((_same_place(source - s0, word, translation) for source in sources), max))
        pieces = zip(sources[:-1], targets[:-1], targets[1:], strict=True)
        return [
            _Token(t0 + start, t0 + end, self.element_at(source), source)
            for source, start, end in pieces
            if start < end
        ]

    def _pieces(self, source: Span, target: Span) -> list[tuple[Span, int, int]]:
        """The pieces of a placeholder with tags in it, in the translation, and the first and last character of each."""
        inside = self.cuts[bisect_right(self.cuts, source[0]) : bisect_left(self.cuts, source[1])]
        if source[1] - source[0] != target[1] - target[0]:
            inside = []
        starts, shift = [source[0], *inside], target[0] - source[0]
        ends = [start + shift for start in starts[1:]] + [target[1]]
        lasts = [start - 1 for start in starts[1:]] + [source[1] - 1]
        return [((start + shift, end), start, last) for start, end, last in zip(starts, ends, lasts, strict=True)]

    def _cut_at_copies(self, tokens: list[_Token]) -> list[_Token]:
        """A placeholder is one token, in the element that it is in in the source, unless tags are in it."""
        copies = sorted(copy for source, target in self.aligned.copies for copy in self._pieces(source, target))
        if not copies:
            return tokens
        found: list[_Token] = []
        position = 0
        for (start, end), source, last in copies:
            while position < len(tokens) and tokens[position].start < end:
                token = tokens[position]
                if token.start < start:
                    found.append(_Token(token.start, min(token.end, start), token.element, token.source))
                if token.end > end:
                    tokens[position] = _Token(end, token.end, token.element, self._source_after(token, last))
                    break
                position += 1
            found.append(_Token(start, end, self.element_at(source), source, last))
        return [*found, *tokens[position:]]

    def _source_after(self, token: _Token, last: int) -> int | None:
        """The source of what follows a placeholder in a token: what follows it in the word there, too."""
        if token.source is None or token.source > last:
            return token.source
        return last if self.aligned.source[last + 1 : last + 2].strip() == "" else last + 1


def _innermost(elements: Sequence[_Element]) -> tuple[list[int], list[int]]:
    """Offsets at which the innermost element changes, and which it is from there on."""
    events = [(0, 0)]
    stack = [elements[0]]
    for element in elements[1:]:
        while element.start >= stack[-1].end and len(stack) > 1:
            closed = stack.pop()
            events.append((closed.end, stack[-1].number))
        events.append((element.start, element.number))
        stack.append(element)
    while len(stack) > 1:
        closed = stack.pop()
        events.append((closed.end, stack[-1].number))
    return [offset for offset, _ in events], [number for _, number in events]


def _same_place(offset: int, source: str, target: str) -> int:
    """The offset in a translated word: within the same letters, after or before them, or as far in it."""
    if offset in (0, len(source)):
        return len(target) if offset else 0
    if (at := target.find(source)) >= 0:
        return at + offset
    if target.startswith(source[:offset]):
        return offset
    if target.endswith(source[offset:]):
        return len(target) - len(source) + offset
    return len(target) * offset // len(source)


def word_edges(text: str, span: Span) -> tuple[int, int, int, int]:
    """Start, core, end of core, end of a word; the core of punctuation is empty, at its end."""
    start, end = span
    first, last = start, end
    while first < end and not (text[first].isalnum() or text[first] == "_"):
        first += 1
    while last > first and not (text[last - 1].isalnum() or text[last - 1] == "_"):
        last -= 1
    return start, first, last, end


def _sources(aligned: Aligned) -> tuple[dict[int, int], dict[int, int]]:
    """The source word of each word of the translation, and of what is elided before it, as the article of `l'eau`.

    A word that both texts have once is its own source. Of several source words that is the one with the fewest
    translations, and of these the longest. (A German verb at the end is often linked to the object before it, too.)
    """
    n_source, n_target = len(aligned.source_words), len(aligned.target_words)
    links: dict[int, list[int]] = {}
    for i, j in sorted(aligned.links):
        if 0 <= i < n_source and 0 <= j < n_target:
            links.setdefault(j, []).append(i)
    linked = Counter(i for of_word in links.values() for i in of_word)

    def rank(i: int) -> tuple[int, int]:
        return -linked[i], _core_length(aligned.source, aligned.source_words[i])

    found: dict[int, int] = {}
    elided: dict[int, int] = {}
    for j, of_word in links.items():
        is_elided = _elision(aligned.target, aligned.target_words[j]) and not aligned.is_guessed
        if is_elided and len(of_word) > 1:
            elided[j], *of_word = of_word
        found[j] = max(of_word, key=rank)
        if is_elided and j not in elided and found[j] - 1 not in linked and found[j]:
            elided[j] = found[j] - 1
    source, target = (
        _unique_cores(text, words)
        for text, words in ((aligned.source, aligned.source_words), (aligned.target, aligned.target_words))
    )
    found |= {target[core]: source[core] for core in target.keys() & source.keys()}
    if aligned.is_guessed:
        return found, elided
    return _without_surplus(found, {*linked, *found.values(), *elided.values()}, n_source), elided


def _elision(text: str, span: Span) -> int:
    """How many characters of a word are an elided word before it; English contractions are none."""
    match = _ELIDED.match(text, *span)
    return 0 if match is None else match.end() - span[0]


def _without_surplus(sources: Mapping[int, int], linked: set[int], n_source: int) -> dict[int, int]:
    """The same, where source words without a link have some words of the one beside them that has several.

    Attention is ahead of the text: it is at a noun where an article or a preposition is written that belongs to it, and
    what that translates has no link then.
    """
    found = dict(sources)
    for _, pairs in groupby(enumerate(sorted(sources)), key=lambda pair: (sources[pair[1]], pair[1] - pair[0])):
        run = [j for _, j in pairs]  # beside each other, and of one source
        source = sources[run[0]]
        n_before, n_after = (
            _n_without(linked, range(source - 1, -1, -1)),
            _n_without(linked, range(source + 1, n_source)),
        )
        n_before = min(n_before, len(run) - 1, _MOST_BEFORE)
        n_after = min(n_after, len(run) - 1 - n_before, _MOST_AFTER)
        found |= {run[k]: source - n_before + k for k in range(n_before)}
        found |= {run[len(run) - n_after + k]: source + 1 + k for k in range(n_after)}
    return found


def _n_without(linked: set[int], words: Sequence[int]) -> int:
    """How many of `words` have no link before one that has."""
    return next((n for n, word in enumerate(words) if word in linked), len(words))


def _core_length(text: str, span: Span) -> int:
    _, start, end, _ = word_edges(text, span)
    return end - start


def _unique_cores(text: str, words: Sequence[Span]) -> dict[str, int]:
    found: dict[str, int] = {}
    repeated = set()
    for i, span in enumerate(words):
        _, start, end, _ = word_edges(text, span)
        core = text[start:end]
        if core in found:
            repeated.add(core)
        found[core] = i
    # Short words in lower case can be words of both languages, as `an` is.
    return {core: i for core, i in found.items() if core not in repeated and (len(core) > 3 or core[:1].isdigit())}


# ---- Stretches


@dataclass
class _Placed:
    start: int  # boundaries among tokens
    end: int
    element: _Element

    @property
    def is_empty(self) -> bool:
        return self.start == self.end


_Mark = tuple[int, int]  # boundary among the tokens, index of a tag


@dataclass
class _Placement:
    """The places of the tags of a unit in its translation."""

    tokens: list[Span]
    marks: list[_Mark] = field(default_factory=list)  # in the order in which the tags are written
    n_empty: int = 0  # elements for whose text the translation has no word
    joints: frozenset[int] = frozenset()  # boundaries at which the document has no space


def place(unit: Unit, aligned: Aligned) -> _Placement:
    """Raises TooManyTagsError."""
    elements = _elements(unit)
    tokens = _Tokens(unit, aligned, elements)
    placement = _Placement([(token.start, token.end) for token in tokens.tokens])
    _place_within(_Placed(0, len(tokens.tokens), elements[0]), unit, tokens, placement)
    placement.joints = joint_boundaries(unit, tokens.of_words(), placement.marks)
    return placement


def _place_within(parent: _Placed, unit: Unit, tokens: _Tokens, placement: _Placement) -> None:
    """Add the tags of what `parent` holds."""
    placed = _place_children(parent, parent.element.children, tokens)
    divisions = _divisions(parent.element)
    limits = _limits(parent, placed, divisions)
    if any(lowest > highest for lowest, highest in limits.values()):
        placed = _place_divided(parent, divisions, tokens)
        limits = _limits(parent, placed, divisions)
    atoms = _place_atoms(parent, placed, limits, unit, tokens)
    # At one boundary: what ends there, what is empty, what begins there.
    order: list[tuple[int, int, int, _Placed | _Atom]] = []
    order += [(child.start, 1 if child.is_empty else 2, child.element.opening, child) for child in placed]
    order += [(boundary, 1, atom.tags.start, atom) for boundary, atom in atoms]
    order.sort(key=lambda item: item[:3])
    for boundary, _, _, one in order:
        if isinstance(one, _Atom):
            placement.marks += [(boundary, i) for i in one.tags]
            continue
        opening, closing = one.element.opening, one.element.closing
        is_dropped = one.is_empty and unit.tags[opening].needs_text
        placement.n_empty += one.is_empty
        if not is_dropped:
            placement.marks.append((one.start, opening))
        _place_within(one, unit, tokens, placement)
        if not is_dropped:
            placement.marks.append((one.end, closing))


def _divisions(element: _Element) -> dict[int, int]:
    """Divisions at tags that continue into another unit: what stands before one must not get behind what follows it.

    Else a link would be within one that follows it, or would end before it begins. Each is the index of the first tag
    after it, and its place in the source.
    """
    found = {atom.tags.start: atom.offset for atom in element.atoms if atom.spans}
    for child in element.children:
        if child.spans:
            found |= {child.opening: child.start, child.closing + 1: child.end}
    return dict(sorted(found.items()))


def _limits(parent: _Placed, placed: Sequence[_Placed], divisions: dict[int, int]) -> dict[int, Span]:
    """The lowest and the highest boundary at which each division can be; there is none if the lowest is above."""
    if not divisions:
        return {}
    ends = list(accumulate((one.end for one in placed), max, initial=parent.start))
    starts = list(accumulate((one.start for one in reversed(placed)), min, initial=parent.end))[::-1]
    openings = [one.element.opening for one in placed]
    return {tag: (ends[at], starts[at]) for tag in divisions for at in [bisect_left(openings, tag)]}


def _place_divided(parent: _Placed, divisions: dict[int, int], tokens: _Tokens) -> list[_Placed]:
    """The children between each two divisions within as large a part of the tokens as the source has there."""
    children = parent.element.children
    openings = [child.opening for child in children]
    sources = sorted(one.source for one in tokens.tokens[parent.start : parent.end] if one.source is not None)
    found: list[_Placed] = []
    start, first = parent.start, 0
    for tag, offset in divisions.items():
        share = bisect_left(sources, offset) / max(1, len(sources))
        end, last = parent.start + round(share * (parent.end - parent.start)), bisect_left(openings, tag)
        found += _place_children(_Placed(start, end, parent.element), children[first:last], tokens)
        start, first = end, last
    return found + _place_children(_Placed(start, parent.end, parent.element), children[first:], tokens)


def _place_children(parent: _Placed, children: Sequence[_Element], tokens: _Tokens) -> list[_Placed]:
    if len(children) == 1 and children[0].is_whole:
        return [_Placed(parent.start, parent.end, children[0])]
    own: list[list[int]] = [[] for _ in children]
    numbers = [child.number for child in children]
    for i in range(parent.start, parent.end) if children else ():
        element = tokens.tokens[i].element
        if element is not None:
            at = bisect_right(numbers, element) - 1
            if at >= 0 and element <= children[at].last_number:
                own[at].append(i)
    taken: list[Span] = []  # sorted
    placed: dict[int, _Placed] = {}
    # The smallest first: each gets something, and a large one has more to lose.
    for at in sorted((at for at in range(len(children)) if own[at]), key=lambda at: len(own[at])):
        best = _stretch(own[at], taken)
        if best is not None:
            insort(taken, best)
            placed[at] = _Placed(*best, children[at])
    claimed = {i for at in range(len(children)) if at not in placed for i in own[at]}
    for at in range(len(children)):
        if at not in placed:
            stretch = _free_stretch(parent, children[at], tokens, taken, claimed)
            if stretch[0] < stretch[1]:
                insort(taken, stretch)
            placed[at] = _Placed(*stretch, children[at])
    found = [placed[at] for at in range(len(children))]
    for child in found:
        _take_final_marks(parent, child, tokens)
    return found


def _take_final_marks(parent: _Placed, child: _Placed, tokens: _Tokens) -> None:
    """The full stop after another word than in the source, in an element that ends with the one of the source."""
    text = tokens.aligned.source[child.element.start : parent.element.end].rstrip()
    is_last = child.element.start + len(text) <= child.element.end
    if is_last and not text[-1:].isalnum() and not child.is_empty:
        rest = tokens.tokens[child.end : parent.end]
        if all(token.element is None and not _has_letters(tokens, token) for token in rest):
            child.end = parent.end


def _stretch(own: Sequence[int], taken: Sequence[Span]) -> Span | None:
    """The tokens from one of `own` to another that hold most of them and fewest others, apart from `taken`."""
    best: tuple[float, int, Span] | None = None
    score, start, previous = 0.0, -1, -1
    for i in own:
        at = bisect_right(taken, (i, 1 << 62)) - 1
        if at >= 0 and taken[at][1] > i:
            continue
        is_apart = previous >= 0 and (at < 0 or taken[at][0] < previous)
        joined = score - _OTHER_COST * (i - previous - 1) if is_apart else -1.0
        if joined < 0:
            score, start = 0.0, i
        else:
            score = joined
        score, previous = score + 1, i
        if best is None or (score, i + 1 - start) > best[:2]:
            best = score, i + 1 - start, (start, i + 1)
    return None if best is None else best[2]


def _free_stretch(
    parent: _Placed, element: _Element, tokens: _Tokens, taken: Sequence[Span], claimed: set[int]
) -> Span:
    """The stretch for an element without a word of its own: a free word beside where it should be, or an empty span."""
    place = _snap(_boundary(parent, element.start, tokens), taken)
    for distance in range(_NEAR):
        for i in (place + distance, place - 1 - distance):
            if not parent.start <= i < parent.end or i in claimed or _is_taken(i, taken):
                continue
            if _has_letters(tokens, tokens.tokens[i]):
                return i, i + 1
    return place, place


def _has_letters(tokens: _Tokens, token: _Token) -> bool:
    return any(character.isalnum() for character in tokens.aligned.target[token.start : token.end])


def _is_taken(token: int, taken: Sequence[Span]) -> bool:
    at = bisect_right(taken, (token, 1 << 62)) - 1
    return at >= 0 and taken[at][1] > token


def _boundary(parent: _Placed, offset: int, tokens: _Tokens, *, joins_next: bool = False) -> int:
    """The end of the translation of the source before a character, or the start of that of what follows."""
    after, before = tokens.after(offset), tokens.before(offset)
    first, second = (before, after) if joins_next else (after, before)
    boundary = first if first is not None else second if second is not None else parent.start
    return min(max(boundary, parent.start), parent.end)


def _is_bracket(character: str) -> bool:
    return character in "\"'" or unicodedata.category(character) in ("Ps", "Pe", "Pi", "Pf")


def _beside_word(boundary: int, parent: _Placed, tokens: _Tokens, *, before: bool) -> int:
    """The boundary beyond the brackets and quotes that the translation has at the word, and the source has not."""
    step = -1 if before else 1
    while parent.start < boundary < parent.end:
        left, right = tokens.tokens[boundary - 1 : boundary + 1]
        beyond = left if before else right
        is_bracket = all(map(_is_bracket, tokens.aligned.target[beyond.start : beyond.end]))
        if left.end < right.start or beyond.source is not None or not is_bracket:
            break
        boundary += step
    return boundary


def _snap(boundary: int, taken: Sequence[Span]) -> int:
    """The boundary, or the nearer end of the stretch that it is within."""
    at = bisect_left(taken, (boundary, -1)) - 1
    if at < 0 or taken[at][1] <= boundary:
        return boundary
    start, end = taken[at]
    return end if end - boundary <= boundary - start else start


def _place_atoms(
    parent: _Placed, placed: Sequence[_Placed], limits: dict[int, Span], unit: Unit, tokens: _Tokens
) -> list[tuple[int, _Atom]]:
    text, element = unit.text, parent.element
    taken = sorted((one.start, one.end) for one in placed if one.start < one.end)
    found: list[tuple[int, _Atom]] = []
    lowest = parent.start
    for atom in element.atoms:
        if not text[element.start : atom.offset].strip():
            boundary = parent.start
        elif not text[atom.offset : element.end].strip():
            boundary = parent.end
        else:
            joins_next = text[atom.offset - 1 : atom.offset] == " " and tokens.is_next_as_near(atom.offset)
            boundary = _boundary(parent, atom.offset, tokens, joins_next=joins_next)
            is_apart = text[atom.offset : atom.offset + 1] == " " or any(unit.tags[tag].space for tag in atom.tags)
            if joins_next or is_apart:
                boundary = _beside_word(boundary, parent, tokens, before=joins_next)
            boundary = _snap(boundary, taken)
        if atom.spans:
            least, most = limits[atom.tags.start]
            boundary = lowest = min(max(boundary, least, lowest), most)
        found.append((boundary, atom))
    return found


# ---- Writing


def prefers_space_before(unit: Unit, i: int) -> bool:
    """Whether a tag is written after the white space of its place, and not before it, as in the source."""
    tag = unit.tags[i]
    follows = tag.offset == 0 or unit.text[tag.offset - 1] == " "
    precedes = unit.text[tag.offset : tag.offset + 1] in (" ", "")
    is_opening = tag.partner is not None and tag.partner > i
    return follows if follows != precedes else is_opening
