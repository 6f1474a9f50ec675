"""Messages of gettext (.po): those without a translation get one, which is marked as fuzzy; all else is kept.

gettext does not use a fuzzy translation before someone has approved of it, by removing the mark. A translation that is
there is never replaced, not even a fuzzy one, as it may be someone's work.
"""

import re
from collections.abc import Mapping, Sequence

from transformer_cli.addons.documents.messages import DocumentWriter, Value, parse_message
from transformer_cli.addons.documents.plurals import form_of, is_often
from transformer_cli.addons.documents.po_inline import kinds_of, origin_of, same_placeholders
from transformer_cli.addons.documents.po_syntax import Message, String, messages, unescaped
from transformer_cli.addons.documents.units import Document, Parts

_ESCAPED = re.compile(r"\\.", re.DOTALL)
_ESCAPE = str.maketrans({"\\": "\\\\", '"': '\\"', **{chr(7 + i): f"\\{letter}" for i, letter in enumerate("abtnvfr")}})


def parse_po(text: str) -> Document:
    """Raises UnreadableError for what is no catalogue."""
    found = messages(text)
    header = next((one.values["msgstr"].text for one in found if _is_header(one)), "")
    writer = _Writer(text, header, found)
    for message in found:
        writer.write(message)
    return writer.document()


def _is_header(message: Message) -> bool:
    return message.values["msgid"].text == "" and "msgctxt" not in message.values and "msgstr" in message.values


class _Writer(DocumentWriter):
    """The document with room for what is missing."""

    def __init__(self, text: str, header: str, found: Sequence[Message]) -> None:
        super().__init__(text)
        self.rule = form_of(header)
        self.origin = origin_of(header, (message.references for message in found))

    def write(self, message: Message) -> None:
        """Give the translations of a message that has none their places."""
        text, plural = message.values["msgid"].text, message.values.get("msgid_plural")
        missing = message.translations
        if not text or any(value.text for value in missing.values()):
            return
        kinds = kinds_of(message.flags, message.references, self.origin)
        singular = self._message(text, kinds)
        other = singular if plural is None else self._message(plural.text, kinds)
        if not any(isinstance(part, int) for part in (*singular, *other)):
            return
        newline = self._mark_fuzzy(message)
        of_one = self._form_of_one(missing)
        needs_number = plural is not None and is_often(of_one, self.rule)
        if needs_number and not same_placeholders(text, plural.text if plural else text, kinds):
            of_one = -1
        for form, value in sorted(missing.items(), key=lambda item: item[1].start):
            lines = _in_lines(singular if plural is None or form == of_one else other, newline)
            is_long = any(isinstance(part, str) and newline in part for part in lines)
            self.put(*value.first, [f'""{newline}"' if is_long else '"', *lines, '"'])

    def _form_of_one(self, missing: Mapping[int, String]) -> int:
        """The form that is written with the singular; none where all numbers have the same."""
        form = self.rule(1)
        return -1 if len(missing) == 1 else form if form in missing else min(missing)

    def _mark_fuzzy(self, message: Message) -> str:
        """Add the flag, and return the line end that the message has."""
        end = self.text.find("\n", message.start)
        newline = "\r\n" if self.text[end - 1 : end] == "\r" else "\n"
        if "fuzzy" in message.flags:
            return newline
        if message.flags_at >= 0:
            self.copy(message.flags_at)
            self.parts.append(" fuzzy,")
            return newline
        place = message.start if message.previous_at < 0 else message.previous_at
        line = self.text.rfind("\n", 0, place) + 1
        is_first = not self.text[line:place].strip("\ufeff \t")
        self.copy(line if is_first and line >= self.position else place)
        self.parts.append(f"#, fuzzy{newline}" if is_first else f"{newline}#, fuzzy{newline}")
        return newline

    def _message(self, text: str, kinds: frozenset[str]) -> Parts:
        """A text with its units, escaped."""
        newline = "\r\n" if "\r\n" in text else "\n"

        def escape(text: str) -> str:
            return text.replace("\n", newline).translate(_ESCAPE)

        value = Value.of(text.translate(_ESCAPE), _ESCAPED, lambda match: unescaped(match[0]))
        return self.adopt(parse_message(value, kinds, escape))


def _in_lines(parts: Parts, newline: str) -> Parts:
    """Each line of a text is a string of its own, as gettext writes them."""
    found: list[str | int] = []
    for i, part in enumerate(parts):
        if isinstance(part, int):
            found.append(part)
            continue
        broken = _ESCAPED.sub(lambda match: match[0] + (f'"{newline}"' if match[0] == "\\n" else ""), part)
        found.append(broken.removesuffix(f'"{newline}"') if i == len(parts) - 1 else broken)
    return tuple(found)
