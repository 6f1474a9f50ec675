"""Joints: where two texts meet at tags without white space, and are not one word.

`<span>A cat.</span><span>A dog.</span>` is two texts, `<b>H</b>ello` is one word, and so is `un<i>believ</i>able`. A
model that reads `A cat.A dog.` loses a sentence, so it is shown a space there, which is not written into the document,
or two texts.
"""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

from transformer_cli.data.placeholders import placeholders_in


class Joint(Enum):
    none = auto()
    space = auto()  # within one text
    split = auto()  # between two


@dataclass(frozen=True)
class JointTag:
    """A tag between two texts."""

    name: str
    opens: bool
    closes: bool


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_INVISIBLE = _names("wbr !--")  # say nothing about words
# Elements that stand apart from the letters around them.
_RUBY = _names("rp rt rtc")  # beside the word that they belong to
_BOXES = _names("button input label meter progress select") | _RUBY
# Elements that change how letters look, and may be a part of a word; the last four are Markdown's.
_FORMATTING = _names("b big del em font i ins mark s small strike strong sub sup tt u var * _ ~ `")
_OPENING = "([{«‹“„‚¿¡「『（《【"
_CLOSING = ".,;:!?…)]}»›”’%。、，；：！？」』）》】؟،۔।"
_WIDE = "。、，；：！？」』）》】"  # after which no space is written
_SEPARATORS = "|•·›→>/"
_QUOTES = "\"'"
_INNER = "-_@&#+=~\\^*'’‐‑"  # may be within a word
_LETTER = re.compile(r"[^\W\d_]")
_WORD_END = re.compile(r"[^\W\d_]+\Z")
JOINT_WINDOW = 200  # characters before and after a joint that are read


def joint_between(before: str, after: str, tags: Sequence[JointTag]) -> Joint:
    """The joint between two texts that `tags` are between."""
    tags = [tag for tag in tags if tag.name not in _INVISIBLE and not _is_reading(tag)]
    if not tags or not before or not after or before[-1].isspace() or after[0].isspace():
        return Joint.none
    is_apart = _are_apart(tags, before, after)
    before, after = before[-JOINT_WINDOW:], after[:JOINT_WINDOW]
    if _is_in_placeholder(before, after):
        is_end = any(tag.name == "a" or _is_box(tag) for tag in tags) and _is_in_placeholder(before, "")
    else:
        is_end = _is_end(before, after, is_apart=is_apart)
    if not is_end:
        return Joint.none
    # As in a text that is broken in lines, lower case goes on with the sentence; and so does a number, as of a note.
    letter = _LETTER.search(after)
    is_sentence = letter is not None and not letter[0].islower() and not any(tag.name in _RUBY for tag in tags)
    return Joint.split if is_apart and is_sentence else Joint.space


def _is_reading(tag: JointTag) -> bool:
    """Whether it is a whole element that says how the word before it is read."""
    return tag.name in _RUBY and not (tag.opens or tag.closes)


def _is_box(tag: JointTag) -> bool:
    return not (tag.opens or tag.closes) or tag.name in _BOXES or "-" in tag.name


def _are_apart(tags: Sequence[JointTag], before: str, after: str) -> bool:
    """Whether one element ends and another begins, or something stands between the texts, which is not in a word."""
    if any(_is_box(tag) for tag in tags):
        return True
    closing = [i for i, tag in enumerate(tags) if tag.closes]
    opened = {tag.name: i for i, tag in reversed(list(enumerate(tags))) if tag.opens}
    if any(opened.get(tags[i].name, i) < i for i in closing):  # an element without text, as an icon is
        return True
    if not closing or not any(tag.opens for tag in tags[closing[0] :]):
        return False
    letters = _WORD_END.search(before)
    if letters is None or not after[0].isalpha() or after[0].isupper():
        return True
    is_initial = len(letters[0]) == 1 and letters[0].isupper()
    names = [tag.name for tag in tags]
    is_formatting = all(name in _FORMATTING for name in names) and len(set(names)) == len(names)
    return not (is_initial or is_formatting)


def _is_end(before: str, after: str, *, is_apart: bool) -> bool:
    """Whether a word ends between the texts, and white space could stand there."""
    last, first = before[-1], after[0]
    if last in _OPENING or first in _CLOSING:
        return False
    if first in _SEPARATORS or last in _SEPARATORS:
        return not (first.isdigit() or last.isdigit() or (first in _SEPARATORS and last in _SEPARATORS))
    if first in _INNER or last in _INNER:
        is_dash = after[1:2].isspace() or before[-2:-1].isspace()
        is_quoted = last == "’" and "‘" in before
        is_name = first in "#@" and _is_word(after[1:2] or " ")  # as #cats is
        return is_apart and (is_dash or is_name or is_quoted or (first in _QUOTES and last in _CLOSING))
    if first in _QUOTES:
        return is_apart or last in _CLOSING
    if last in _QUOTES:
        return is_apart and before[-2:-1].strip() != ""
    if _is_word(first) and _is_word(last):
        return is_apart or _is_new_word(before, after)
    if last in _CLOSING:
        is_number = first.isdigit() and before[-2:-1].isdigit()
        goes_on = last in _WIDE or (last in ".:" and first.islower() and not before[-3:-1].isalpha())
        return not is_number and (is_apart or not goes_on)
    return is_apart or first in _OPENING or first.isupper()


def _is_word(character: str) -> bool:
    """Whether it is a letter, a digit, or a mark of one."""
    return unicodedata.category(character)[0] in "LMN"


def _is_new_word(before: str, after: str) -> bool:
    """Whether a word begins within letters and digits that only one tag is in."""
    last, first = before[-1], after[0]
    if first.isdigit():  # H<sub>2</sub>O is one word, and a number after a longer one is a note
        letters = _WORD_END.search(before)
        return letters is not None and len(letters[0]) > 2
    return first.isupper() and (last.islower() or (last.isdigit() and after[1:2].islower()))


def _is_in_placeholder(before: str, after: str) -> bool:
    """Whether a URL, an address or a variable goes on from `before` to `after`, or ends with `before`."""
    place = len(before)
    return any(one.start < place < one.end + (not after) for one in placeholders_in(before + after))
