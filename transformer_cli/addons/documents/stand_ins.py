"""Stand-ins for the placeholders of a text: numbers, names or symbols, which models copy."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from transformer_cli.addons.documents.edits import Edit, Edited
from transformer_cli.addons.documents.words import bounded
from transformer_cli.data.placeholders import Placeholder
from transformer_cli.decoding.terminology import Span

# No pattern here backtracks far: what is repeated is possessive.
NUMBER = re.compile(r"[0-9]++(?:[.,'’\u00a0\u202f][0-9]++| (?=[0-9]{3}(?![0-9]))[0-9]++)*+")
_CODE = r"(?<![0-9])[0-9][.,'’ \u00a0\u202f]?[0-9]{3}(?![0-9])"
_NAMES = ("Tom", "Maria", "Peter", "Anna", "Boston", "John", "Martin", "David", "Thomas", "Laura")


@dataclass(frozen=True)
class Masked:
    """A text with a stand-in for each of its placeholders, or for several that touch."""

    text: str
    edits: Edited  # that give the text of the unit again
    stand_ins: tuple[str, ...]
    replaced: tuple[Placeholder, ...]  # the stretch of the unit's text that each stands for
    pattern: str  # of any of them, in a translation

    def find(self, target: str) -> tuple[dict[int, Span], list[Span]]:
        """The span of each stand-in in a translation, and the spans where one is repeated."""
        places: dict[str, list[Span]] = {}
        for match in re.finditer(self.pattern, target):
            places.setdefault(digits_of(match[0]) if match[0][0].isdigit() else match[0], []).append(match.span())
        found: dict[int, Span] = {}
        extra: list[Span] = []
        for p, stand_in in enumerate(self.stand_ins):
            if stand_in in places:
                found[p], *more = places[stand_in]
                extra += more
        return found, extra

    def leaves_any(self, target: str, found: dict[int, Span], extra: Sequence[Span]) -> bool:
        """Whether a damaged stand-in may be left in a translation, where nothing would say what it stood for."""
        is_lost = len(found) < len(self.stand_ins)
        if not self.stand_ins[0].isdigit():
            return is_lost and self.stand_ins[0].isalpha()
        spans = sorted([*found.values(), *extra])
        rest = Edited(target, [Edit(*span, "|") for span in spans]).text
        known = set(map(digits_of, NUMBER.findall(self.edits.text)))
        unknown = [one for one in map(digits_of, NUMBER.findall(rest)) if one not in known]
        # A translation may write a word as a number, but a long one rather is what became of a stand-in.
        return any(is_lost or len(one) > 3 for one in unknown)


def digits_of(number: str) -> str:
    return re.sub(r"\D", "", number)


def with_codes(text: str, placeholders: Sequence[Placeholder]) -> Masked | None:
    """The text with numbers of four digits, which models copy as they do years."""
    numbers = set(map(digits_of, NUMBER.findall(text)))
    codes = (str(1000 + (1417 + 2371 * n) % 9000) for n in range(9000))
    free = (code for code in codes if code not in numbers)
    return _masked(text, _joined(text, placeholders), list(islice(free, len(placeholders))))


def with_names(text: str, placeholders: Sequence[Placeholder]) -> Masked | None:
    """The text with first names, which are the same in most languages."""
    return _masked(text, _joined(text, placeholders), [name for name in _NAMES if name not in text])


def with_symbols(text: str, placeholders: Sequence[Placeholder], symbols: Sequence[str]) -> Masked | None:
    """The text with symbols that the model's vocabulary has for placeholders."""
    return _masked(text, placeholders, [symbol for symbol in symbols if symbol not in text])


def _joined(text: str, placeholders: Sequence[Placeholder]) -> list[Placeholder]:
    """The placeholders with the digits beside them, and one for those that touch.

    Beside a digit or another stand-in, a stand-in would be a part of another number or name.
    """
    found: list[Placeholder] = []
    for one in placeholders:
        start, end = one.start, one.end
        while start and text[start - 1].isdigit() and (not found or start > found[-1].end):
            start -= 1
        while end < len(text) and text[end].isdigit():
            end += 1
        if found and start <= found[-1].end:
            start = found.pop().start
        found.append(Placeholder(start, end, text[start:end]))
    return found


def _masked(text: str, replaced: Sequence[Placeholder], stand_ins: Sequence[str]) -> Masked | None:
    """None where there are not enough stand-ins."""
    if len(replaced) > len(stand_ins):
        return None
    used = tuple(stand_ins[: len(replaced)])
    pairs = list(zip(replaced, used, strict=True))
    masking = Edited(text, [Edit(one.start, one.end, stand_in) for one, stand_in in pairs])
    back = [Edit(*span, one.text) for span, one in zip(masking.spans, replaced, strict=True)]
    pattern = "|".join(bounded(masking.text, *span) for span in masking.spans)
    if used[0].isdigit():  # which a translation may write with a separator of thousands
        pattern = _CODE
    return Masked(masking.text, Edited(masking.text, back), used, tuple(replaced), pattern)
