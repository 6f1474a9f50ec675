"""Plural forms of Apple (.stringsdict): a property list whose texts are translated, each form by itself.

Keys, and what says which rule or number a text is for, stay as they are.
"""

from collections.abc import Iterator

from transformer_cli.addons.documents.bilingual_xml import BilingualReader, Element, without_cdata, xml_value
from transformer_cli.addons.documents.messages import parse_message
from transformer_cli.addons.documents.units import Document
from transformer_cli.addons.documents.xml import escape_xml

_KINDS = frozenset({"objc"})
_OF_RULES = "NSString"  # what the keys of what is no text begin with
_FORMAT = "NSStringLocalizedFormatKey"


def parse_stringsdict(text: str) -> Document:
    """Raises UnreadableError, with the line, for what is not well-formed, or no property list."""
    return _Reader(text).read()


class _Reader(BilingualReader):
    root, what = "plist", "a .stringsdict, which is a property list in XML"
    parents = ("plist", "dict")

    def closed(self, element: Element) -> None:
        if element.name != "plist":
            return
        for value in self._texts(element):
            content = without_cdata(self.text[value.inner : value.stop])
            document = parse_message(xml_value(content), _KINDS, escape_xml)
            if document.units:
                self.put(value.inner, value.stop, self.adopt(document))

    def _texts(self, root: Element) -> Iterator[Element]:
        """The strings that are texts, in their order."""
        stack = [iter(root.children)]
        key = ""
        while stack:
            for one in stack[-1]:
                if one.name == "key":
                    key = self.text[one.inner : one.stop].strip()
                elif one.name == "dict":
                    stack.append(iter(one.children))
                    break
                elif one.name == "string" and (key == _FORMAT or not key.startswith(_OF_RULES)):
                    yield one
            else:
                stack.pop()
